// Command sandbox measures, for a reader to judge, how long it takes to bring
// a cluster up, to get from a claim and its Pod to a running container, and
// what the driver adds to EC2's own time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// sandboxName is the benchmark's own sandbox.
const sandboxName = "bench"

func main() {
	rounds := flag.Int("rounds", 5, "how many claims with a Pod to measure, one after the other")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int) error {
	fmt.Println("# The driver over its socket, EC2 simulated with its usual delays")
	if err := benchDriver(ctx, rounds); err != nil {
		return err
	}

	fmt.Println("\n# The cluster, from built binaries and images")
	start := time.Now()
	cluster, err := testenv.Start(ctx, testenv.Options{Name: sandboxName, Out: os.Stdout})
	if err != nil {
		return err
	}
	row("sandbox up, Holdfast installed and ready", time.Since(start))
	err = benchPods(ctx, cluster, rounds)
	start = time.Now()
	if err := cluster.Down(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	row("sandbox down", time.Since(start))
	return nil
}

func row(what string, took time.Duration) {
	fmt.Printf("%-58s %8.2f s\n", what, took.Seconds())
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
