package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
	"github.com/holdfast-dev/holdfast/internal/sandbox/pki"
)

// bootNode powers a node on and starts its runtime and kubelet.
func (s *Sandbox) bootNode(ctx context.Context, n Node) error {
	if err := s.powerOn(ctx, n); err != nil {
		return err
	}
	return s.loadInto(ctx, n, s.paths().in("images", "pause.tar"))
}

// powerOn makes the node's machine, and starts containerd and kubelet in it.
func (s *Sandbox) powerOn(ctx context.Context, n Node) error {
	p := s.paths()
	spec := s.nodeSpec(n)
	if err := spec.Write(p.spec(n.Name)); err != nil {
		return err
	}
	req, err := machine.SpawnRequest(n.Name, machine.Spawn{
		Program: p.own("sandbox"), Spec: p.spec(n.Name), Log: p.log(n.Name), DevDir: spec.DevDir,
		Link: fmt.Sprintf("node%d", n.Number), Group: s.rec.nodeGroup(n.Name), Cgroups: s.rec.Cgroups,
	})
	if err != nil {
		return err
	}
	if _, err := s.top().Do(ctx, req); err != nil {
		return err
	}
	err = s.await(ctx, "node "+n.Name, machineLimit, []string{n.Name}, func(ctx context.Context) error {
		_, err := s.init(n.Name).PID(ctx)
		return err
	})
	if err != nil {
		return err
	}
	// A kubelet that finds no container runtime gives up.
	if err := s.StartComponent(ctx, Containerd+"/"+n.Name); err != nil {
		return err
	}
	return s.launch(ctx, Kubelet+"/"+n.Name)
}

// nodeSpec is what the node's first process is told. Nodes reach each other's Pods
// directly, and everything else through top.
func (s *Sandbox) nodeSpec(n Node) machine.Spec {
	p := s.paths()
	spec := machine.Spec{
		Kind: machine.Node, Name: n.Name, Socket: p.socket(n.Name), State: s.rec.Dir, Keep: []string{s.rec.Binaries},
		Addresses: []string{n.IP.String() + "/24"},
		Routes:    []machine.Route{{To: "0.0.0.0/0", Via: topIP}},
		Cgroups:   s.rec.Cgroups,
		Binds: []machine.Bind{
			{From: p.node(n.Name, "varlib"), To: "/var/lib"},
			{From: p.node(n.Name, "varlog"), To: "/var/log"},
		},
		DevDir: p.node(n.Name, "dev"),
	}
	for _, m := range s.rec.Nodes {
		if m.Name != n.Name {
			spec.Routes = append(spec.Routes, machine.Route{To: m.PodNet, Via: m.IP.String()})
		}
	}
	return spec
}

// nodeGroup is the cgroup of a node.
func (r record) nodeGroup(node string) string { return filepath.Join(cgroupOf(r.Name), node) }

