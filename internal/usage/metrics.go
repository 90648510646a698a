package usage

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Names of the series, less the prefix that they have in common.
// https://kubernetes.io/docs/reference/instrumentation/metrics (kubelet_volume_stats_*).
const (
	seriesPrefix   = "kubelet_volume_stats_"
	capacityBytes  = "capacity_bytes"
	availableBytes = "available_bytes"
	inodes         = "inodes"
	inodesFree     = "inodes_free"
)

// maxLineBytes bounds one line of an exposition. Kubelet's own are below 1 KiB.
const maxLineBytes = 64 << 10

// found gathers what a source tells of claims, series by series.
type found map[types.NamespacedName]*figures

// figures are the series of one claim; what was not told is absent.
type figures struct{ capacity, available, inodes, inodesFree figure }

type figure struct {
	value int64
	told  bool
}

// of is the figure of a series; nil: it is one that nobody reads.
func (f *figures) of(series string) *figure {
	switch series {
	case capacityBytes:
		return &f.capacity
	case availableBytes:
		return &f.available
	case inodes:
		return &f.inodes
	case inodesFree:
		return &f.inodesFree
	}
	return nil
}

// amount is not known unless both parts were told.
func amount(total, free figure) Amount {
	if !total.told || !free.told {
		return Amount{}
	}
	return Amount{Total: total.value, Free: free.value}
}

// add takes one value in. A value that is no count, such as NaN, was not told.
func (f found) add(claim types.NamespacedName, series string, value float64) {
	if claim.Name == "" || claim.Namespace == "" || math.IsNaN(value) || value < 0 || value > math.MaxInt64/2 {
		return
	}
	of := f[claim]
	if of == nil {
		of = &figures{}
		f[claim] = of
	}
	if told := of.of(series); told != nil {
		*told = figure{int64(value), true}
	}
}

// readMetrics reads the text exposition of a kubelet line by line, and keeps no
// more of it than the figures of claims.
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
func readMetrics(body io.Reader) (found, error) {
	f := found{}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 4<<10), maxLineBytes)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.HasPrefix(line, []byte(seriesPrefix)) {
			continue
		}
		series, claim, value, err := readLine(string(line))
		if err != nil {
			return nil, err
		}
		f.add(claim, series, value)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the exposition: %w", err)
	}
	return f, nil
}

// readLine reads one line of kubelet_volume_stats_*, such as
//
//	kubelet_volume_stats_inodes{namespace="db",persistentvolumeclaim="data"} 6.5536e+06
//
// with or without a time at its end.
func readLine(line string) (series string, claim types.NamespacedName, value float64, err error) {
	series, rest, ok := strings.Cut(strings.TrimPrefix(line, seriesPrefix), "{")
	for more := ok; more; {
		var name, of string
		if name, of, rest, more, err = readLabel(rest); err != nil {
			return "", claim, 0, fmt.Errorf("the line %q: %w", line, err)
		}
		switch name {
		case "namespace":
			claim.Namespace = of
		case "persistentvolumeclaim":
			claim.Name = of
		}
	}
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 || len(fields) > 2 {
		return "", claim, 0, fmt.Errorf("the line %q is not of the form name{label=\"value\"} number", line)
	}
	if value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return "", claim, 0, fmt.Errorf("the line %q: its value is %q, want a number", line, fields[0])
	}
	return series, claim, value, nil
}

// readLabel reads one label; more says whether another follows.
func readLabel(text string) (name, value, rest string, more bool, err error) {
	text = strings.TrimLeft(text, " \t")
	if after, end := strings.CutPrefix(text, "}"); end { // a comma may stand before it
		return "", "", after, false, nil
	}
	name, text, ok := strings.Cut(text, "=")
	if ok {
		var quoted string
		if quoted, err = strconv.QuotedPrefix(strings.TrimLeft(text, " \t")); err == nil {
			text = strings.TrimLeft(text, " \t")[len(quoted):]
			value, err = strconv.Unquote(quoted)
		}
	}
	if !ok || err != nil {
		return "", "", "", false, fmt.Errorf("no label can be read at %q", text)
	}
	text = strings.TrimLeft(text, " \t")
	if after, comma := strings.CutPrefix(text, ","); comma {
		return strings.TrimSpace(name), value, after, true, nil
	}
	after, end := strings.CutPrefix(text, "}")
	if !end {
		return "", "", "", false, fmt.Errorf("no label can be read at %q", text)
	}
	return strings.TrimSpace(name), value, after, false, nil
}
