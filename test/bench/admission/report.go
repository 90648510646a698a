package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench"
)

// print tells what the steady load saw.
func (l *steady) print(w io.Writer) {
	fmt.Fprintf(w, "\n# The webhook under a steady load of %d requests/s for %.0f s, %d policies that judge each\n", l.rate, l.took.Seconds(), l.policies)
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(l.byKind)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, l.byKind[kind]))
	}
	fmt.Fprintf(w, "%s\n", strings.Join(kinds, ", "))
	fmt.Fprintf(w, "answered %d, of these denied %d, failed %d; p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, worst %.2f ms\n", len(l.answered), l.denied, l.failed,
		bench.Milliseconds(bench.Quantile(l.answered, 0.5)), bench.Milliseconds(bench.Quantile(l.answered, 0.9)), bench.Milliseconds(bench.Quantile(l.answered, 0.99)), bench.Milliseconds(bench.Quantile(l.answered, 1)))
	fmt.Fprintf(w, "the manager worked %.2f ms of processor time a request; it sent %.0f requests to the API server meanwhile, of these %.0f reads\n",
		1000*l.processor/float64(len(l.answered)), l.requests, l.reads)
	if l.failed > 0 {
		fmt.Fprintf(w, "the last failure: %s\n", l.sample)
	}
}

func (l *steady) figures() []bench.Figure {
	return []bench.Figure{
		{Name: fmt.Sprintf("webhook p99, %d requests/s, %d policies", l.rate, l.policies), Is: bench.Milliseconds(bench.Quantile(l.answered, 0.99)), AtMost: 20, Unit: "ms"},
		{Name: "failed requests", Is: float64(l.failed)},
		{Name: "live reads a 1,000 admissions", Is: 1000 * l.reads / float64(len(l.answered)), AtMost: 1},
	}
}

// printTurns tells what the creation of claims took, beside the server alone.
func printTurns(w io.Writer, o options, all []*turns) {
	fmt.Fprintf(w, "\n# Creation of claims, %d rounds of %d, %d at once\n", o.rounds, o.batch, o.workers)
	fmt.Fprintf(w, "%-18s %9s %9s %9s %9s %9s %9s\n", "policies", "p50 ms", "p99 ms", "claims/s", "p50 ×", "p99 ×", "claims/s ×")
	bare := all[0]
	for _, t := range all {
		name := fmt.Sprint(t.policies)
		if t == bare {
			name = "without Holdfast"
		}
		fmt.Fprintf(w, "%-18s %9.2f %9.2f %9.0f %9.2f %9.2f %9.2f\n", name, bench.Milliseconds(bench.Quantile(t.created, 0.5)), bench.Milliseconds(bench.Quantile(t.created, 0.99)), t.rate(),
			ratio(bench.Quantile(t.created, 0.5), bench.Quantile(bare.created, 0.5)), ratio(bench.Quantile(t.created, 0.99), bench.Quantile(bare.created, 0.99)), t.rate()/bare.rate())
	}
}

func (t *turns) rate() float64 { return float64(len(t.created)) / t.took.Seconds() }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
