package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
)

// namespaces are what every machine has of its own from birth; a node adds the
// cgroup namespace once it is in its cgroup.
const namespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// spawnOp is the operation that top's init has beyond the common ones.
const spawnOp = "spawn"

// Spawn is the request to top for a new node.
type Spawn struct {
	// Program is the path of the sandbox binary; it is run with arguments
	// "init" and Spec.
	Program string `json:"program"`
	Spec    string `json:"spec"` // path of the node's spec
	Log     string `json:"log"`
	DevDir  string `json:"devDir"`
	// Link is the name of the node's cable at the switch, at most 15 bytes.
	Link string `json:"link"`
	// Group is the node's cgroup, in the layout of the machine.
	Group   string        `json:"group"`
	Cgroups cgroup.Layout `json:"cgroups"`
}

// SpawnRequest is the request for a node by this name.
func SpawnRequest(name string, s Spawn) (initd.Request, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return initd.Request{}, fmt.Errorf("encode the request for %s: %w", name, err)
	}
	return initd.Request{Op: spawnOp, Name: name, Body: raw}, nil
}

// spawner answers spawn requests in top.
func spawner(table *initd.Table) initd.Handler {
	return func(req initd.Request) initd.Response {
		var s Spawn
		if err := json.Unmarshal(req.Body, &s); err != nil {
			return initd.Failed(fmt.Errorf("read the request for %s: %w", req.Name, err))
		}
		pid, err := spawn(table, req.Name, s)
		if err != nil {
			return initd.Failed(err)
		}
		return initd.Response{PID: pid}
	}
}

func spawn(table *initd.Table, name string, s Spawn) (int, error) {
	if err := prepareDev(s.DevDir); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make the gate of %s: %w", name, err)
	}
	defer gate.Close()
	defer open.Close()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: birthEnv(),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd(), gate.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces},
	}
	return table.Start(name, []string{s.Program, "init", s.Spec}, attr, func(pid int) error {
		if err := s.Cgroups.Create(s.Group); err != nil {
			return err
		}
		if err := s.Cgroups.Enter(s.Group, pid); err != nil {
			return err
		}
		if err := plugIn(s.Link, pid); err != nil {
			return err
		}
		return openGate(open)
	})
}

// openGate lets a new machine go on.
func openGate(open *os.File) error {
	if _, err := open.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	return nil
}

// birthEnv is the environment of a first process: nothing of the caller's, whose
// proxies and credentials have no business in the sandbox.
func birthEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

// TopOptions says how to start top.
type TopOptions struct {
	Program string // path of the sandbox binary
	Spec    string // path of the spec
	Log     string
	Group   string
	Cgroups cgroup.Layout
	// Listeners are handed over in the order of Spec.Listeners.
	Listeners []*os.File
	// Outlive lets it go on after this process has ended. Otherwise the kernel
	// kills it then.
	Outlive bool
}

// StartTop starts the outer machine. The channel is closed when it has ended.
func StartTop(ctx context.Context, o TopOptions) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	started := make(chan error)
	done := make(chan struct{})
	go func() {
		// The kernel sends the death signal when the thread that started the
		// process ends, so the thread waits here as long as the process lives.
		runtime.LockOSThread()
		defer close(done)
		cmd, err := startTop(o)
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return done, nil
}

func startTop(o TopOptions) (*exec.Cmd, error) {
	out, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's log: %w", err)
	}
	defer out.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's gate: %w", err)
	}
	defer gate.Close()
	defer open.Close()
	cmd := exec.Command(o.Program, "init", o.Spec)
	cmd.Dir, cmd.Env = "/", birthEnv()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = append([]*os.File{gate}, o.Listeners...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if !o.Outlive {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the sandbox's first process: %w", err)
	}
	err = o.Cgroups.Create(o.Group)
	if err == nil {
		err = o.Cgroups.Enter(o.Group, cmd.Process.Pid)
	}
	if err == nil {
		err = openGate(open)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	return cmd, nil
}
