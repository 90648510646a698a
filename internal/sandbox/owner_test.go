package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
)

func TestFlags(t *testing.T) {
	for _, tc := range []struct{ why, name, dir, want string }{
		{"the default folder needs no mention", "x", "/var/tmp/holdfast-sandbox/x", "--name x"},
		{"none given is the default", "x", "", "--name x"},
		{"another folder is part of what is meant", "x", "/srv/x", "--name x --dir /srv/x"},
		{"the default folder of another name is not the default", "x", "/var/tmp/holdfast-sandbox/y", "--name x --dir /var/tmp/holdfast-sandbox/y"},
	} {
		if got := Flags(tc.name, tc.dir); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
		}
	}
}

func TestCheckTraces(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		seen traces
		want string // part of the error; empty: none
	}{
		"nothing":             {"a sandbox that is gone is down", traces{}, ""},
		"running":             {"the usual case", traces{home: "/srv/x", isHome: true, recorded: "x"}, ""},
		"killed":              {"the record is all that is left", traces{recorded: "x"}, ""},
		"record lost":         {"it runs from here, so the folder is its", traces{home: "/srv/x", isHome: true}, ""},
		"runs elsewhere":      {"its processes would die, its folder and loop devices stay", traces{home: "/srv/y"}, "sandbox x runs from folder /srv/y, not /srv/x, and was left alone: end it with `sandbox down --name x --dir /srv/y`"},
		"runs in the default": {"the flag that was wrong is not in the hint", traces{home: "/var/tmp/holdfast-sandbox/x"}, "end it with `sandbox down --name x`"},
		"folder of another":   {"that one's disks would go while it runs", traces{recorded: "z"}, "folder /srv/x is that of sandbox z, not x, and was left alone: end it with `sandbox down --name z --dir /srv/x`"},
		"nameless runs here":  {"the same if the record does not tell", traces{stranger: true}, "another sandbox than x runs from folder /srv/x"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.seen.check("x", "/srv/x")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: error %v, want %q", tc.why, err, tc.want)
			}
		})
	}
}

func TestHomeIn(t *testing.T) {
	for _, tc := range []struct {
		why  string
		argv []string
		want string // empty: none
	}{
		{"top", []string{"/srv/x/bin/sandbox", "init", "/srv/x/run/top.json"}, "/srv/x"},
		{"a process that has ended has no command line", []string{""}, ""},
		{"a component of top", []string{"/cache/etcd", "--data-dir", "/srv/x/etcd"}, ""},
		{"someone else's init", []string{"/sbin/tini", "init", "/srv/x/run/top.json"}, ""},
		{"another file", []string{"/srv/x/bin/sandbox", "init", "/srv/x/conf/top.json"}, ""},
	} {
		if got, ok := homeIn(tc.argv); ok != (tc.want != "") || ok && got != tc.want {
			t.Errorf("%s: %q, %t, want %q", tc.why, got, ok, tc.want)
		}
	}
}

// TestDownOfTwo asks to take down a name and a folder that are not of one sandbox.
// A plain folder plays the cgroups, a shell that waits plays top.
func TestDownOfTwo(t *testing.T) {
	home := t.TempDir()
	top := standIn(t, home)
	root := t.TempDir()
	layout := cgroup.Layout{Hierarchies: []cgroup.Hierarchy{{Mount: root}}}
	group := filepath.Join(root, cgroupOf("x"), topName)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Appendln(nil, top.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (record{Name: "x", Dir: home}).save(); err != nil {
		t.Fatal(err)
	}
	typo := filepath.Join(t.TempDir(), "typo")
	for _, tc := range []struct{ why, name, dir, want string }{
		{"its folder and loop devices would stay", "x", typo, "sandbox x runs from folder " + home},
		{"it would lose its disks while it runs", "y", home, "folder " + home + " is that of sandbox x"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := takeDownIn(ctx, layout, tc.name, tc.dir, removeAll)
		cancel()
		hint := "`sandbox down --name x --dir " + home + "`"
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: error %v, want %q and %s", tc.why, err, tc.want, hint)
		}
		if _, err := loadRecord(home); err != nil {
			t.Errorf("%s: %v", tc.why, err)
		}
	}
	seen, err := look(t.Context(), layout, "x", home)
	if err != nil || seen.home != home || seen.check("x", home) != nil {
		t.Errorf("sandbox x runs from %q, %v; want %s, which may be taken down: was its process killed?", seen.home, err, home)
	}
	if err := (record{Name: "x", Dir: typo, Cgroups: layout}).refuseRunning(); err == nil || !strings.Contains(err.Error(), "--dir "+home+"`") {
		t.Errorf("up in another folder: error %v, want it to name %s", err, home)
	}
}

// TestTopAnswers: the socket of a first process that is dying takes connections
// until the kernel has closed it, and a take-down must not wait for that.
func TestTopAnswers(t *testing.T) {
	dir := t.TempDir()
	if topAnswers(t.Context(), dir) {
		t.Error("nobody answers where there is no socket")
	}
	socket := paths{dir}.socket(topName)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if topAnswers(ctx, dir) {
		t.Error("a socket that takes connections is no answer")
	}
}

// standIn runs a process with top's command line until the test ends.
func standIn(t *testing.T, home string) *exec.Cmd {
	t.Helper()
	cwd := t.TempDir()
	if err := os.WriteFile(filepath.Join(cwd, "init"), []byte("echo up\nread line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := paths{home}
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{p.own("sandbox"), "init", p.spec(topName)}, Dir: cwd}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	return cmd
}
