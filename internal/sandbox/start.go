package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// ErrRunning says that a sandbox of that name runs already.
var ErrRunning = errors.New("a sandbox of that name runs already")

// Start brings a sandbox up and returns when all nodes are Ready. Unless Detach is
// set, it ends with the context. If the start fails, nothing is left of it but its
// logs.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	began := time.Now()
	o, nodes, err := o.complete()
	if err != nil {
		return nil, err
	}
	if err := preflight(); err != nil {
		return nil, err
	}
	layout, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	s := &Sandbox{out: o.Out, began: began, rec: record{
		Name: o.Name, Dir: o.Dir, Created: began, Nodes: nodes,
		Binaries: o.Binaries, ControllerPolicy: o.ControllerPolicy, Cgroups: layout,
	}}
	release, err := s.claim(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.start(ctx, o); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
		defer cancel()
		what := keepLogs
		if s.ended == nil || ctx.Err() != nil {
			what = removeAll // no process has logged anything, or nobody wants to know
		}
		return nil, errors.Join(err, takeDown(clean, o.Name, o.Dir, what))
	}
	if !o.Detach {
		s.keep = context.AfterFunc(ctx, func() {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
			defer cancel()
			if err := takeDown(clean, s.rec.Name, s.rec.Dir, removeAll); err != nil {
				fmt.Fprintf(s.out, "take sandbox %s down: %v\n", s.rec.Name, err)
			}
		})
	}
	return s, nil
}

