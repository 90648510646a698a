package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// query asks for all series at once, of every claim that Prometheus knows.
const query = `{__name__=~"kubelet_volume_stats_(capacity_bytes|available_bytes|inodes|inodes_free)",persistentvolumeclaim!=""}`

// Prometheus is asked about the claims of nodes that do not answer themselves.
type Prometheus struct {
	client *http.Client
	query  string
}

// NewPrometheus makes the source of a server such as http://prometheus.monitoring:9090.
func NewPrometheus(server string) (*Prometheus, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL of Prometheus is %q, want one like http://prometheus.monitoring:9090", server)
	}
	u = u.JoinPath("api", "v1", "query")
	u.RawQuery = url.Values{"query": {query}}.Encode()
	return &Prometheus{client: &http.Client{}, query: u.String()}, nil
}

// read asks Prometheus once.
func (p *Prometheus) read(ctx context.Context) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, prometheusTimeout)
	defer cancel()
	return get(ctx, p.client, p.query, "", readVector)
}

// readVector reads the answer to an instant query series by series.
// https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
func readVector(body io.Reader) (found, error) {
	f, disputed := found{}, map[types.NamespacedName]bool{}
	d := json.NewDecoder(body)
	var said struct{ status, problem string }
	err := object(d, func(key string) error {
		switch key {
		case "status":
			return d.Decode(&said.status)
		case "error":
			return d.Decode(&said.problem)
		case "data":
			return object(d, func(key string) error {
				if key != "result" {
					return skip(d)
				}
				return array(d, func() error { return f.addSeries(d, disputed) })
			})
		}
		return skip(d)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case said.status != "success":
		return nil, fmt.Errorf("the query has status %q: %s", said.status, said.problem)
	}
	for claim := range disputed {
		delete(f, claim)
	}
	return f, nil
}

// addSeries takes one series in. A figure that is told twice, and otherwise, is
// disputed: the volume has moved, or the server has the series of two clusters.
func (f found) addSeries(d *json.Decoder, disputed map[types.NamespacedName]bool) error {
	var s struct {
		Metric struct {
			Name      string `json:"__name__"`
			Namespace string `json:"namespace"`
			Claim     string `json:"persistentvolumeclaim"`
		} `json:"metric"`
		Value []any `json:"value"`
	}
	if err := d.Decode(&s); err != nil {
		return err
	}
	if len(s.Value) != 2 {
		return errors.New("a series has no value: want a time and a number")
	}
	text, _ := s.Value[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("the value of a series is %q, want a number", text)
	}
	claim, series := types.NamespacedName{Namespace: s.Metric.Namespace, Name: s.Metric.Claim}, strings.TrimPrefix(s.Metric.Name, seriesPrefix)
	if known := f[claim]; known != nil {
		if told := known.of(series); told != nil && told.told && told.value != int64(value) {
			disputed[claim] = true
		}
	}
	f.add(claim, series, value)
	return nil
}