// joinNode waits until the node is Ready and its service rules are in place.
func (s *Sandbox) joinNode(ctx context.Context, n Node) error {
	err := s.awaitNode(ctx, n, "registration of node "+n.Name, func(bool) error { return nil })
	if err != nil {
		return err
	}
	if err := s.launch(ctx, KubeProxy+"/"+n.Name); err != nil {
		return err
	}
	err = s.awaitNode(ctx, n, "node "+n.Name, func(ready bool) error {
		if !ready {
			return errors.New("it is not Ready")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.progress("%s (%s, %s) is Ready", n.Name, n.Zone, n.IP)
	return s.awaitComponent(ctx, KubeProxy+"/"+n.Name)
}

// awaitNode waits until the API server has the node, in a state that is good.
func (s *Sandbox) awaitNode(ctx context.Context, n Node, what string, good func(ready bool) error) error {
	watch := []string{Kubelet + "/" + n.Name, Containerd + "/" + n.Name}
	return s.await(ctx, what, componentLimit, watch, func(ctx context.Context) error {
		ready, err := s.nodeReady(ctx, n.Name)
		if err != nil {
			return err
		}
		return good(ready)
	})
}

// nodeReady says whether the API server has the node as Ready. An error says that
// it does not have it at all.
func (s *Sandbox) nodeReady(ctx context.Context, name string) (bool, error) {
	raw, err := s.get(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return false, err
	}
	var node corev1.Node
	if err := json.Unmarshal(raw, &node); err != nil {
		return false, fmt.Errorf("read about node %s: %w", name, err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, nil
		}
	}
	return false, nil
}

// probe asks an HTTP address from inside a machine whether it is well.
func (s *Sandbox) probe(ctx context.Context, machine, url string) error {
	resp, err := s.init(machine).Do(ctx, initd.Request{Op: "probe", URL: url})
	if err == nil && resp.Status != 200 {
		err = fmt.Errorf("get %s: status %d: %.200s", url, resp.Status, resp.Body)
	}
	return err
}

// PowerOff takes a node away as a loss of power would: every process on it ends at
// once, without a word to anybody. Its disk and its attached volumes stay. A node
// that is off stays off.
func (s *Sandbox) PowerOff(ctx context.Context, node string) error {
	if _, err := s.node(node); err != nil {
		return err
	}
	if _, err := s.top().Do(ctx, initd.Request{Op: "stop", Name: node}); err != nil {
		return err
	}
	if _, err := s.rec.Cgroups.Kill(ctx, s.rec.nodeGroup(node)); err != nil {
		return err
	}
	// Groups of dead containers would hold the next kubelet up for three
	// seconds each (cAdvisor waits for processes in them); and in cgroup v2 a
	// group that has handed controllers down takes no process of its own again.
	return s.rec.Cgroups.Remove(ctx, s.rec.nodeGroup(node))
}

// PowerOn starts a node that is off and returns when its kubelet answers. When it
// is Ready again is the cluster's to say.
func (s *Sandbox) PowerOn(ctx context.Context, node string) error {
	n, err := s.node(node)
	if err != nil {
		return err
	}
	if err := s.powerOn(ctx, n); err != nil {
		return err
	}
	if err := s.launch(ctx, KubeProxy+"/"+node); err != nil {
		return err
	}
	return s.awaitComponent(ctx, Kubelet+"/"+node)
}

// RenewKubelet gives the kubelet of a node a new certificate, signed by the same
// authority, and starts it again: a kubelet reads a renewed file by itself too, but
// who is connected already would not meet it.
func (s *Sandbox) RenewKubelet(ctx context.Context, node string) error {
	n, err := s.node(node)
	if err != nil {
		return err
	}
	ca, err := pki.OpenAuthority(s.paths().in("pki"), time.Now())
	if err != nil {
		return err
	}
	if err := ca.Issue(servingSubject(n)); err != nil {
		return err
	}
	if err := s.StopComponent(ctx, Kubelet+"/"+node); err != nil {
		return err
	}
	return s.StartComponent(ctx, Kubelet+"/"+node)
}

// LoadImages imports image archives, as `docker save` writes them, into all nodes.
func (s *Sandbox) LoadImages(ctx context.Context, tars ...string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range s.rec.Nodes {
		g.Go(func() error {
			for _, t := range tars {
				if err := s.loadInto(ctx, n, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// loadInto gives the archive to the node as an open file: the node need not see
// its path. The image is unpacked when a container first needs it: most images run
// on one node only, and unpacking takes longer than all the rest.
func (s *Sandbox) loadInto(ctx context.Context, n Node, tar string) error {
	f, err := os.Open(tar)
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	defer f.Close()
	var out bytes.Buffer
	err = s.Exec(ctx, n.Name, Streams{In: f, Out: &out, Err: &out}, "ctr", "-n", "k8s.io", "images", "import", "--local", "--no-unpack", "-")
	if err != nil {
		return fmt.Errorf("load image %s into %s: %w: %s", tar, n.Name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// ExitError says that a command in a node ended with a code other than 0.
type ExitError struct {
	Node   string
	Argv   []string
	Code   int
	Stderr string // its end, if it was captured
}

// Error implements error.
func (e *ExitError) Error() string {
	msg := fmt.Sprintf("%s on %s: exit code %d", strings.Join(e.Argv, " "), e.Node, e.Code)
	if e.Stderr != "" {
		msg += ": " + e.Stderr
	}
	return msg
}

// NodeCommand runs a command in the node's namespaces and returns what it prints.
// One that fails gives an *ExitError.
func (s *Sandbox) NodeCommand(ctx context.Context, node string, argv ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := s.Exec(ctx, node, Streams{Out: &stdout, Err: &stderr}, argv...)
	var failed *ExitError
	if errors.As(err, &failed) {
		failed.Stderr = strings.TrimSpace(stderr.String())
	}
	return stdout.Bytes(), err
}

// Streams are the standard streams of a command; nil ones are empty or dropped.
// Files are handed over as they are, others are copied.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exec runs a command in the node's namespaces with these streams.
func (s *Sandbox) Exec(ctx context.Context, node string, streams Streams, argv ...string) error {
	if _, err := s.node(node); err != nil {
		return err
	}
	if len(argv) == 0 {
		return fmt.Errorf("no command given for %s", node)
	}
	pipes, err := openPipes(streams)
	if err != nil {
		return fmt.Errorf("run %s on %s: %w", argv[0], node, err)
	}
	req := initd.Request{Name: argv[0], Argv: argv, Env: daemonEnv(s.rec.Binaries)}
	exit, err := s.init(node).Run(ctx, req, pipes.files[0], pipes.files[1], pipes.files[2])
	if err := errors.Join(err, pipes.finish(ctx)); err != nil {
		return fmt.Errorf("on %s: %w", node, err)
	}
	if exit.Code != 0 {
		return &ExitError{Node: node, Argv: argv, Code: exit.Code}
	}
	return nil
}
