package bench

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Metrics are values by name and labels as they are written.
type Metrics map[string]float64

// Parse reads the text format of Prometheus as far as plain values go.
func Parse(r io.Reader) (Metrics, error) {
	all := Metrics{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		at := strings.LastIndexByte(text, ' ')
		if strings.HasPrefix(text, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(text[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", text, err)
		}
		all[text[:at]] = value
	}
	return all, lines.Err()
}

// Reads are the GET requests that the manager's client has sent, which the
// client's transport counts.
func (m Metrics) Reads() float64 { return m.Sent("GET") }

// Requests are all requests that it has sent.
func (m Metrics) Requests() float64 { return m.Sent("") }

// Processor is how many seconds of processor time the process has used.
func (m Metrics) Processor() float64 { return m["process_cpu_seconds_total"] }

// Sent are the requests by one method that it has sent; empty: by any.
func (m Metrics) Sent(method string) (n float64) {
	for name, value := range m {
		if strings.HasPrefix(name, "rest_client_requests_total{") && (method == "" || label(name, "method") == method) {
			n += value
		}
	}
	return n
}

// label is the value of a label in a name as it is written; empty: it has none.
func label(name, key string) string {
	_, rest, found := strings.Cut(name, key+`="`)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
