package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// options are the flags.
type options struct {
	half   string
	focus  string
	procs  int
	update bool
}

func main() {
	o := options{}
	flag.StringVar(&o.half, "half", "all", "part of the suite: all, or quick (without what Kubernetes calls slow or serial)")
	flag.StringVar(&o.focus, "focus", "", "run only the specs whose name matches, and hold nothing to specs.txt")
	flag.IntVar(&o.procs, "procs", 8, "how many specs run side by side")
	flag.BoolVar(&o.update, "update", false, "write specs.txt from the specs that ran")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := run(ctx, o, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	fmt.Println(v.sum())
	if !v.ok() {
		os.Exit(1)
	}
}

// run does all that the flags ask for.
func run(ctx context.Context, o options, out io.Writer) (verdict, error) {
	root, err := testenv.Root()
	if err != nil {
		return verdict{}, err
	}
	dir := filepath.Join(root, "test", "conformance")
	p, err := readPlan(dir, o.half, o.focus)
	if err != nil {
		return verdict{}, err
	}
	name := os.Getenv(testenv.SandboxVariable)
	if name == "" {
		return verdict{}, fmt.Errorf("%s is not set: `make conformance` brings a sandbox up, runs the suite in it and takes it down", testenv.SandboxVariable)
	}
	cluster, err := testenv.Open(name)
	if err != nil {
		return verdict{}, err
	}
	s := &suite{cluster: cluster, results: filepath.Join(root, "out", "conformance"), procs: o.procs, out: out}
	if err := s.prepare(ctx); err != nil {
		return verdict{}, err
	}
	defined, err := s.defined(ctx)
	if err != nil {
		return verdict{}, err
	}
	names := p.selection(defined)
	fmt.Fprintf(out, "%d specs run now, %d side by side\n", len(names), o.procs)
	before, err := inEC2(ctx, cluster.EC2Endpoint())
	if err != nil {
		return verdict{}, err
	}
	r, err := s.run(ctx, names)
	if err != nil {
		return verdict{}, err
	}
	v := judge(p, r)
	left, err := leftInEC2(ctx, cluster.EC2Endpoint(), before, deletionTime)
	if err != nil {
		return verdict{}, err
	}
	v.problems = append(v.problems, left...)
	tell(out, v, r, s.results)
	if o.update {
		return v, writeList(filepath.Join(dir, "specs.txt"), p, v)
	}
	return v, nil
}

// tell prints what is wrong, and where to read on.
func tell(out io.Writer, v verdict, r report, results string) {
	for _, s := range r.specs {
		if s.outcome == failed {
			fmt.Fprintf(out, "failed after %.0fs: %s\n    %s\n", s.took.Seconds(), s.name, strings.ReplaceAll(strings.TrimSpace(s.message), "\n", "\n    "))
		}
	}
	for _, p := range v.problems {
		fmt.Fprintln(out, "problem:", p)
	}
	fmt.Fprintf(out, "output and reports (JSON, JUnit) of the suite: %s\n", results)
}
