package initd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serveVariable makes this test binary an init: it waits for every child, which
// the testing package's process must not.
const serveVariable = "HOLDFAST_TEST_INIT_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(serveVariable); socket != "" {
		if err := serve(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func serve(socket string) error {
	// As the first process of a pid namespace would, it becomes the parent of orphans.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	unix.CloseOnExec(3)
	s := &Server{
		Table:     NewTable(),
		Listeners: map[string]*os.File{"web": os.NewFile(3, "web")},
		Handlers:  map[string]Handler{"double": func(r Request) Response { return Response{Body: r.Name + r.Name} }},
	}
	return s.Serve(socket)
}

// startInit starts an init, and returns the address of its listener.
func startInit(t *testing.T) (c Client, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(); _ = l.Close() })
	c = Client{Socket: filepath.Join(t.TempDir(), "s")}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+c.Socket)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "the init answers", func() error {
		pid, err := c.PID(t.Context())
		if err == nil && pid != cmd.Process.Pid {
			err = fmt.Errorf("process %d listens, want %d", pid, cmd.Process.Pid)
		}
		return err
	})
	return c, l.Addr().String()
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

var path = []string{"PATH=/usr/bin:/bin"}

// do is a request that has to go well.
func do(t *testing.T, c Client, r Request) Response {
	t.Helper()
	resp, err := c.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func daemon(t *testing.T, c Client, name, script string, listeners ...string) (pid int, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), name+".log")
	return do(t, c, Request{Op: "start", Name: name, Argv: []string{"sh", "-c", script}, Env: path, Log: log, Listeners: listeners}).PID, log
}

// find returns the named daemon as the init lists it.
func find(t *testing.T, c Client, name string) Process {
	t.Helper()
	all := do(t, c, Request{Op: "list"}).Processes
	i := slices.IndexFunc(all, func(p Process) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("%s is not listed: %v", name, all)
	}
	return all[i]
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

func TestDaemon(t *testing.T) {
	c, _ := startInit(t)
	pid, log := daemon(t, c, "d", "echo out; echo err >&2; exec sleep 1000")
	eventually(t, "the log has both outputs", func() error {
		raw, err := os.ReadFile(log)
		if err == nil && string(raw) != "out\nerr\n" {
			err = fmt.Errorf("log %q", raw)
		}
		return err
	})
	if p := find(t, c, "d"); p.PID != pid || !p.Running() {
		t.Errorf("listed as %+v, want process %d running", p, pid)
	}
	if _, err := c.Do(t.Context(), Request{Op: "start", Name: "d", Argv: []string{"true"}, Env: path, Log: log}); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second one of the same name: %v", err)
	}
	for range 2 {
		do(t, c, Request{Op: "stop", Name: "d"})
	}
	if alive(pid) {
		t.Errorf("process %d is alive after stop", pid)
	}
	if p := find(t, c, "d"); p.Running() || p.Exit.Signal != "killed" {
		t.Errorf("listed as %+v, want killed", p)
	}
	if again, _ := daemon(t, c, "d", "sleep 1000"); again == pid || !find(t, c, "d").Running() {
		t.Error("a daemon that has ended can be started again")
	}
	do(t, c, Request{Op: "stop", Name: "nobody"})
}

func TestStopWithGrace(t *testing.T) {
	c, _ := startInit(t)
	daemon(t, c, "polite", "trap 'exit 7' TERM; while :; do sleep 0.05; done")
	daemon(t, c, "deaf", "trap '' TERM; while :; do sleep 0.05; done")
	eventually(t, "both have set their traps", func() error {
		for _, n := range []string{"polite", "deaf"} {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", find(t, c, n).PID))
			if err != nil {
				return err
			}
			if !hasTerm(string(raw)) {
				return fmt.Errorf("%s neither catches nor ignores SIGTERM", n)
			}
		}
		return nil
	})
	do(t, c, Request{Op: "stop", Name: "polite", Grace: 20 * time.Second})
	if e := find(t, c, "polite").Exit; e == nil || e.Code != 7 {
		t.Errorf("the polite one ended with %+v, want its own code 7", e)
	}
	do(t, c, Request{Op: "stop", Name: "deaf", Grace: 50 * time.Millisecond})
	if e := find(t, c, "deaf").Exit; e == nil || e.Signal != "killed" {
		t.Errorf("the deaf one ended with %+v, want killed", e)
	}
}

// hasTerm reads whether SIGTERM is caught or ignored from /proc/<pid>/status.
func hasTerm(status string) bool {
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == "SigCgt:" || f[0] == "SigIgn:") {
			if mask, err := strconv.ParseUint(f[1], 16, 64); err == nil && mask&(1<<(unix.SIGTERM-1)) != 0 {
				return true
			}
		}
	}
	return false
}

func TestEndByItself(t *testing.T) {
	c, _ := startInit(t)
	daemon(t, c, "d", "exit 3")
	eventually(t, "its end is known", func() error {
		if p := find(t, c, "d"); p.Running() || p.Exit.Code != 3 {
			return fmt.Errorf("listed as %+v", p)
		}
		return nil
	})
}

