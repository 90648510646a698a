// Command demo plays a volume's life on a sandbox cluster: from the claim that
// waits for its Pod to the volume that is gone from EC2, each step checked and
// printed with its time as it happens.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// sandboxName is the demo's own sandbox, so that it meets nobody's work.
const sandboxName = "demo"

func main() {
	keep := flag.Int("keep", 1, "1: leave the cluster running to look around in; 0: take it down at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, *keep != 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, keep bool) (code int, err error) {
	begin := time.Now()
	cluster, err := testenv.Start(ctx, testenv.Options{Name: sandboxName, Detach: true, Out: os.Stdout})
	if err != nil {
		return 1, err
	}
	fmt.Printf("\ncluster and Holdfast are ready after %.1f s\n", time.Since(begin).Seconds())

	d := &demo{Cluster: cluster, ec2: ec2.NewFromConfig(ec2sim.ClientConfig(cluster.EC2Endpoint()))}
	tell := &teller{out: os.Stdout, begin: begin, now: time.Now}
	if err := d.prepare(ctx); err != nil {
		return 1, err
	}
	tell.play(ctx, d.chapters())

	if keep && ctx.Err() == nil {
		fmt.Print("\n", cluster.HowToLookAround(sandboxName))
	} else if err := cluster.Down(context.WithoutCancel(ctx)); err != nil {
		return 1, err
	}
	fmt.Printf("\ndemo: %d steps passed, %d failed\n", tell.passed, tell.failed)
	if tell.failed > 0 {
		return 1, nil
	}
	return 0, nil
}
