package config

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers its metrics
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	_ "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// documentedMetrics are the rows of a table of docs/monitoring.md: the type of
// each metric by its name and labels, written name{label,label}.
func documentedMetrics(t *testing.T, section string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n### "+section+"\n")
	if !found {
		t.Fatalf("docs/monitoring.md has no section %q", section)
	}
	table, _, _ = strings.Cut(table, "\n##")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 6 && strings.HasPrefix(cells[1], " `") {
			rows[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	if len(rows) < 5 {
		t.Fatalf("docs/monitoring.md: section %q has %d rows", section, len(rows))
	}
	return rows
}

// Every metric that the code makes has a row in docs/monitoring.md, with its
// labels and its type, and every row there has its metric. Alerts and dashboard
// are held to those tables in tools/monitoring.
func TestMetricsAreDocumented(t *testing.T) {
	if diff := cmp.Diff(madeMetrics(t, ".."), documentedMetrics(t, "Of Holdfast")); diff != "" {
		t.Errorf("metrics of the code and of docs/monitoring.md, section \"Of Holdfast\" (-code +docs)\n%s\nGive each new metric a row there, and a panel in config/monitoring/dashboards/holdfast.json", diff)
	}
}

// metricTypes are the constructors of metrics that this tree uses.
var metricTypes = map[string]string{
	"NewCounterVec": "counter", "NewCounter": "counter", "NewCounterFunc": "counter",
	"NewGaugeVec": "gauge", "NewGauge": "gauge", "NewGaugeFunc": "gauge",
	"NewHistogramVec": "histogram", "NewHistogram": "histogram",
}

// madeMetrics reads the product's code below root for metrics that it makes.
func madeMetrics(t *testing.T, root string) map[string]string {
	t.Helper()
	made := map[string]string{}
	for _, dir := range []string{"cmd", "controllers", "driver", "internal", "webhooks"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
				return i.Path.Value == `"github.com/prometheus/client_golang/prometheus"`
			}) {
				return nil
			}
			lists := stringLists(f)
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				kind, name, labels, err := metricOf(call, lists)
				switch {
				case err != nil:
					t.Errorf("%s: %v", files.Position(call.Pos()), err)
				case kind != "":
					made[written(name, labels)] = kind
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func written(name string, labels []string) string {
	if len(labels) == 0 {
		return name
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// metricOf reads a call that makes a metric; kind is empty for other calls.
func metricOf(call *ast.CallExpr, lists map[string][]string) (kind, name string, labels []string, err error) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", "", nil, nil
	}
	if from, ok := selector.X.(*ast.Ident); !ok || from.Name != "prometheus" {
		return "", "", nil, nil
	}
	called := selector.Sel.Name
	if called == "NewDesc" { // of a collector that makes its metrics when it is scraped
		if name, ok = text(call.Args[0]); !ok {
			return "", "", nil, errors.New("the metric's name is not written out here")
		}
		labels, ok = list(call.Args[2], lists)
		kind = "gauge" // all of ours are
	} else {
		if kind = metricTypes[called]; kind == "" {
			return "", "", nil, nil
		}
		for _, field := range call.Args[0].(*ast.CompositeLit).Elts {
			if kv := field.(*ast.KeyValueExpr); kv.Key.(*ast.Ident).Name == "Name" {
				name, _ = text(kv.Value)
			}
		}
		if strings.HasSuffix(called, "Vec") {
			labels, ok = list(call.Args[1], lists)
		} else {
			ok = true
		}
	}
	if name == "" || !ok {
		return "", "", nil, errors.New("name or labels of the metric cannot be read: write them out where it is made")
	}
	return kind, name, labels, nil
}

func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(literal.Value)
	return s, err == nil
}

// list reads a []string: written out, by the name of a variable, or with more
// appended to one.
func list(e ast.Expr, lists map[string][]string) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "nil" {
			return nil, true
		}
		known, ok := lists[e.Name]
		return known, ok
	case *ast.CompositeLit:
		return texts(e.Elts)
	case *ast.CallExpr:
		if called, ok := e.Fun.(*ast.Ident); !ok || called.Name != "append" {
			return nil, false
		}
		first, ok := list(e.Args[0], lists)
		more, all := texts(e.Args[1:])
		return append(slices.Clone(first), more...), ok && all
	}
	return nil, false
}

