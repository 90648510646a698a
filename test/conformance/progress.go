package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// progress reads ginkgo's output (-v) as it is written, and prints a line for each
// spec as it ends. (e2e.test has --progress-report-url, which of v1.37 tells nothing
// of single specs.)
type progress struct {
	out     io.Writer
	started time.Time
	total   int

	ended int
	rest  []byte // of a line that is not whole
	// result is what became of the spec whose name is in the next line.
	result string
}

// endOfSpec is the first line about a spec that has ended: ginkgo's sign (a dot, or
// S for a skip), what became of it unless it passed, and the time, as in
// "• [FAILED] [12.345 seconds]".
var endOfSpec = regexp.MustCompile(`^(?:•|S)(?: \[([A-Z ]+)\])? \[[0-9.]+ seconds\]$`)

// Write implements io.Writer.
func (p *progress) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		p.line(string(line))
		p.rest = bytes.Clone(rest)
	}
}

func (p *progress) line(line string) {
	if m := endOfSpec.FindStringSubmatch(line); m != nil {
		if p.result = strings.ToLower(m[1]); p.result == "" {
			p.result = "passed"
		}
		return
	}
	result := p.result
	p.result = ""
	name, ours := strings.CutPrefix(line, prefix)
	if result == "" || !ours {
		return
	}
	// The line ends in the labels, and a failure has the node that failed in it.
	name, _, _ = strings.Cut(name, " [Driver: ")
	name = strings.Replace(name, " [It] ", " ", 1)
	p.ended++
	fmt.Fprintf(p.out, "%6.0fs %3d/%d %s %s\n", time.Since(p.started).Seconds(), p.ended, p.total, result, name)
}
