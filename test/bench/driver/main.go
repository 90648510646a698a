// Command driver measures what a CSI driver for Amazon EBS adds to EC2's own
// time, and what it asks of EC2: volumes are created, attached, grown, copied,
// detached and deleted by many workers at once, against a simulated EC2 with
// the times of the real one. Any driver can be measured, through its socket:
//
//	go run ./test/bench/driver --ec2-listen 127.0.0.1:4566 --csi-endpoint unix:///tmp/other/csi.sock --pid 4711
//
// after the other driver was started with AWS_ENDPOINT_URL_EC2 (or whatever it
// reads) naming that address. It prints figures for a reader to judge and
// fails only where it cannot measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// options say what is measured.
type options struct {
	csiEndpoint string
	pid         int
	ec2Listen   string
	workers     int
	volumes     int
	throttled   int // volumes of the run with EC2's token buckets
	instances   int
	seed        uint64
	limit       time.Duration // of a phase
	driverArgs  []string
	log         string // of the driver
	node        bool
	delays      ec2sim.Delays
}

func readFlags() options {
	o := options{delays: ec2Delays()}
	args := ""
	flag.StringVar(&o.csiEndpoint, "csi-endpoint", "", "controller socket of a running driver, unix://…; empty: build and start Holdfast's")
	flag.IntVar(&o.pid, "pid", 0, "process of the driver behind --csi-endpoint, whose memory is measured")
	flag.StringVar(&o.ec2Listen, "ec2-listen", "127.0.0.1:0", "address on which the simulated EC2 is served")
	flag.IntVar(&o.workers, "workers", 100, "how many requests are under way at once")
	flag.IntVar(&o.volumes, "volumes", 1000, "how many volumes live without EC2's token buckets; 0: leave that run out")
	flag.IntVar(&o.throttled, "throttled-volumes", 200, "how many volumes live with EC2's default token buckets; 0: leave that run out")
	flag.IntVar(&o.instances, "instances", 40, "over how many instances the volumes are spread")
	flag.Uint64Var(&o.seed, "seed", 1, "chooses EC2's times")
	flag.DurationVar(&o.limit, "phase-limit", 10*time.Minute, "how long a phase may take")
	flag.StringVar(&args, "driver-args", "", "further arguments for Holdfast's controller, separated by spaces")
	flag.StringVar(&o.log, "log", os.DevNull, "file that takes what Holdfast's controller logs")
	flag.BoolVar(&o.node, "node", true, "measure the memory of Holdfast's node process too")
	flag.Parse()
	o.driverArgs = strings.Fields(args)
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, readFlags(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := newRegion(o)
	if err != nil {
		return err
	}
	defer r.stop()
	fmt.Fprintf(out, "EC2 is simulated at %s: %d instances; medians: create %v, attach %v, detach %v, modify %v; spread %v, seed %d\n", r.url,
		o.instances, time.Duration(o.delays.Create), time.Duration(o.delays.Attach), time.Duration(o.delays.Detach), time.Duration(o.delays.Modify), o.delays.Spread, o.seed)
	t, err := newTarget(ctx, o, r.url, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := measure(ctx, o, r, t, out); err != nil {
		return err
	}
	for _, u := range r.Unmodelled() {
		fmt.Fprintf(out, "asked for what the simulator does not model: %+v\n", u)
	}
	return nil
}

// measure does both runs.
func measure(ctx context.Context, o options, r *region, t *target, out io.Writer) error {
	live := func(name string, n int) ([]result, error) {
		before := readProcessorTime(t.pid())
		header(out)
		f := newFleet(t.Client, r, name, n)
		all, err := f.runPhases(ctx, o.workers, o.limit, t.gauge, func(res result) { line(out, res) })
		after := readProcessorTime(t.pid())
		legend(out)
		fmt.Fprintf(out, "%d volumes' lives took %s; %s\n", n, span(after.at.Sub(before.at)), after.since(before))
		return all, err
	}
	if o.volumes > 0 {
		fmt.Fprintf(out, "\n# %d volumes, %d workers, EC2's token buckets off\n", o.volumes, o.workers)
		all, err := live("free", o.volumes)
		if err != nil {
			return err
		}
		shown := figures(all)
		if o.node && t.binary != "" {
			node, err := measureNode(ctx, t.binary, filepath.Dir(t.binary))
			if err != nil {
				return fmt.Errorf("node process: %w", err)
			}
			shown = append(shown, node)
		}
		targets(out, shown)
		if t.note != "" {
			fmt.Fprintln(out, t.note)
		}
	}
	if o.throttled > 0 {
		fmt.Fprintf(out, "\n# %d volumes, %d workers, EC2's default token buckets\n", o.throttled, o.workers)
		r.SetThrottle(true)
		all, err := live("throttled", o.throttled)
		if err != nil {
			return err
		}
		throttleLines(out, all)
	}
	return nil
}