// claim takes the folder for this start, removes what an earlier sandbox has left
// there, and writes the record that makes the folder ours.
func (s *Sandbox) claim(ctx context.Context) (release func(), err error) {
	dir := s.rec.Dir
	if err := isOurs(dir); err != nil {
		return nil, err
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	err = s.rec.refuseRunning()
	if err == nil {
		err = takeDown(ctx, s.rec.Name, dir, removeAll)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	unlock() // the folder it held is gone
	if unlock, err = lockFolder(dir); err != nil {
		return nil, err
	}
	if err := s.rec.save(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// refuseRunning is an error if a sandbox of that name runs, in whatever folder.
func (r record) refuseRunning() error {
	pids, err := r.Cgroups.Processes(cgroupOf(r.Name))
	if err != nil || len(pids) == 0 {
		return err
	}
	home, err := homeOf(r.Cgroups, r.Name)
	if err != nil {
		return err
	}
	if home == "" {
		home = r.Dir
	}
	return fmt.Errorf("%w: %s, with %d processes; end it with `sandbox down %s`", ErrRunning, r.Name, len(pids), Flags(r.Name, home))
}

// lockFolder makes the folder and locks it, until the process ends at the latest.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the sandbox's folder: %w; choose another one", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another process is starting a sandbox in %s (%w): wait for it, or choose another name", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// start does all steps. What it has made is found again by takeDown.
func (s *Sandbox) start(ctx context.Context, o Options) error {
	if o.Binaries == "" {
		dir, err := toolchain.Build(ctx, toolchain.Options{Out: o.Out})
		if err != nil {
			return err
		}
		s.rec.Binaries = dir
	}
	if err := s.prepare(ctx, o); err != nil {
		return err
	}
	listeners, err := s.listen()
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	if err := s.rec.writeConfig(); err != nil {
		return err
	}
	if err := s.rec.save(); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	s.progress("configuration written")
	if err := s.startTop(ctx, o, listeners); err != nil {
		return err
	}
	return s.startCluster(ctx)
}

// prepare makes folders, certificates, our own programs and the pause image.
func (s *Sandbox) prepare(ctx context.Context, o Options) error {
	p := s.paths()
	folders := []string{p.logs(), p.in("run"), p.in("conf"), p.in("ec2"), p.in("etcd"), p.in("bin"), p.in("images")}
	for _, n := range s.rec.Nodes {
		folders = append(folders, p.node(n.Name, "cni"), p.node(n.Name, "dev"))
	}
	for _, f := range folders {
		if err := os.MkdirAll(f, 0o700); err != nil {
			return fmt.Errorf("make the sandbox's folder: %w", err)
		}
	}
	if err := s.rec.writePKI(s.began); err != nil {
		return err
	}
	if o.ControllerPolicy != "" {
		if err := copyFile(o.ControllerPolicy, p.conf("controller-policy.json"), 0o600); err != nil {
			return err
		}
	}
	if err := s.bringOwn(ctx, o); err != nil {
		return err
	}
	return packImage(p.own("pause"), pauseImage, p.in("images", "pause.tar"))
}

// bringOwn puts this repository's programs into the sandbox's folder, so that it
// runs the same ones to its end, whatever is built meanwhile.
func (s *Sandbox) bringOwn(ctx context.Context, o Options) error {
	p := s.paths()
	if o.Own == "" {
		s.progress("building sandbox and ec2sim")
		return toolchain.Own(ctx, toolchain.Options{}, p.in("bin"), "./cmd/sandbox", "./cmd/ec2sim", "./internal/sandbox/pause")
	}
	for _, name := range []string{"sandbox", "ec2sim", "pause"} {
		if err := copyFile(filepath.Join(o.Own, name), p.own(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy a file into the sandbox: %w", err)
	}
	if err := os.WriteFile(to, raw, mode); err != nil {
		return fmt.Errorf("copy a file into the sandbox: %w", err)
	}
	return nil
}

// listen opens the two ports that the sandbox has on the machine's loopback
// address. Top inherits them, and hands them to who answers there.
func (s *Sandbox) listen() ([]*os.File, error) {
	var files []*os.File
	for _, port := range []*int{&s.rec.APIPort, &s.rec.EC2Port} {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return files, fmt.Errorf("open a port on 127.0.0.1: %w", err)
		}
		*port = l.Addr().(*net.TCPAddr).Port
		f, err := l.File()
		_ = l.Close()
		if err != nil {
			return files, fmt.Errorf("hand over a port on 127.0.0.1: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func (s *Sandbox) startTop(ctx context.Context, o Options, listeners []*os.File) error {
	p := s.paths()
	spec := machine.Spec{
		Kind: machine.Top, Name: topName, Socket: p.socket(topName), DieWithParent: !o.Detach,
		State: s.rec.Dir, Keep: []string{s.rec.Binaries}, Listeners: []string{apiListener, ec2Listener},
		Addresses: []string{topIP + "/24", imdsIP + "/32"}, Cgroups: s.rec.Cgroups,
	}
	for _, n := range s.rec.Nodes {
		spec.Routes = append(spec.Routes, machine.Route{To: n.PodNet, Via: n.IP.String()})
	}
	if err := spec.Write(p.spec(topName)); err != nil {
		return err
	}
	ended, err := machine.StartTop(ctx, machine.TopOptions{
		Program: p.own("sandbox"), Spec: p.spec(topName), Log: p.log(topName),
		Group: filepath.Join(cgroupOf(s.rec.Name), topName), Cgroups: s.rec.Cgroups,
		Listeners: listeners, Outlive: o.Detach,
	})
	if err != nil {
		return err
	}
	s.ended = ended
	return s.await(ctx, "the sandbox's first process", machineLimit, nil, func(ctx context.Context) error {
		select {
		case <-ended:
			return stopWaiting{fmt.Errorf("the sandbox's first process has ended; %s", lastLines(p.log(topName)))}
		default:
		}
		_, err := s.top().PID(ctx)
		return err
	})
}

// startCluster starts everything in top and all nodes, side by side.
func (s *Sandbox) startCluster(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	apiReady := make(chan struct{})
	g.Go(func() error { return s.startControlPlane(ctx, apiReady) })
	g.Go(func() error { return s.startEC2(ctx) })
	for _, n := range s.rec.Nodes {
		g.Go(func() error {
			if err := s.bootNode(ctx, n); err != nil {
				return err
			}
			select {
			case <-apiReady:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return s.joinNode(ctx, n)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.progress("sandbox %s is up: %d nodes are Ready", s.rec.Name, len(s.rec.Nodes))
	return nil
}

// startControlPlane closes apiReady once the API server answers.
func (s *Sandbox) startControlPlane(ctx context.Context, apiReady chan<- struct{}) error {
	for _, c := range []string{Etcd, APIServer, Forwarder} {
		if err := s.launch(ctx, c); err != nil {
			return err
		}
	}
	for _, c := range []string{Etcd, APIServer} {
		if err := s.awaitComponent(ctx, c); err != nil {
			return err
		}
	}
	s.progress("API server is ready")
	close(apiReady)
	// The controller manager gives up when there is no API server.
	for _, c := range []string{ControllerManager, Scheduler} {
		if err := s.launch(ctx, c); err != nil {
			return err
		}
	}
	return s.startSnapshots(ctx)
}

func (s *Sandbox) startEC2(ctx context.Context) error {
	if err := s.StartComponent(ctx, EC2); err != nil {
		return err
	}
	s.progress("EC2 answers at %s", s.EC2Endpoint())
	return nil
}
