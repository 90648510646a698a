package toolchain

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPins: what is built is what the modules below sandbox/ name as their tools;
// a package that is missing there would not be pinned by `go mod tidy`.
func TestPins(t *testing.T) {
	root, err := FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range allModules() {
		raw, err := os.ReadFile(filepath.Join(root, "sandbox", m.name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		tools := toolLines(string(raw))
		want := slices.Sorted(slices.Values(slices.Concat(m.packages, m.tests)))
		slices.Sort(tools)
		if diff := cmp.Diff(want, tools); diff != "" {
			t.Errorf("tools of sandbox/%s/go.mod (-built +pinned)\n%s", m.name, diff)
		}
	}
}

func allModules() []module { return slices.Concat(modules[Cluster], modules[Suite]) }

// toolLines reads the tool directives of a go.mod.
func toolLines(goMod string) []string {
	var out []string
	block := false
	for line := range strings.Lines(goMod) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "tool" && f[1] == "(":
			block = true
		case len(f) == 1 && f[0] == ")":
			block = false
		case block && len(f) == 1:
			out = append(out, f[0])
		case len(f) == 2 && f[0] == "tool":
			out = append(out, f[1])
		}
	}
	return out
}

func TestLinkFlags(t *testing.T) {
	m := module{name: "k", ldflags: "-s", version: "k8s.io/kubernetes"}
	for name, tc := range map[string]struct{ why, goMod, want string }{
		"block":   {"a requirement in a block", "require (\n\tk8s.io/kubernetes v1.37.2 // indirect\n)\n", "-s -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37 -X k8s.io/component-base/version.gitTreeState=clean"},
		"line":    {"a requirement in one line", "require k8s.io/kubernetes v1.2.3\n", "-s -X k8s.io/component-base/version.gitVersion=v1.2.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=2 -X k8s.io/component-base/version.gitTreeState=clean"},
		"missing": {"a similar name is another module", "require k8s.io/kubernetes-x v1.2.3\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := m.linkFlags(tc.goMod)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: %q, %v; want %q", tc.why, got, err, tc.want)
			}
		})
	}
	if got, err := (module{ldflags: "-s"}).linkFlags(""); err != nil || got != "-s" {
		t.Errorf("a module without a version: %q, %v", got, err)
	}
}

