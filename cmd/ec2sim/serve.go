package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/disk"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

// stopTime is how long running calls may take when the process stops.
const stopTime = 5 * time.Second

type serveOptions struct {
	state, region, account     string
	zones, listen, imds        []string
	listenFDs                  []int
	instances                  string
	pause                      []string
	principals                 []string
	noDisks, throttle, jsonLog bool
}

func serveCommand() *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use:   "serve --state <dir> --listen <address>",
		Short: "Serve the EC2 API, the control API under /_sim/ and the instance metadata service",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.state, "state", "", "folder that keeps state and disks over restarts (required)")
	f.StringArrayVar(&o.listen, "listen", nil, "address for the EC2 API and /_sim/, such as 127.0.0.1:4566; may repeat")
	f.IntSliceVar(&o.listenFDs, "listen-fd", nil, "number of an inherited listening socket for the same; may repeat")
	f.StringArrayVar(&o.imds, "imds", nil, "address for the instance metadata service; may repeat")
	f.StringVar(&o.instances, "instances", "", "JSON file with the instances: [{id, zone, type, sources, devDir}, …]")
	f.StringArrayVar(&o.pause, "pause", nil, "cgroup v2 folder whose processes stand still while a volume that never rests is copied; may repeat")
	f.StringArrayVar(&o.principals, "principal", nil, "KEY=policy.json: hold the access key to an IAM policy; may repeat")
	f.StringVar(&o.region, "region", "us-east-1", "name of the region")
	f.StringSliceVar(&o.zones, "zones", nil, "names of the availability zones (default a, b and c of the region)")
	f.StringVar(&o.account, "account", "000000000000", "number of the account")
	f.BoolVar(&o.noDisks, "no-disks", false, "keep records only: no files, no devices")
	f.BoolVar(&o.throttle, "throttle", false, "refuse calls beyond EC2's token buckets")
	f.BoolVar(&o.jsonLog, "json-log", false, "log JSON instead of key=value")
	return c
}

func (o *serveOptions) run(ctx context.Context) error {
	if o.state == "" || len(o.listen)+len(o.listenFDs) == 0 {
		return errors.New("--state and one of --listen or --listen-fd have to be given")
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	sim, err := ec2sim.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(o.serve(ctx, sim, cfg.Log), sim.Close())
}

func (o *serveOptions) config() (ec2sim.Config, error) {
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	if o.jsonLog {
		handler = slog.NewJSONHandler(os.Stderr, nil)
	}
	cfg := ec2sim.Config{
		Region: o.region, Account: o.account, Zones: o.zones, StateDir: o.state, Throttle: o.throttle,
		Log: logr.FromSlogHandler(handler),
	}
	var err error
	if cfg.Principals, err = readPolicies(o.principals); err != nil {
		return cfg, err
	}
	if !o.noDisks {
		dir, err := filepath.Abs(o.state)
		if err != nil {
			return cfg, err
		}
		files, err := disk.New(dir)
		if err != nil {
			return cfg, err
		}
		if err := files.Pause(o.pause); err != nil {
			return cfg, err
		}
		cfg.Disks = files
	}
	return cfg, nil
}

func readPolicies(args []string) (map[string]*iam.Policy, error) {
	policies := map[string]*iam.Policy{}
	for _, arg := range args {
		key, path, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--principal %q: want KEY=policy.json", arg)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--principal %s: %w", key, err)
		}
		if policies[key], err = iam.Parse(data, ec2sim.KnownConditionKey); err != nil {
			return nil, fmt.Errorf("--principal %s: %s: %w", key, path, err)
		}
	}
	return policies, nil
}

// serve listens first, so that who started the process can tell that it is
// there, and serves until ctx ends.
func (o *serveOptions) serve(ctx context.Context, sim *ec2sim.Sim, log logr.Logger) error {
	if err := addInstances(sim, o.instances); err != nil {
		return err
	}
	api, err := o.apiListeners()
	if err != nil {
		return err
	}
	imds, err := listenAll(o.imds)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { sim.Run(ctx); return nil })
	for _, l := range api {
		serveOn(ctx, g, l, sim)
		log.Info("serving", "what", "ec2", "address", l.Addr().String())
	}
	for _, l := range imds {
		serveOn(ctx, g, l, sim.IMDS())
		log.Info("serving", "what", "imds", "address", l.Addr().String())
	}
	return g.Wait()
}

func (o *serveOptions) apiListeners() ([]net.Listener, error) {
	out, err := listenAll(o.listen)
	if err != nil {
		return nil, err
	}
	for _, fd := range o.listenFDs {
		file := os.NewFile(uintptr(fd), fmt.Sprintf("listen-fd %d", fd))
		if file == nil {
			return nil, fmt.Errorf("--listen-fd %d: no such file descriptor", fd)
		}
		l, err := net.FileListener(file) // a duplicate
		if err != nil {
			return nil, fmt.Errorf("--listen-fd %d: %w", fd, err)
		}
		if err := file.Close(); err != nil {
			return nil, fmt.Errorf("--listen-fd %d: %w", fd, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func listenAll(addresses []string) ([]net.Listener, error) {
	var out []net.Listener
	for _, a := range addresses {
		l, err := net.Listen("tcp", a)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func serveOn(ctx context.Context, g *errgroup.Group, l net.Listener, h http.Handler) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		return srv.Shutdown(stopping)
	})
}

func addInstances(sim *ec2sim.Sim, path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--instances: %w", err)
	}
	var list []ec2sim.Instance
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("--instances: %s: %w", path, err)
	}
	for _, i := range list {
		if terminated(sim, i.ID) { // in a former life of this process
			continue
		}
		if err := sim.AddInstance(i); err != nil {
			return fmt.Errorf("--instances: %s: %w", path, err)
		}
	}
	return nil
}

func terminated(sim *ec2sim.Sim, id string) bool {
	return slices.ContainsFunc(sim.Instances(), func(i ec2sim.Instance) bool { return i.ID == id && i.State == "terminated" })
}
