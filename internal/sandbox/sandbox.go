package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
)

// Sandbox is a cluster that runs on this machine.
type Sandbox struct {
	rec record
	out io.Writer
	// api talks to the API server; it is there once the kubeconfig is.
	api *http.Client
	// ended is closed when top has ended, if this process started it.
	ended <-chan struct{}
	// keep cancels the take-down at the end of the context that Start was given.
	keep func() bool
	// began is when Start was called, for its progress lines.
	began time.Time
}

// Open finds a sandbox that runs, by its name.
func Open(name string) (*Sandbox, error) { return OpenAt(name, "") }

// OpenAt is Open for a sandbox with a folder of its own choice.
func OpenAt(name, dir string) (*Sandbox, error) {
	if name == "" {
		name = DefaultName
	}
	dir, err := stateDir(name, dir)
	if err != nil {
		return nil, err
	}
	r, err := loadRecord(dir)
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("sandbox %s: %w: start one with `sandbox up %s`", name, err, Flags(name, dir))
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	s := &Sandbox{rec: r, out: io.Discard}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.top().PID(ctx); err != nil {
		return nil, fmt.Errorf("sandbox %s does not run any more: %w; remove what is left with `sandbox down %s`", r.Name, err, Flags(r.Name, dir))
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

// connect makes the client for the API server.
func (s *Sandbox) connect() error {
	cfg, err := s.RESTConfig()
	if err != nil {
		return err
	}
	s.api, err = rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("make a client for sandbox %s: %w", s.rec.Name, err)
	}
	return nil
}

func (s *Sandbox) paths() paths { return paths{s.rec.Dir} }

func (s *Sandbox) init(machine string) initd.Client {
	return initd.Client{Socket: s.paths().socket(machine)}
}

func (s *Sandbox) top() initd.Client { return s.init(topName) }

// Name of the sandbox.
func (s *Sandbox) Name() string { return s.rec.Name }

// Dir is the folder with all state.
func (s *Sandbox) Dir() string { return s.rec.Dir }

// Logs is the folder with a log file for each component.
func (s *Sandbox) Logs() string { return s.paths().logs() }

// Log is the log file of a component.
func (s *Sandbox) Log(component string) string { return s.paths().log(component) }

// Binaries is the folder with the programs that the sandbox runs.
func (s *Sandbox) Binaries() string { return s.rec.Binaries }

// Kubeconfig is the path of an administrator's kubeconfig, good on this machine.
func (s *Sandbox) Kubeconfig() string { return s.paths().kubeconfig() }

// RESTConfig is the administrator's configuration for client-go, without a limit
// on the rate of requests.
func (s *Sandbox) RESTConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of sandbox %s: %w", s.rec.Name, err)
	}
	cfg.QPS = -1
	return cfg, nil
}

// EC2Endpoint is the URL of the simulated EC2 on this machine: its API, and its
// control API below /_sim/.
func (s *Sandbox) EC2Endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", s.rec.EC2Port) }

// EC2InsideEndpoint is the same for the nodes and Pods.
func (s *Sandbox) EC2InsideEndpoint() string { return "http://" + ec2Address }

// Nodes lists the nodes. One that is powered off has PID 0.
func (s *Sandbox) Nodes() []Node {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out := make([]Node, len(s.rec.Nodes))
	for i, n := range s.rec.Nodes {
		if pid, err := s.init(n.Name).PID(ctx); err == nil {
			n.PID = pid
		}
		out[i] = n
	}
	return out
}

func (s *Sandbox) node(name string) (Node, error) {
	var names []string
	for _, n := range s.rec.Nodes {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("sandbox %s has no node %q: it has %s", s.rec.Name, name, strings.Join(names, ", "))
}

// Kubectl runs kubectl as the administrator and returns what it prints. The error
// of one that fails has its error output.
func (s *Sandbox) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	all := append([]string{"--kubeconfig", s.Kubeconfig(), "--cache-dir", s.paths().in("kubectl-cache")}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.rec.Binaries, "kubectl"), all...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return stdout.Bytes(), fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), context.Cause(ctx))
		}
		return stdout.Bytes(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// ComponentStatus is how one process of the sandbox is.
type ComponentStatus struct {
	Name    string
	Machine string // "top" or the node
	PID     int    // in the pid namespace of the machine
	// Exit is how it ended; nil while it runs.
	Exit *initd.Exit
	Log  string
}

// Components lists the processes that the sandbox has started, also those that
// have ended. Those of a node that is off are not listed.
func (s *Sandbox) Components(ctx context.Context) ([]ComponentStatus, error) {
	machines := []string{topName}
	for _, n := range s.rec.Nodes {
		machines = append(machines, n.Name)
	}
	var out []ComponentStatus
	for _, m := range machines {
		resp, err := s.init(m).Do(ctx, initd.Request{Op: "list"})
		if err != nil && m == topName {
			return nil, err
		}
		if err != nil {
			continue // off: top's own list says how its first process ended
		}
		for _, p := range resp.Processes {
			out = append(out, ComponentStatus{Name: p.Name, Machine: m, PID: p.PID, Exit: p.Exit, Log: s.Log(p.Name)})
		}
	}
	return out, nil
}

// stopGrace is how long a component may take to stop by itself.
const stopGrace = 5 * time.Second

// StopComponent ends a component at once, as a crash would (SIGKILL). One that has
// ended already is no error.
func (s *Sandbox) StopComponent(ctx context.Context, name string) error {
	return s.stopComponent(ctx, name, 0)
}

// ShutDownComponent ends a component by SIGTERM, and after a while by SIGKILL.
func (s *Sandbox) ShutDownComponent(ctx context.Context, name string) error {
	return s.stopComponent(ctx, name, stopGrace)
}

func (s *Sandbox) stopComponent(ctx context.Context, name string, grace time.Duration) error {
	c, err := s.rec.component(name)
	if err != nil {
		return err
	}
	_, err = s.init(c.machine).Do(ctx, initd.Request{Op: "stop", Name: name, Grace: grace})
	return err
}

// StartComponent starts a component again that was stopped or has ended, and
// returns when it answers. Nothing else restarts components: here, a crash stays one.
func (s *Sandbox) StartComponent(ctx context.Context, name string) error {
	if err := s.launch(ctx, name); err != nil {
		return err
	}
	return s.awaitComponent(ctx, name)
}

// launch starts a component and does not wait for it.
func (s *Sandbox) launch(ctx context.Context, name string) error {
	c, err := s.rec.component(name)
	if err != nil {
		return err
	}
	_, err = s.init(c.machine).Do(ctx, initd.Request{
		Op: "start", Name: c.name, Argv: c.argv, Env: c.env, Log: s.Log(c.name), Listeners: c.listeners,
	})
	return err
}

// Down ends the sandbox and removes everything that is left of it.
func (s *Sandbox) Down(ctx context.Context) error {
	if s.keep != nil {
		s.keep() // it must not hit a later sandbox of the same name
	}
	err := takeDown(ctx, s.rec.Name, s.rec.Dir, removeAll)
	if s.ended == nil || err != nil {
		return err
	}
	select {
	case <-s.ended: // so that no zombie of ours is left either
		return nil
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}
