package elfdeps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestClosureRunsElsewhere unpacks the closure of a dynamic program into an
// empty folder and runs it there with nothing but these files.
func TestClosureRunsElsewhere(t *testing.T) {
	program, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	files, err := Closure(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("ls needs at least itself, the interpreter and libc, got %v", files)
	}
	root := t.TempDir()
	var interpreter string
	for dest, source := range files {
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, dest)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(dest), "ld-") {
			interpreter = to
		}
	}
	var libraries []string
	for dest := range files {
		libraries = append(libraries, filepath.Join(root, filepath.Dir(dest)))
	}
	// The interpreter with --library-path and --inhibit-cache sees only the copies.
	out, err := exec.Command(interpreter, "--inhibit-cache", "--library-path", strings.Join(libraries, ":"),
		filepath.Join(root, program), "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("run from the closure: %v\n%s", err, out)
	}
}

func TestClosureRefusesScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Closure(script)
	if err == nil || !strings.Contains(err.Error(), "not an ELF program") {
		t.Fatalf("a script must be refused by name, got %v", err)
	}
	if _, err := Closure("/no/such/program"); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Fatalf("a missing program must be named, got %v", err)
	}
}

func TestReadConf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("ld.so.conf", "# comment\n/first # why\ninclude conf.d/*.conf\n/last\n")
	write("conf.d/a.conf", "/a\nrelative/is/ignored\n")
	write("conf.d/b.conf", "/b\ninclude "+filepath.Join(dir, "ld.so.conf")+"\n") // a loop must end
	got := readConf(filepath.Join(dir, "ld.so.conf"), maxIncludeDepth-1)
	want := []string{"/first", "/a", "/b", "/last"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("folders in the linker's order (-want +got)\n%s", diff)
	}
	if len(readConf(filepath.Join(dir, "ld.so.conf"), 0)) == 0 {
		t.Error("a loop of includes must end with what was read")
	}
}
