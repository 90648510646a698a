package testvm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/elfdeps"
	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// Config says what a machine is and runs.
type Config struct {
	// Dir holds the machine's files and is the caller's to remove.
	Dir    string
	Kernel Kernel
	// Modules are loaded before the tests start, with what they depend on.
	Modules []string
	// Binary is the test binary; its TestMain must call guest.Main.
	Binary string
	// Args are the arguments of the test binary.
	Args []string
	// Tools are programs that the tests run, by path on this machine; they
	// come with their shared libraries and are in the same folders there.
	Tools []string
	// MemoryMiB is the machine's memory; 0 means 512.
	MemoryMiB int
	// Console gets what the machine prints, line by line.
	Console func(line string)
}

// Run boots the machine, runs the tests and returns their exit status. An
// error means that they did not come to an end.
func Run(ctx context.Context, c Config) (exitCode int, err error) {
	program, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return 0, fmt.Errorf("test machine: %w (Debian package qemu-system-x86)", err)
	}
	initramfs := filepath.Join(c.Dir, "initramfs")
	if err := writeInitramfs(ctx, initramfs, c); err != nil {
		return 0, fmt.Errorf("make the initial root: %w", err)
	}
	var listen net.ListenConfig
	control, err := listen.Listen(ctx, "unix", filepath.Join(c.Dir, "qmp.sock"))
	if err != nil {
		return 0, err
	}
	defer closeListener(control)
	requests, err := listen.Listen(ctx, "unix", filepath.Join(c.Dir, "host.sock"))
	if err != nil {
		return 0, err
	}
	defer closeListener(requests)
	cmd := exec.CommandContext(ctx, program, arguments(c, initramfs)...)
	// The machine ends with this process, however that ends; the kernel ties
	// this to the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	console := &lineWriter{emit: c.Console}
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = console, &complaints
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	return attend(ctx, c, cmd, control, requests, &complaints)
}

// closeListener ends a listener; closing one that is closed already is fine.
func closeListener(l net.Listener) { _ = l.Close() }

// attend serves a running machine's requests until it ends.
func attend(ctx context.Context, c Config, cmd *exec.Cmd, control, requests net.Listener, complaints *bytes.Buffer) (int, error) {
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		// Whoever still waits for the machine to connect or speak is let go.
		closeListener(control)
		closeListener(requests)
		ended <- err
	}()
	code := -1
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		conn, err := control.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		monitor, err := newMonitor(conn)
		if err != nil {
			return err
		}
		guest, err := requests.Accept()
		if err != nil {
			return err
		}
		defer guest.Close()
		code, err = serveRequests(ctx, guest, newDisks(c.Dir, monitor))
		return err
	})
	served := group.Wait()
	if served != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
	err := <-ended
	switch {
	case context.Cause(ctx) != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return 0, fmt.Errorf("the machine did not end in time: %w", context.Cause(ctx))
	case code < 0:
		return 0, fmt.Errorf("the machine ended before its tests did: %w: %s", errors.Join(err, served), strings.TrimSpace(complaints.String()))
	}
	return code, nil
}

// serveRequests answers the tests until they have ended, and returns their
// exit status.
func serveRequests(ctx context.Context, conn io.ReadWriter, d *disks) (int, error) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r wire.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return -1, fmt.Errorf("request %q of the machine: %w", lines.Text(), err)
		}
		if r.Do == wire.Exit {
			return r.Code, nil
		}
		data, err := json.Marshal(d.handle(ctx, r))
		if err != nil {
			return -1, err
		}
		if _, err := conn.Write(append(data, '\n')); err != nil {
			return -1, err
		}
	}
	return -1, errors.Join(io.ErrUnexpectedEOF, lines.Err())
}

// arguments is QEMU's command line.
func arguments(c Config, initramfs string) []string {
	accel := os.Getenv("HOLDFAST_VM_ACCEL")
	if accel == "" {
		accel = "tcg"
	}
	memory := c.MemoryMiB
	if memory == 0 {
		memory = 512
	}
	args := []string{
		"-M", "q35", "-accel", accel, "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(memory),
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", c.Kernel.Image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=3 panic=-1 -- " + strings.Join(c.Args, " "),
		"-serial", "stdio",
		"-chardev", "socket,id=host,path=" + filepath.Join(c.Dir, "host.sock"), "-serial", "chardev:host",
		"-chardev", "socket,id=qmp,path=" + filepath.Join(c.Dir, "qmp.sock"), "-mon", "chardev=qmp,mode=control",
	}
	for port := range ports {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", portName(port), port+1))
	}
	return args
}

// writeInitramfs puts everything into one archive.
func writeInitramfs(ctx context.Context, path string, c Config) error {
	modules, err := modulesOf(ctx, c.Kernel.Modules, c.Modules)
	if err != nil {
		return err
	}
	tools, err := elfdeps.Closure(c.Tools...)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(file)
	a := newArchive(buffered)
	for _, dir := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/etc"} {
		a.dir(dir)
	}
	a.char("/dev/console", 5, 1) // the kernel opens it for pid 1 before anything is mounted
	for i, m := range modules {
		a.file(fmt.Sprintf("/modules/%02d-%s.ko", i, m.name), m.content)
	}
	a.copy("/init", c.Binary)
	for dest, source := range tools {
		a.copy(dest, source)
	}
	return errors.Join(a.end(), buffered.Flush(), file.Close())
}

// copy adds a file of this machine.
func (a *archive) copy(name, source string) {
	content, err := os.ReadFile(source)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.file(name, content)
}

// lineWriter hands whole lines on.
type lineWriter struct {
	emit func(string)
	rest []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(data []byte) (int, error) {
	w.rest = append(w.rest, data...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		w.emit(strings.TrimRight(string(line), "\r"))
		w.rest = rest
	}
}
