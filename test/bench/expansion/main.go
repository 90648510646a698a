// Command expansion measures what it costs to watch how full claims are: thousands
// of claims on a hundred kubelets. The API server and the manager are the real
// ones, in processes of their own; the kubelets are simulated, each with the
// metrics of one that is busy. It tells how long a round takes, its processor time,
// the manager's memory and its requests, and what is written where nothing is due.
// It prints figures for a reader to judge and fails only where it cannot measure.
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
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// options say what is measured.
type options struct {
	claims, kubelets int
	interval         time.Duration // between two rounds
	rounds           int           // that are measured
	other            int           // series of a kubelet besides those of volumes
	log              string        // file
	progress         io.Writer     // how far it is; nil: nobody
}

func main() {
	var o options
	flag.IntVar(&o.claims, "claims", 5000, "how many claims are under the policy")
	flag.IntVar(&o.kubelets, "kubelets", 100, "how many nodes have them")
	flag.DurationVar(&o.interval, "interval", 10*time.Second, "time between two rounds: the manager's --usage-interval")
	flag.IntVar(&o.rounds, "rounds", 12, "how many rounds are measured")
	flag.IntVar(&o.other, "other-series", 4000, "how many series each kubelet tells besides those of volumes")
	flag.StringVar(&o.log, "log", os.DevNull, "file that takes what the manager logs")
	flag.Parse()
	o.progress = os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // else controller-runtime prints a stack to say that nobody did
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.claims < 1 || o.kubelets < 1 || o.rounds < 1 {
		return fmt.Errorf("--claims is %d, --kubelets %d, --rounds %d: want at least 1 of each", o.claims, o.kubelets, o.rounds)
	}
	var p *bench.Progress
	if o.progress != nil {
		p = bench.NewProgress(o.progress)
	}
	s, err := bench.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fleet := startFleet(o)
	defer fleet.close()
	fmt.Fprintf(out, "\n# %d claims on %d kubelets, a round each %v; %s\n", o.claims, o.kubelets, o.interval, s.Version)
	if err := populate(ctx, s, p, fleet, o); err != nil {
		return err
	}
	authority := filepath.Join(s.Dir, "kubelets.crt")
	if err := os.WriteFile(authority, fleet.authority(), 0o600); err != nil {
		return err
	}
	log, err := os.Create(o.log)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	defer log.Close()
	p.Say("the manager is built and started")
	m, err := s.StartManager(ctx, bench.ManagerOptions{Log: log, Args: []string{"--usage-interval=" + o.interval.String(), "--kubelet-certificate-authority=" + authority}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	p.Say("%d rounds are measured", o.rounds)
	figures, err := measure(ctx, s, m, fleet, o, out)
	if err != nil {
		return err
	}
	bench.Targets(out, figures)
	return nil
}

// state is what is known at one time.
type state struct {
	manager bench.Metrics
	server  map[string]float64
	asked   int
}

func look(ctx context.Context, s *bench.Server, m *bench.Manager, f *fleet) (state, error) {
	metrics, err := m.Scrape(ctx)
	if err != nil {
		return state{}, err
	}
	requests, err := s.Requests(ctx)
	return state{metrics, requests, f.asked()}, err
}

// measure watches rounds in which nothing is due.
func measure(ctx context.Context, s *bench.Server, m *bench.Manager, f *fleet, o options, out io.Writer) ([]bench.Figure, error) {
	more := func(from, rounds int) error {
		limit, want := bench.Within+time.Duration(rounds)*2*o.interval, from+rounds*o.kubelets
		return testenv.Eventually(ctx, limit, fmt.Sprintf("%d rounds", rounds), func(context.Context) (string, error) {
			if n := f.asked(); n < want {
				return fmt.Sprintf("%d questions, want %d", n, want), nil
			}
			return "", nil
		})
	}
	const first = 3 // rounds in which the manager learns what there is, and audits
	if err := more(0, first); err != nil {
		return nil, err
	}
	before, err := look(ctx, s, m, f)
	if err != nil {
		return nil, err
	}
	if err := more(before.asked, o.rounds); err != nil {
		return nil, err
	}
	after, err := look(ctx, s, m, f)
	if err != nil {
		return nil, err
	}
	is, err := m.Memory(ctx)
	if err != nil {
		return nil, err
	}
	is.Print(out)
	rounds := float64(after.asked-before.asked) / float64(o.kubelets)
	worked := after.manager.Processor() - before.manager.Processor()
	wall := f.longest(first*o.kubelets, o.kubelets)
	writes := 0.0
	for what, n := range after.server {
		if more := n - before.server[what]; more > 0 && isWrite(what) {
			fmt.Fprintf(out, "written: %s %g\n", what, more)
			writes += more
		}
	}
	requests := after.manager.Requests() - before.manager.Requests()
	fmt.Fprintf(out, "%.1f rounds: %.2f s of processor time in all, audits included; the manager sent %g requests to the API server, watches included; kubelets were asked %d times; from a round's first question to its last answer at most %v\n",
		rounds, worked, requests, after.asked-before.asked, wall)
	return []bench.Figure{
		{Name: fmt.Sprintf("processor time a round, %d claims", o.claims), Is: worked / rounds, AtMost: 2, Unit: "s"},
		{Name: "resident memory", Is: bench.MiB(is.Resident), AtMost: 120, Unit: "MiB"},
		{Name: "the same at its peak", Is: bench.MiB(is.Peak), AtMost: 120, Unit: "MiB"},
		{Name: "questions that kubelets did not answer", Is: after.manager["holdfast_usage_source_errors_total{source=\"metrics\"}"]},
		{Name: fmt.Sprintf("writes in %.0f rounds at rest", rounds), Is: writes},
	}, nil
}
