// Command admission measures what Holdfast's webhooks cost: how long the
// creation of a claim takes at a real API server with policies and without
// Holdfast, how long the webhook itself takes under a steady load, how often it
// has to ask the API server, and how much memory the manager needs. The manager
// is the real binary, in a process of its own. It prints figures for a reader to
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-dev/holdfast/test/bench"
)

// options say what is measured.
type options struct {
	claims    int           // that exist
	policies  []int         // how many are there when claims are created
	rounds    int           // of creation
	batch     int           // claims created in a round with each number of policies
	workers   int           // that create claims
	rate      int           // of the steady load, requests a second
	duration  time.Duration // of the steady load
	judges    int           // policies of the steady load
	log       string        // of the manager
	processor int           // GOMAXPROCS of the manager; 0: as it is
}

func readFlags() (options, error) {
	var o options
	counts := ""
	flag.IntVar(&o.claims, "claims", 5000, "how many claims, with their volumes, exist")
	flag.StringVar(&counts, "policies", "1,50,300", "numbers of policies with which claims are created, each beside the server without Holdfast")
	flag.IntVar(&o.rounds, "rounds", 5, "how often all numbers of policies have their turn")
	flag.IntVar(&o.batch, "batch", 200, "how many claims are created in each turn")
	flag.IntVar(&o.workers, "workers", 4, "how many claims are being created at once")
	flag.IntVar(&o.rate, "rate", 200, "steady load on the webhook, requests a second; 0: leave it out")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "how long the steady load lasts")
	flag.IntVar(&o.judges, "load-policies", 50, "policies under the steady load, each of which judges every request")
	flag.StringVar(&o.log, "log", os.DevNull, "file that takes what the manager logs")
	flag.IntVar(&o.processor, "gomaxprocs", 0, "processors that the manager may use; 0: all")
	flag.Parse()
	for text := range strings.SplitSeq(counts, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return o, fmt.Errorf("--policies is %q: want numbers of at least 1, separated by commas", counts)
		}
		o.policies = append(o.policies, n)
	}
	slices.Sort(o.policies)
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // else controller-runtime prints a stack to say that nobody did
	o, err := readFlags()
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// server is a real API server, and the manager that it asks.
type server struct {
	*bench.Server
	manager *bench.Manager
}

// run measures and prints.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	log, err := os.Create(o.log)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	defer log.Close()
	base, err := bench.Start(ctx)
	if err != nil {
		return err
	}
	s := &server{Server: base}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Fprintf(out, "%s; %d claims exist with their volumes\n", s.Version, o.claims)
	if err := s.populate(ctx, o.claims); err != nil {
		return err
	}
	if s.manager, err = s.StartManager(ctx, bench.ManagerOptions{Log: log, Processors: o.processor}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.manager.Stop()) }()
	var figures []bench.Figure
	if o.rate > 0 {
		load, err := s.steadyLoad(ctx, o)
		if err != nil {
			return err
		}
		load.print(out)
		figures = append(figures, load.figures()...)
	}
	before, err := s.manager.Memory(ctx) // creation makes more claims
	if err != nil {
		return err
	}
	figures = append(figures, bench.Figure{Name: fmt.Sprintf("manager's peak resident memory, %d claims", o.claims), Is: bench.MiB(before.Peak), AtMost: 100, Unit: "MiB"})
	turns, err := s.creation(ctx, o)
	if err != nil {
		return err
	}
	printTurns(out, o, turns)
	after, err := s.manager.Memory(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n# Memory of the manager\nwith %d claims, after the steady load: ", o.claims)
	before.Print(out)
	fmt.Fprint(out, "with all that were created besides: ")
	after.Print(out)
	bench.Targets(out, figures)
	return nil
}
