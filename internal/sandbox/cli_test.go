//go:build sandbox

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command runs the sandbox program of this repository.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), filepath.Join(own, "sandbox"), args...)
}

// TestBadInput: each wrong use gives one line that says what to do, and leaves
// nothing behind.
func TestBadInput(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	for name, tc := range map[string]struct {
		args   []string
		nobody bool
		want   string
	}{
		"up without root":      {[]string{"up", "--dir", absent}, true, "a sandbox needs root, for namespaces, mounts and loop devices: run this with sudo"},
		"down without root":    {[]string{"down", "--dir", absent}, true, "taking a sandbox down needs root: run this with sudo"},
		"folder in a file":     {[]string{"up", "--own", own, "--binaries", own, "--dir", "/etc/passwd/x"}, false, "not a directory; choose another one"},
		"someone's folder":     {[]string{"up", "--own", own, "--binaries", own, "--dir", foreign}, false, "holds files but no sandbox: choose an empty one"},
		"down in such":         {[]string{"down", "--dir", foreign}, false, "holds files but no sandbox"},
		"name":                 {[]string{"up", "--name", "A/B"}, false, `sandbox name "A/B": use 1 to 32 of a-z`},
		"folder of the nodes":  {[]string{"up", "--dir", "/run/x"}, false, "lies in /run, of which every node has its own"},
		"no sandbox":           {[]string{"kubeconfig", "--dir", absent}, false, "start one with `sandbox up --name test-"},
		"status of no sandbox": {[]string{"status", "--dir", absent}, false, "no such sandbox"},
		"exec without command": {[]string{"exec", "node-a1"}, false, "name a node and a command"},
		"missing policy":       {[]string{"up", "--own", own, "--binaries", own, "--dir", absent, "--controller-policy", "/no/policy.json"}, false, "/no/policy.json: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--name", fmt.Sprintf("test-%d-bad", os.Getpid())}, tc.args...)
			cmd := command(t, args...)
			if tc.nobody {
				cmd = command(t, tc.args...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ends with %v, want exit code 1", err)
			}
			if said := lastLine(stderr.String()); !strings.HasPrefix(said, "sandbox: ") || !strings.Contains(said, tc.want) {
				t.Errorf("it says %q, want %q", stderr.String(), tc.want)
			}
			if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("folder %s is left: %v", absent, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.txt")); err != nil {
		t.Errorf("someone's file is gone: %v", err)
	}
}

// lastLine leaves out lines of progress.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// TestUpCutShort ends `up` in the middle, in two ways.
func TestUpCutShort(t *testing.T) {
	for _, tc := range []struct {
		why    string
		after  time.Duration
		signal os.Signal
	}{
		{"killed at the very start", 30 * time.Millisecond, os.Kill},
		{"killed while nodes are made", 400 * time.Millisecond, os.Kill},
		{"killed while the API server starts", 2 * time.Second, os.Kill},
		{"interrupted from the keyboard", 2 * time.Second, os.Interrupt},
	} {
		t.Run(tc.why, func(t *testing.T) {
			o := options(t, "cut")
			cmd := command(t, "up", "--name", o.Name, "--dir", o.Dir, "--own", own)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-time.After(tc.after)
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Fatalf("it was up already: %s", stderr.String())
			}
			r, _ := loadRecord(o.Dir) // for the ports, if it got so far
			r.Name, r.Dir = o.Name, o.Dir
			if tc.signal == os.Kill {
				if err := DownAt(t.Context(), o.Name, o.Dir); err != nil {
					t.Fatal(err)
				}
			}
			assertNothingLeft(t, &Sandbox{rec: r})
		})
	}
}

// TestCommandLine: a detached sandbox is looked at and ended by other processes.
func TestCommandLine(t *testing.T) {
	o := options(t, "cli")
	// A relative folder: what is printed must be good elsewhere too.
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	id := []string{"--name", o.Name, "--dir", relative}
	run := func(args ...string) (string, error) {
		out, err := command(t, append(id, args...)...).CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() {
		if err := DownAt(t.Context(), o.Name, o.Dir); err != nil {
			t.Log(err)
		}
	})
	out, err := run("up", "--own", own)
	if err != nil || !strings.Contains(out, "export KUBECONFIG="+o.Dir+"/kubeconfig") || !strings.HasSuffix(out, "sandbox --name "+o.Name+" --dir "+o.Dir+" down\n") {
		t.Fatalf("up: %v: %s", err, out)
	}
	end := "`sandbox down --name " + o.Name + " --dir " + o.Dir + "`"
	if out, err := run("up", "--own", own); err == nil || !strings.Contains(out, ErrRunning.Error()) || !strings.Contains(out, end) {
		t.Errorf("up again: %v: %s", err, out)
	}
	for _, wrong := range [][]string{{"--dir", filepath.Join(t.TempDir(), "typo")}, {"--name", o.Name + "-typo"}} {
		if out, err := run(append([]string{"down"}, wrong...)...); err == nil || !strings.Contains(out, "left alone: end it with "+end) {
			t.Errorf("down %v: %v: %s", wrong, err, out)
		}
	}
	if out, err := run("kubeconfig"); err != nil || out != o.Dir+"/kubeconfig\n" {
		t.Errorf("kubeconfig: %v: %s", err, out)
	}
	if out, err := run("status"); err != nil || strings.Count(out, "running") != 7+3+3*3 || !strings.Contains(out, "i-0000000000000b001") {
		t.Errorf("status: %v: %s", err, out)
	}
	if out, err := run("exec", "node-b1", "--", "sh", "-c", "hostname; exit 5"); exitCode(err) != 5 || out != "node-b1\n" {
		t.Errorf("exec: %v: %s", err, out)
	}
	tar := filepath.Join(t.TempDir(), "x.tar")
	if err := packImage(filepath.Join(own, "testpod"), testImage, tar); err != nil {
		t.Fatal(err)
	}
	if out, err := run("load-image", tar); err != nil {
		t.Errorf("load-image: %v: %s", err, out)
	}
	if out, err := run("load-image", "/etc/passwd"); exitCode(err) != 1 || !strings.Contains(out, "sandbox: load image /etc/passwd into node-") || !strings.Contains(out, "ctr: ") {
		t.Errorf("load-image of no image: %v: %q, want the archive, the node and what ctr says", err, out)
	}
	if out, err := run("exec", "node-a2", "--", "ctr", "images", "ls", "-q"); err != nil || !strings.Contains(out, testImage) {
		t.Errorf("images of node-a2: %v: %s", err, out)
	}
	r, err := loadRecord(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, err := run("down"); err != nil || out != "" {
			t.Errorf("down: %v: %s", err, out)
		}
	}
	assertNothingLeft(t, &Sandbox{rec: r})
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
