// Command schedule measures what SnapshotSchedules cost: how long it takes from a
// slot to the last VolumeSnapshot of it, how many requests the manager sends for
// each, whether any claim is copied twice, and how much memory the manager holds
// and how much it writes where nothing is due. The API server, the manager, the
// snapshot-controller, csi-snapshotter and Holdfast's driver are the real ones, in
// processes of their own; EC2 is simulated. It prints figures for a reader to
// judge and fails only where it cannot measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-dev/holdfast/test/bench"
)

// options say what is measured.
type options struct {
	claims    int           // copied in the slot; 0: leave it out
	schedules int           // of the slot and of the cluster at rest
	lead      time.Duration // before the slot, for the manager to know all schedules
	throttle  bool
	qps       int           // of the snapshot-controller, requests a second
	patience  time.Duration // until all copies of the slot are ready
	resting   int           // claims of the cluster at rest; 0: leave it out
	copies    int           // of each of these claims
	quiet     time.Duration // how long the cluster at rest is watched
	logs      string        // folder
	processor int
	progress  io.Writer // how far it is; nil: nobody
}

func readFlags() options {
	var o options
	flag.IntVar(&o.claims, "claims", 1000, "how many claims a slot copies; 0: leave the slot out")
	flag.IntVar(&o.schedules, "schedules", 200, "how many schedules the claims are spread over")
	flag.DurationVar(&o.lead, "lead", time.Minute, "how long before the slot the schedules are there at least")
	flag.BoolVar(&o.throttle, "throttle", true, "EC2 refuses what is too fast, as it does: 5 CreateSnapshot a second")
	flag.IntVar(&o.qps, "controller-qps", 100, "what the snapshot-controller may ask of the API server a second; its own default is 5")
	flag.DurationVar(&o.patience, "patience", 20*time.Minute, "how long all copies of the slot may take to become ready")
	flag.IntVar(&o.resting, "resting-claims", 5000, "how many claims the cluster at rest has; 0: leave it out")
	flag.IntVar(&o.copies, "copies", 4, "how many copies each of these claims has")
	flag.DurationVar(&o.quiet, "quiet", 2*time.Minute, "how long the cluster at rest is watched")
	flag.StringVar(&o.logs, "logs", "", "folder that takes what the processes log; empty: nobody")
	flag.IntVar(&o.processor, "gomaxprocs", 0, "processors that the manager may use; 0: all")
	flag.Parse()
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // else controller-runtime prints a stack to say that nobody did
	o := readFlags()
	o.progress = os.Stderr
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	if o.schedules < 1 {
		return fmt.Errorf("--schedules is %d: want at least 1", o.schedules)
	}
	var figures []bench.Figure
	for _, part := range []struct {
		claims  int
		measure func(context.Context, *place, options, io.Writer) ([]bench.Figure, error)
	}{{o.claims, measureSlot}, {o.resting, measureRest}} {
		if part.claims == 0 {
			continue
		}
		more, err := onServer(ctx, o, func(p *place) ([]bench.Figure, error) { return part.measure(ctx, p, o, out) })
		if err != nil {
			return err
		}
		figures = append(figures, more...)
	}
	bench.Targets(out, figures)
	return nil
}

// onServer measures on a server of its own.
func onServer(ctx context.Context, o options, measure func(*place) ([]bench.Figure, error)) (figures []bench.Figure, err error) {
	s, err := bench.Start(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{Server: s, logs: o.logs}
	if o.progress != nil {
		p.progress = bench.NewProgress(o.progress)
	}
	defer func() { err = errors.Join(err, p.close(), s.Stop()) }()
	return measure(p)
}