// fakeRoot is a repository with pins of no meaning.
func fakeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, m := range allModules() {
		dir := filepath.Join(root, "sandbox", m.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"go.mod": "require k8s.io/kubernetes v1.37.2\n", "go.sum": m.name} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// TestKey: the folder's name changes with everything that changes the programs.
func TestKey(t *testing.T) {
	root := fakeRoot(t)
	keyOf := func(set Set, programs int, goVersion string) string {
		k, tasks, err := plan(set, root, goVersion)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) != programs {
			t.Fatalf("%d programs of set %s, want %d", len(tasks), set, programs)
		}
		return k
	}
	key := func(goVersion string) string { return keyOf(Cluster, 16, goVersion) }
	suite := keyOf(Suite, 3, "go1")
	first := key("go1")
	if again := key("go1"); again != first {
		t.Errorf("the same pins give %s and %s", first, again)
	}
	if key("go2") == first {
		t.Error("another Go gives the same folder")
	}
	if err := os.WriteFile(filepath.Join(root, "sandbox", "csi", "go.sum"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key("go1") == first {
		t.Error("other sums give the same folder")
	}
	if keyOf(Suite, 3, "go1") != suite {
		t.Error("other sums of the cluster give the suite another folder: it would be built again for nothing")
	}
	first = key("go1")
	if err := os.WriteFile(filepath.Join(root, "sandbox", "e2e", "go.sum"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if keyOf(Suite, 3, "go1") == suite {
		t.Error("other sums give the suite the same folder")
	}
	if key("go1") != first {
		t.Error("other sums of the suite give the cluster another folder: half an hour of building for nothing")
	}
}

func TestFindRoot(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "sandbox", "csi")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, text := range map[string]string{root: "module " + RepositoryModule + "\n", deep: "module " + RepositoryModule + "/sandbox/csi\n"} {
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := FindRoot(deep); err != nil || got != root {
		t.Errorf("from a module inside: %s, %v; want %s", got, err, root)
	}
	if _, err := FindRoot(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not in the repository of github.com/holdfast-dev/holdfast") {
		t.Errorf("outside: %v", err)
	}
}

// program writes a module with one command and returns how to build it.
func program(t *testing.T, source string) (*Options, task) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "sandbox", "m")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module example.test/hello\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Options{Root: root, Out: &bytes.Buffer{}}, task{module: module{name: "m"}, pkg: "example.test/hello", program: "hello", ldflags: strip}
}

func TestBuildOne(t *testing.T) {
	o, task := program(t, "package main\n\nfunc main() {}\n")
	dir := t.TempDir()
	for _, want := range []string{"[1/1] hello: 1 MiB in ", "[1/1] hello: there already"} {
		out := &bytes.Buffer{}
		o.Out = out
		if err := o.build(t.Context(), dir, task, "[1/1]"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("progress %q, want %q", out, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "hello" {
		t.Errorf("the folder has %v, %v; want the program alone", entries, err)
	}
}

// TestBuildTests: the tests of a package, as a program.
func TestBuildTests(t *testing.T) {
	o, task := program(t, "package main\n\nfunc main() {}\n")
	test := "package main\n\nimport \"testing\"\n\nfunc TestHello(t *testing.T) { t.Log(\"hello\") }\n"
	if err := os.WriteFile(filepath.Join(o.Root, "sandbox", "m", "main_test.go"), []byte(test), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	task.program, task.test = "hello.test", true
	if err := o.build(t.Context(), dir, task, "[1/1]"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "hello.test"), "-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestHello") {
		t.Errorf("the program says %q, %v; want that its test passes", out, err)
	}
}

func TestBuildFails(t *testing.T) {
	o, task := program(t, "package main\n\nfunc main() { missing() }\n")
	dir := t.TempDir()
	err := o.build(t.Context(), dir, task, "[1/1]")
	if err == nil || !strings.Contains(err.Error(), "build hello") || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("error %v, want the program and the compiler's words", err)
	}
	if done, err := complete(Cluster, dir, nil); err != nil || done {
		t.Errorf("a folder without definitions counts as complete: %t, %v", done, err)
	}
}

func TestComplete(t *testing.T) {
	dir := t.TempDir()
	tasks := []task{{program: "a"}}
	for _, f := range []string{"a", crdMarker} {
		if done, err := complete(Cluster, dir, tasks); err != nil || done {
			t.Errorf("without %s: complete is %t, %v", f, done, err)
		}
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := complete(Cluster, dir, tasks); err != nil || !done {
		t.Errorf("with all: complete is %t, %v", done, err)
	}
	if err := os.Remove(filepath.Join(dir, crdMarker)); err != nil {
		t.Fatal(err)
	}
	if done, err := complete(Suite, dir, tasks); err != nil || !done {
		t.Errorf("a suite, which has no definitions: complete is %t, %v", done, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	out := &bytes.Buffer{}
	if _, err := lock(ctx, path, out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second builder: %v, want to wait until its context ends", err)
	}
	if !strings.Contains(out.String(), "waiting for it") {
		t.Errorf("it says %q, want why it waits", out)
	}
	unlock()
	unlock, err = lock(t.Context(), path, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestDefaultCache(t *testing.T) {
	t.Setenv(CacheVariable, "/somewhere/else")
	if got, err := DefaultCache(); err != nil || got != "/somewhere/else" {
		t.Errorf("cache %s, %v", got, err)
	}
	t.Setenv(CacheVariable, "")
	t.Setenv("XDG_CACHE_HOME", "/home/x/.cache")
	if got, err := DefaultCache(); err != nil || got != "/home/x/.cache/holdfast" {
		t.Errorf("cache %s, %v", got, err)
	}
}
