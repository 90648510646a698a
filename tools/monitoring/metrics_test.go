package monitoring

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	configuration = "../../config/monitoring"
	guide         = "../../docs/monitoring.md"
)

var promql = parser.NewParser(parser.Options{})

// metric is a row of a table of docs/monitoring.md.
type metric struct {
	kind   string
	labels []string
	ours   bool
}

// metrics are those of docs/monitoring.md by name.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, section := range []string{"Of Holdfast", "Of others"} {
		_, table, found := strings.Cut(read(t, guide), "\n### "+section+"\n")
		if !found {
			t.Fatalf("%s has no section %q", guide, section)
		}
		table, _, _ = strings.Cut(table, "\n##")
		for line := range strings.Lines(table) {
			cells := strings.Split(line, "|")
			if len(cells) != 6 || !strings.HasPrefix(cells[1], " `") {
				continue
			}
			name, list, _ := strings.Cut(strings.Trim(cells[1], " `}"), "{")
			all[name] = metric{
				kind: strings.TrimSpace(cells[2]), ours: section == "Of Holdfast",
				labels: strings.FieldsFunc(list, func(r rune) bool { return r == ',' }),
			}
		}
	}
	return all
}

// targetLabels are those that a scrape adds.
var targetLabels = []string{"job", "pod"}

// known answers the metric of a series' name, and the labels that it may have.
func known(all map[string]metric, name string) (base string, m metric, labels []string, found bool) {
	base = name
	if m, found = all[name]; !found || m.kind == "histogram" {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			cut, has := strings.CutSuffix(name, suffix)
			if h, there := all[cut]; has && there && h.kind == "histogram" {
				allowed := append(slices.Clone(h.labels), targetLabels...)
				if suffix == "_bucket" {
					allowed = append(allowed, "le")
				}
				return cut, h, allowed, true
			}
		}
		return name, m, nil, false
	}
	return base, m, append(slices.Clone(m.labels), targetLabels...), true
}

// uses checks the metrics and labels of an expression, and answers the metrics.
func uses(all map[string]metric, query string) ([]string, error) {
	expr, err := promql.ParseExpr(query)
	if err != nil {
		return nil, err
	}
	var used []string
	var wrong error
	possible := map[string]bool{"le": true}
	for _, l := range targetLabels {
		possible[l] = true
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		selector, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		base, _, allowed, found := known(all, selector.Name)
		if !found {
			wrong = fmt.Errorf("%s is no metric of docs/monitoring.md", selector.Name)
			return nil
		}
		used = append(used, base)
		for _, l := range allowed {
			possible[l] = true
		}
		for _, m := range selector.LabelMatchers {
			if m.Name != labels.MetricName && !slices.Contains(allowed, m.Name) {
				wrong = fmt.Errorf("%s has no label %s, but %v", selector.Name, m.Name, allowed)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if aggregation, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range aggregation.Grouping {
				if !possible[l] {
					wrong = fmt.Errorf("by (%s): none of the metrics has that label", l)
				}
			}
		}
		return nil
	})
	return used, wrong
}

// What the checks below rest on: another name, label or grouping is found out.
func TestUnknownMetricsAndLabelsAreFound(t *testing.T) {
	all := metrics(t)
	for query, right := range map[string]bool{
		`sum by (method_name, le) (rate(holdfast_csi_operations_seconds_bucket{job="x"}[5m]))`: true,
		`holdfast_csi_operations_in_flight{method_name="x"}`:                                   true,
		`holdfast_csi_operations_seconds{method_name="x"}`:                                     false,
		`rate(holdfast_csi_operations_total[5m])`:                                              false,
		`holdfast_csi_operations_in_flight{method="x"}`:                                        false,
		`holdfast_csi_operations_in_flight_count`:                                              false,
		`sum by (namespace) (holdfast_csi_operations_in_flight)`:                               false,
		`holdfast_csi_operations_in_flight{`:                                                   false,
	} {
		if _, err := uses(all, query); (err == nil) != right {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// Series that alerts and dashboard are tried with are such as a scrape brings.
func checkSeries(t *testing.T, all map[string]metric, series string) {
	t.Helper()
	set, err := promql.ParseMetric(series)
	if err != nil {
		t.Errorf("%s: %v", series, err)
		return
	}
	base, _, allowed, found := known(all, set.Get(labels.MetricName))
	if !found {
		t.Errorf("%s is no metric of docs/monitoring.md", series)
		return
	}
	for _, l := range all[base].labels {
		if set.Get(l) == "" {
			t.Errorf("%s has no label %s", series, l)
		}
	}
	set.Range(func(l labels.Label) {
		if l.Name != labels.MetricName && !slices.Contains(allowed, l.Name) {
			t.Errorf("%s has a label %s, which %s has not", series, l.Name, base)
		}
	})
}

// Every metric of Holdfast is shown, and every metric of others that the guide
// lists is used.
func TestEveryMetricIsUsed(t *testing.T) {
	all := metrics(t)
	shown, alerted := map[string]bool{}, map[string]bool{}
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			used, err := uses(all, substituted(target.Expr))
			if err != nil {
				t.Errorf("panel %q: %s: %v", p.Title, target.Expr, err)
			}
			for _, name := range used {
				shown[name] = true
			}
		}
	}
	for _, a := range alerts(t) {
		used, err := uses(all, a.Expr)
		if err != nil {
			t.Errorf("alert %s: %v", a.Alert, err)
		}
		for _, name := range used {
			alerted[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case all[name].ours && !shown[name]:
			t.Errorf("no panel of the dashboard shows %s", name)
		case !shown[name] && !alerted[name]:
			t.Errorf("docs/monitoring.md lists %s, and neither alerts nor dashboard use it", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
