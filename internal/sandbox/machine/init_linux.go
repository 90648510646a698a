package machine

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
)

const (
	// gateFD is where a new machine waits until it may go on.
	gateFD = 3
	// firstListenerFD is the first listener of Spec.Listeners.
	firstListenerFD = 4
	// secondStage marks the environment of a machine that has passed the gate.
	secondStage = "HOLDFAST_SANDBOX_STAGE=2"
)

// Init is the first process of a machine. It does not return unless it fails.
func Init(specPath string) error {
	spec, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	if !slices.Contains(os.Environ(), secondStage) {
		return passGate(spec)
	}
	exitOnTerm()
	listeners := map[string]*os.File{}
	for i, name := range spec.Listeners {
		fd := firstListenerFD + i
		unix.CloseOnExec(fd)
		listeners[name] = os.NewFile(uintptr(fd), name)
	}
	if err := setUp(spec); err != nil {
		return fmt.Errorf("set up %s: %w", spec.Name, err)
	}
	server := &initd.Server{Table: initd.NewTable(), Listeners: listeners}
	if spec.Kind == Top {
		server.Handlers = map[string]initd.Handler{spawnOp: spawner(server.Table)}
	}
	return server.Serve(spec.Socket)
}

// passGate waits for the parent and starts this program over, in the cgroup
// namespace whose root is the cgroup that the parent has put it in.
func passGate(spec Spec) error {
	gate := os.NewFile(gateFD, "gate")
	if n, err := gate.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("the parent of %s went away before it was ready: %w", spec.Name, err)
	}
	_ = gate.Close()
	// Namespaces belong to threads; exec makes the one that calls it the first.
	runtime.LockOSThread()
	if spec.Kind == Node {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("make a cgroup namespace for %s: %w", spec.Name, err)
		}
	}
	if spec.DieWithParent {
		// The death signal that the parent asked for belongs to the first
		// thread, which need not be this one (PR_SET_PDEATHSIG in prctl(2)).
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("tie %s to its parent: %w", spec.Name, err)
		}
	}
	if err := unix.Exec(os.Args[0], os.Args, append(os.Environ(), secondStage)); err != nil {
		return fmt.Errorf("start %s over: %w", os.Args[0], err)
	}
	return nil
}

// exitOnTerm lets SIGTERM end the machine, which the kernel does not do to a first
// process by itself. Other signals that end programs are taken and dropped; were
// they ignored, every daemon would be born ignoring them too.
func exitOnTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	go func() {
		for s := range c {
			if s == unix.SIGTERM {
				os.Exit(0)
			}
		}
	}()
}

func setUp(spec Spec) error {
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := cutOff(); err != nil {
		return err
	}
	if spec.Kind == Top {
		return setUpTop(spec)
	}
	return setUpNode(spec)
}

func setUpTop(spec Spec) error {
	if err := closeRoot(spec, []string{"/proc", "/sys", "/dev"}); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := setUpSwitch(spec.Addresses); err != nil {
		return err
	}
	return setUpRouting(spec.Routes)
}

// setUpNode makes the node's view of the file system. The order matters: the last
// step lets mounts travel between the node and its containers, and must not let
// the earlier ones travel anywhere.
func setUpNode(spec Spec) error {
	dev, err := hold(spec.DevDir)
	if err != nil {
		return err
	}
	const hardened = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	steps := []func() error{
		func() error { return closeRoot(spec, nil) },
		func() error { return bindAll(spec.Binds) },
		func() error { return mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755") },
		makeRunFolders,
		func() error { return mount("proc", "/proc", "proc", hardened, "") },
		maskKernelValues,
		func() error { return mount("sysfs", "/sys", "sysfs", hardened, "") },
		func() error { return mountCgroups(spec.Cgroups) },
		func() error { return mountDev(dev) },
		func() error { return setUpLink("eth0", spec.Addresses) },
		func() error { return setUpRouting(spec.Routes) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

func bindAll(binds []Bind) error {
	for _, b := range binds {
		if err := bind(b.From, b.To); err != nil {
			return err
		}
	}
	return nil
}

// makeRunFolders makes what programs expect to find at boot.
func makeRunFolders() error {
	for _, d := range []string{"lock", "netns", "containerd"} {
		if err := os.MkdirAll(filepath.Join("/run", d), 0o755); err != nil {
			return fmt.Errorf("fill /run: %w", err)
		}
	}
	return nil
}
