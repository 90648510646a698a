package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// header names the columns of line.
func header(w io.Writer) {
	fmt.Fprintf(w, "%-13s %5s %7s %7s %7s %7s %7s %6s %8s %9s %9s %6s %6s %8s  %s\n", "phase", "vols", "seconds", "p50 ms", "p99 ms",
		"EC2 p50", "adds ms", "adds %", "mut/vol", "describes", "throttled", "errors", "leaked", "peak MiB", "EC2 calls")
}

// line is a phase in one line.
func line(w io.Writer, r result) {
	answered := slices.Collect(maps.Values(r.answered))
	median, tail := quantile(answered, 0.5), quantile(answered, 0.99)
	own, adds, share := "-", "-", "-"
	if len(r.adds) > 0 {
		own = fmt.Sprint(quantile(r.own, 0.5).Milliseconds())
		adds = fmt.Sprint(quantile(r.adds, 0.5).Milliseconds())
		share = fmt.Sprintf("%.1f", r.share())
	}
	peak := "-"
	if r.peak != (memory{}) {
		peak = r.peak.String()
	}
	fmt.Fprintf(w, "%-13s %5d %7.1f %7d %7d %7s %7s %6s %8.2f %9d %9d %6d %6d %8s  %s\n", r.name, r.settled, r.took.Seconds(),
		median.Milliseconds(), tail.Milliseconds(), own, adds, share, r.perVolume(), r.describes, r.throttled, r.failures(), r.leaked, peak, r.callList())
	if r.settled != r.volumes {
		fmt.Fprintf(w, "  %s: %d of %d volumes did not get there in time\n", r.name, r.volumes-r.settled, r.volumes)
	}
	if r.absent > 0 {
		fmt.Fprintf(w, "  %s: EC2 drew no time of %s for %d volumes; they are not in what the driver adds\n", r.name, r.waitsFor, r.absent)
	}
	if r.failures() > 0 {
		fmt.Fprintf(w, "  %s: client errors by code: %s; the last: %s\n", r.name, r.codeList(), r.sample)
	}
}

func (r result) perVolume() float64 { return float64(r.mutating) / float64(r.volumes) }

func (r result) callList() string {
	var parts []string
	for _, c := range r.calls {
		parts = append(parts, fmt.Sprintf("%s %d", c.action, c.count))
	}
	return strings.Join(parts, ", ")
}

func (r result) codeList() string {
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(r.errors)) {
		parts = append(parts, fmt.Sprintf("%s %d", code, r.errors[code]))
	}
	return strings.Join(parts, ", ")
}

// throttleLines tell what EC2's token buckets cost.
func throttleLines(w io.Writer, all []result) {
	fmt.Fprintf(w, "\n%-13s %9s %9s %11s %12s %12s\n", "phase", "calls", "throttled", "share %", "buckets' s", "beyond it s")
	for _, r := range all {
		total := r.total()
		share := 0.0
		if total > 0 {
			share = 100 * float64(r.throttled) / float64(total)
		}
		fmt.Fprintf(w, "%-13s %9d %9d %11.1f %12.1f %12.1f\n", r.name, total, r.throttled, share, r.buckets.Seconds(), (r.took - r.buckets).Seconds())
	}
	fmt.Fprintln(w, "buckets': the least time in which EC2's token buckets let the accepted changes pass; beyond it: EC2's own time and the driver's.")
}

// figure is one figure beside its target.
type figure struct {
	name    string
	is      float64
	atMost  float64
	unit    string
	skipped string // why there is none
	note    string
}

// figures are what the run is judged by.
func figures(all []result) []figure {
	var out []figure
	worst := struct {
		mutating, describes float64
		errors, leaked      int
		peak                memory
	}{}
	for _, r := range all {
		if r.waitsFor != "" {
			out = append(out, addedBy(r))
		}
		worst.mutating = max(worst.mutating, r.perVolume())
		worst.describes = max(worst.describes, 1000*float64(r.describes)/float64(r.volumes))
		worst.errors += r.failures()
		worst.leaked += r.leaked
		worst.peak.workingSet = max(worst.peak.workingSet, r.peak.workingSet)
		worst.peak.resident = max(worst.peak.resident, r.peak.resident)
	}
	controller := figure{name: "controller's peak memory", is: mib(worst.peak.workingSet), atMost: 80, unit: "MiB"}
	switch {
	case worst.peak == memory{}:
		controller.skipped = "--pid is not given"
	case worst.peak.workingSet == 0:
		controller.is = mib(worst.peak.resident)
	default:
		controller.note = residentNote(worst.peak.resident)
	}
	return append(out,
		figure{name: "accepted changes a volume, worst phase", is: worst.mutating, atMost: 1},
		figure{name: "Describe calls a 1,000 volumes, worst phase", is: worst.describes, atMost: 100},
		figure{name: "client errors", is: float64(worst.errors)},
		figure{name: "leaked volumes, snapshots, attachments", is: float64(worst.leaked)},
		controller)
}

// addedBy is what the driver adds to EC2's own time in a phase.
func addedBy(r result) figure {
	f := figure{name: "driver adds at the median: " + r.name, is: r.share(), atMost: 10, unit: "%"}
	switch {
	case len(r.adds) == 0:
		f.skipped = "no volume got there"
	case r.gathers > 0:
		f.note = fmt.Sprintf("  (beyond the %v for which changes are gathered)", r.gathers)
	}
	return f
}

// legend says what the columns of line are.
func legend(w io.Writer) {
	fmt.Fprintln(w, "p50, p99: from a volume's first request to its answer. EC2 p50: what EC2 drew for the volumes' calls.")
	fmt.Fprintf(w, "adds: the median, over the volumes, of answer less what EC2 drew for that volume (modified: less %v more, for which changes are gathered); %%: of EC2 p50.\n", gathering)
}

// targets prints the figures beside their targets.
func targets(w io.Writer, figures []figure) {
	fmt.Fprintf(w, "\n%-46s %12s %12s\n", "figure", "measured", "target")
	for _, f := range figures {
		if f.skipped != "" {
			fmt.Fprintf(w, "%-46s %12s %12s  (%s)\n", f.name, "-", limit(f), f.skipped)
			continue
		}
		verdict := "met"
		if f.is > f.atMost {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%-46s %12s %12s  %s%s\n", f.name, fmt.Sprintf("%.4g %s", f.is, f.unit), limit(f), verdict, f.note)
	}
}

// residentNote: a working set leaves out the pages of the binary that somebody
// else, such as a second copy or the compiler, read first.
func residentNote(bytes int64) string {
	return fmt.Sprintf("  (working set; resident with the binary's shared pages: %.4g MiB)", mib(bytes))
}

func limit(f figure) string {
	if f.atMost == 0 {
		return "0"
	}
	return fmt.Sprintf("<= %g %s", f.atMost, f.unit)
}

// span is how long something took, for a person.
func span(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
