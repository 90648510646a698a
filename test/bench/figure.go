package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Figure is one figure beside its target.
type Figure struct {
	Name   string
	Is     float64
	AtMost float64
	Unit   string
}

// Targets prints the figures beside their targets.
func Targets(w io.Writer, figures []Figure) {
	fmt.Fprintf(w, "\n%-52s %14s %12s\n", "figure", "measured", "target")
	for _, f := range figures {
		verdict, limit := "met", "0"
		if f.Is > f.AtMost {
			verdict = "MISSED"
		}
		if f.AtMost > 0 {
			limit = fmt.Sprintf("<= %g %s", f.AtMost, f.Unit)
		}
		fmt.Fprintf(w, "%-52s %14s %12s  %s\n", f.Name, fmt.Sprintf("%.4g %s", f.Is, f.Unit), limit, verdict)
	}
}

// Milliseconds are a duration's.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// MiB of bytes.
func MiB[T int64 | float64](bytes T) float64 { return float64(bytes) / (1 << 20) }

// Quantile of durations, by the nearest rank; 0 where there are none.
func Quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Parallel calls do for each of n numbers, by a number of workers, until one fails.
func Parallel(ctx context.Context, workers, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range queue {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		queue <- i
	}
	close(queue)
	running.Wait()
	return context.Cause(ctx)
}