func texts(all []ast.Expr) ([]string, bool) {
	var out []string
	for _, e := range all {
		s, ok := text(e)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// stringLists are the variables of a file that are set to a list of strings.
func stringLists(f *ast.File) map[string][]string {
	lists := map[string][]string{}
	note := func(name, value ast.Expr) {
		n, isName := name.(*ast.Ident)
		literal, isLiteral := value.(*ast.CompositeLit)
		if isName && isLiteral {
			if all, ok := texts(literal.Elts); ok && len(all) > 0 {
				lists[n.Name] = all
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) == 1 && len(n.Rhs) == 1 {
				note(n.Lhs[0], n.Rhs[0])
			}
		case *ast.ValueSpec:
			if len(n.Names) == 1 && len(n.Values) == 1 {
				note(n.Names[0], n.Values[0])
			}
		}
		return true
	})
	return lists
}

// What makes a metric unreadable for madeMetrics is an error and not a metric
// that nobody documents.
func TestMetricsAreReadFromTheCode(t *testing.T) {
	read := func(code string) (map[string]string, []error) {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport \"github.com/prometheus/client_golang/prometheus\"\nvar each = []string{\"a\", \"b\"}\n"+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		made, lists := map[string]string{}, stringLists(f)
		var errs []error
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				kind, name, labels, err := metricOf(call, lists)
				if err != nil {
					errs = append(errs, err)
				} else if kind != "" {
					made[written(name, labels)] = kind
				}
			}
			return true
		})
		return made, errs
	}
	for code, want := range map[string]string{
		`var x = prometheus.NewGauge(prometheus.GaugeOpts{Name: "n"})`:                                  "n",
		`var x = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "n"}, []string{"c"})`:                "n{c}",
		`var x = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "n"}, each)`:                     "n{a,b}",
		`var x = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "n"}, append(each, "c"))`:    "n{a,b,c}",
		`var x = prometheus.NewDesc("n", "help", []string{"c"}, nil)`:                                   "n{c}",
		`var x = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "n" + y}, each)`:                     "",
		`var x = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "n"}, others)`:                       "",
		`var x = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "n"}, append(each, other))`:          "",
		`var x = prometheus.NewDesc(prometheus.BuildFQName("a", "b", "c"), "help", []string{"c"}, nil)`: "",
	} {
		made, errs := read(code)
		if want == "" {
			if len(errs) != 1 || len(made) != 0 {
				t.Errorf("%s: read as %v, errors %v; want an error", code, made, errs)
			}
		} else if made[want] == "" || len(made) != 1 || len(errs) != 0 {
			t.Errorf("%s: read as %v, errors %v; want %s", code, made, errs, want)
		}
	}
}

// variableLabels finds the labels in a description's text.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*variableLabels: \{([^}]*)\}\}$`)

// The metrics of others are as their own code says: controller-runtime's, the
// API server's and kubelet's, of the versions that this tree is built with.
func TestMetricsOfOthersAreTheirs(t *testing.T) {
	theirs := map[string]bool{
		"up": true, // Prometheus' own
		// Kubelet's, which is no library: k8s.io/kubernetes v1.37.2,
		// pkg/kubelet/metrics/collectors/volume_stats.go; test/e2e/volumes asks
		// one for a metric of the same family.
		"kubelet_volume_stats_available_bytes{namespace,persistentvolumeclaim}": true,
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		runtimemetrics.Registry.(prometheus.Collector).Describe(descriptions)
		close(descriptions)
	}()
	for d := range descriptions {
		match := description.FindStringSubmatch(d.String())
		if match == nil {
			t.Fatalf("a description reads otherwise: %s", d)
		}
		theirs[written(match[1], strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' }))] = true
	}
	// The API server's show their labels once they have counted.
	admissionmetrics.Metrics.ObserveWebhookFailOpen(t.Context(), "x", "validating")
	admissionmetrics.Metrics.ObserveWebhookRejection(t.Context(), "x", "validating", "CREATE", admissionmetrics.WebhookRejectionCallingWebhookError, 0)
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			theirs[written(f.GetName(), labels)] = true
		}
	}
	for row := range documentedMetrics(t, "Of others") {
		name, labels, _ := strings.Cut(strings.TrimSuffix(row, "}"), "{")
		sorted := strings.FieldsFunc(labels, func(r rune) bool { return r == ',' })
		slices.Sort(sorted)
		if !theirs[row] && !theirs[written(name, sorted)] {
			t.Errorf("docs/monitoring.md: %s is none that controller-runtime, the API server or kubelet have", row)
		}
	}
}
