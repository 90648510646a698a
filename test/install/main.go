// Command install brings a sandbox up on this machine with Holdfast installed
// from config/overlays/sandbox, and leaves it running.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func main() {
	name := flag.String("name", "default", "name of the sandbox")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	cluster, err := testenv.Start(ctx, testenv.Options{Name: *name, Detach: true, Out: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
	fmt.Printf("sandbox %s is up with Holdfast installed (%.1f s)\n\n", *name, time.Since(start).Seconds())
	fmt.Print(cluster.HowToLookAround(*name))
}
