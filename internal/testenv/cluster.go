package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
)

// SandboxVariable names the environment variable with the name of a running
// sandbox that Holdfast is installed in. Where it is set, tests share that
// sandbox; where not, they start one of their own.
const SandboxVariable = "HOLDFAST_SANDBOX"

// Namespace is where Holdfast is installed.
const Namespace = "holdfast-system"

// Options say which cluster Start brings up.
type Options struct {
	// Name of the sandbox; empty: "default".
	Name string
	// Detach lets the sandbox outlive this process.
	Detach bool
	// Out receives progress; nil: discarded.
	Out io.Writer
}

// Cluster is a sandbox with Holdfast in it.
type Cluster struct {
	*sandbox.Sandbox
	// Client reads and writes core types, VolumeSnapshots and groups of them, without a cache.
	Client client.Client
	// Root is the folder of the repository.
	Root string
}

// Start brings up a sandbox and installs Holdfast from config/overlays/sandbox.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Start(ctx, sandbox.Options{
		Name:             o.Name,
		Detach:           o.Detach,
		Out:              o.Out,
		ControllerPolicy: filepath.Join(root, "config", "iam", "policy.json"),
	})
	if err != nil {
		return nil, err
	}
	c, err := connect(box, root)
	if err == nil {
		err = c.Install(ctx, o.Out)
	}
	if err != nil {
		return nil, errors.Join(err, box.Down(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Open connects to a running sandbox that Holdfast is installed in.
func Open(name string) (*Cluster, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(name)
	if err != nil {
		return nil, err
	}
	return connect(box, root)
}

func connect(box *sandbox.Sandbox, root string) (*Cluster, error) {
	config, err := box.RESTConfig()
	if err != nil {
		return nil, err
	}
	ctrllog.SetLogger(logr.Discard()) // else controller-runtime prints a stack to say that nobody did
	config.QPS = -1                   // no limit: a test polls many objects, and a limiter's error would hide what was missing
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), snapshotv1.AddToScheme(scheme), groupsnapshotv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client of sandbox: %w", err)
	}
	return &Cluster{Sandbox: box, Client: c, Root: root}, nil
}

// Install loads Holdfast's images and applies config/overlays/sandbox, and
// waits until every replica of controller, manager and node is ready.
func (c *Cluster) Install(ctx context.Context, out io.Writer) error {
	tars, err := c.buildImages(ctx, out)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.LoadImages(ctx, tars...); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	_, _ = fmt.Fprintf(out, "%d images loaded (%.1f s)\n", len(tars), time.Since(start).Seconds())

	start = time.Now()
	if _, err := c.Kubectl(ctx, "apply", "-k", filepath.Join(c.Root, "config", "overlays", "sandbox")); err != nil {
		return fmt.Errorf("install Holdfast: %w", err)
	}
	if err := c.Rollout(ctx, 2*time.Minute); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Holdfast installed and ready (%.1f s)\n", time.Since(start).Seconds())
	return nil
}

// Rollout waits until every workload of Holdfast's namespace is ready.
func (c *Cluster) Rollout(ctx context.Context, timeout time.Duration) error {
	for _, kind := range []string{"deployment", "daemonset"} {
		out, err := c.Kubectl(ctx, "-n", Namespace, "get", kind, "-o", "name")
		if err != nil {
			return err
		}
		for _, name := range fields(out) {
			if _, err := c.Kubectl(ctx, "-n", Namespace, "rollout", "status", name, "--timeout", timeout.String()); err != nil {
				pods, _ := c.Kubectl(ctx, "-n", Namespace, "get", "pods", "-o", "wide")
				return fmt.Errorf("%s is not ready: %w\n%s", name, err, pods)
			}
		}
	}
	return nil
}

// images are what Holdfast's Pods and the tests' Pods run. The sandbox has a
// pause image of its own, and runs the snapshot-controller as a process.
const images = "driver,driver-node,manager,csi-provisioner,csi-attacher,csi-resizer,csi-snapshotter,busybox"

// buildImages writes the image tars that are not up to date and returns their paths.
func (c *Cluster) buildImages(ctx context.Context, out io.Writer) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./cmd/images", "build",
		"--out", filepath.Join("out", "images"), "--binaries", c.Binaries(), "--only", images)
	cmd.Dir, cmd.Stderr = c.Root, out
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	paths, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	tars := fields(paths)
	for i, tar := range tars {
		if !filepath.IsAbs(tar) {
			tars[i] = filepath.Join(c.Root, tar)
		}
	}
	return tars, nil
}

// Root finds the folder of the repository above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "config", "default", "kustomization.yaml")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside a checkout of Holdfast: no config/default above it", dir)
		}
	}
}
