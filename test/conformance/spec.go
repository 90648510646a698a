package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// prefix begins the names of the specs that a manifest defines.
const prefix = "External Storage [Driver: ebs.csi.aws.com] "

// outcome is what became of a spec.
type outcome int

const (
	// notStarted is a spec that was not selected, or never had its turn.
	notStarted outcome = iota
	// skipped is a spec that skipped itself, and said why.
	skipped
	failed
	passed
)

// spec is one spec in a run's report.
type spec struct {
	// name is its full name without the prefix.
	name    string
	outcome outcome
	// message is why it failed or skipped itself.
	message string
	took    time.Duration
}

// report is what a run's report says.
type report struct {
	// specs are those of external storage, whether they ran or not.
	specs []spec
	// broken are failures outside of specs: of the suite's own set-up.
	broken []string
}

// anyFailed says whether anything in the report failed.
func (r report) anyFailed() bool {
	return len(r.broken) > 0 || slices.ContainsFunc(r.specs, func(s spec) bool { return s.outcome == failed })
}

// ginkgoReport is the part of a JSON report that is read here. See Report and
// SpecReport in github.com/onsi/ginkgo/v2/types.
type ginkgoReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// readReport reads the JSON report that ginkgo has merged from its processes.
func readReport(r io.Reader) (report, error) {
	var suites []ginkgoReport
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return report{}, fmt.Errorf("read the suite's report: %w", err)
	}
	if len(suites) != 1 {
		return report{}, fmt.Errorf("the report is about %d suites, want one", len(suites))
	}
	var out report
	for _, s := range suites[0].SpecReports {
		name := fullName(s.ContainerHierarchyTexts, s.LeafNodeText)
		is, err := outcomeOf(s.State, s.Failure.Message)
		if err != nil {
			return report{}, fmt.Errorf("%s: %w", name, err)
		}
		if s.LeafNodeType != "It" {
			if is == failed {
				out.broken = append(out.broken, s.LeafNodeType+": "+firstLine(s.Failure.Message))
			}
			continue
		}
		if short, ours := strings.CutPrefix(name, prefix); ours {
			out.specs = append(out.specs, spec{name: short, outcome: is, message: s.Failure.Message, took: s.RunTime})
		}
	}
	return out, nil
}

// fullName is the name that ginkgo's --focus looks at: some containers of the suite
// have no text.
func fullName(containers []string, leaf string) string {
	texts := slices.DeleteFunc(append(slices.Clone(containers), leaf), func(s string) bool { return s == "" })
	return strings.Join(texts, " ")
}

// outcomeOf translates ginkgo's states. One that was filtered out is "skipped" as
// well, but has no message.
func outcomeOf(state, message string) (outcome, error) {
	switch state {
	case "passed":
		return passed, nil
	case "failed", "panicked", "timedout", "interrupted", "aborted":
		return failed, nil
	case "skipped":
		if message != "" {
			return skipped, nil
		}
		return notStarted, nil
	case "pending":
		return notStarted, nil
	}
	return notStarted, fmt.Errorf("ginkgo's state %q is not known here", state)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