func TestOrphans(t *testing.T) {
	c, _ := startInit(t)
	_, log := daemon(t, c, "parent", "sh -c 'exit 0' & echo $!; sh -c 'sleep 0.2' & echo $!; exit 0")
	eventually(t, "orphans are reaped", func() error {
		raw, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		pids := strings.Fields(string(raw))
		if len(pids) != 2 {
			return fmt.Errorf("log %q", raw)
		}
		for _, p := range pids {
			if _, err := os.Stat("/proc/" + p); err == nil {
				return fmt.Errorf("process %s is still there", p)
			}
		}
		return nil
	})
}

func TestListener(t *testing.T) {
	c, address := startInit(t)
	// The daemon has the listener as descriptor 3 and nothing else of the init's.
	_, log := daemon(t, c, "d", "ls -l /proc/self/fd | grep -c socket; exec sleep 1000", "web")
	eventually(t, "the daemon has one socket", func() error {
		raw, err := os.ReadFile(log)
		if err == nil && string(raw) != "1\n" {
			err = fmt.Errorf("it counts %q", raw)
		}
		return err
	})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	if _, err := c.Do(t.Context(), Request{Op: "start", Name: "e", Argv: []string{"true"}, Env: path, Log: log, Listeners: []string{"no"}}); err == nil || !strings.Contains(err.Error(), `"no"`) {
		t.Errorf("a listener that is not there: %v", err)
	}
}

// run runs a command and returns what it prints on both outputs.
func run(ctx context.Context, t *testing.T, c Client, argv ...string) (string, Exit, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	exit, err := c.Run(ctx, Request{Argv: argv, Env: path}, null, w, w)
	_ = w.Close()
	if err != nil {
		return "", exit, err
	}
	out, readErr := io.ReadAll(r)
	return string(out), exit, readErr
}

func TestRun(t *testing.T) {
	c, _ := startInit(t)
	for name, tc := range map[string]struct {
		why, script, out string
		exit             Exit
	}{
		"prints":      {"the streams are the caller's own", "echo a; echo b >&2", "a\nb\n", Exit{}},
		"fails":       {"the code is the command's", "exit 9", "", Exit{Code: 9}},
		"killed":      {"a signal is told, with the shell's code for it", "kill -9 $$", "", Exit{Code: 137, Signal: "killed"}},
		"environment": {"nothing of the init's environment is inherited", "echo $" + serveVariable, "\n", Exit{}},
	} {
		t.Run(name, func(t *testing.T) {
			out, exit, err := run(t.Context(), t, c, "sh", "-c", tc.script)
			if err != nil || out != tc.out || exit != tc.exit {
				t.Errorf("%s: %q, %+v, %v; want %q, %+v", tc.why, out, exit, err, tc.out, tc.exit)
			}
		})
	}
	if _, _, err := run(t.Context(), t, c, "no-such-program"); err == nil || !strings.Contains(err.Error(), "no such program in /usr/bin:/bin") {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := c.Do(t.Context(), Request{Op: "run", Argv: []string{"true"}, Env: path}); err == nil || !strings.Contains(err.Error(), "descriptors") {
		t.Errorf("run without streams: %v", err)
	}
}

// TestRunEndsWithCaller: nobody would read the answer of a command whose caller
// has gone.
func TestRunEndsWithCaller(t *testing.T) {
	c, _ := startInit(t)
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 || ctx.Err() != nil {
				cancel()
				return
			}
		}
	}()
	_, _, err := run(ctx, t, c, "sh", "-c", "echo $$ > "+file+"; sleep 1000")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command ends", func() error {
		if alive(pid) {
			return fmt.Errorf("process %d is alive", pid)
		}
		return nil
	})
}

func TestProbe(t *testing.T) {
	c, _ := startInit(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "short and stout")
	}))
	defer srv.Close()
	if r := do(t, c, Request{Op: "probe", URL: srv.URL}); r.Status != http.StatusTeapot || r.Body != "short and stout" {
		t.Errorf("probe sees %+v", r)
	}
	srv.Close()
	if _, err := c.Do(t.Context(), Request{Op: "probe", URL: srv.URL}); err == nil {
		t.Error("a server that is gone must give an error")
	}
}

func TestOperations(t *testing.T) {
	c, _ := startInit(t)
	if r := do(t, c, Request{Op: "double", Name: "ha"}); r.Body != "haha" {
		t.Errorf("an operation of this kind of init answers %+v", r)
	}
	if _, err := c.Do(t.Context(), Request{Op: "dance"}); err == nil || !strings.Contains(err.Error(), `unknown operation "dance"`) {
		t.Errorf("unknown operation: %v", err)
	}
	long := strings.Repeat("x", 200000) // more than one packet
	if r, err := c.Do(t.Context(), Request{Op: "double", Name: long}); err != nil || len(r.Body) != 2*len(long) {
		t.Errorf("a request in many packets is read as %d bytes, with error %t", len(r.Body), err != nil)
	}
	if _, err := (Client{Socket: filepath.Join(t.TempDir(), "no")}).Do(t.Context(), Request{Op: "list"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no init: %v", err)
	}
}
