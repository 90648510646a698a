package monitoring

import (
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	prometheus "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// target is a query of a panel.
type target struct {
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
	Range        bool   `json:"range"`
}

// board is as much of the dashboard as these tests read.
type board struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID          int    `json:"id"`
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		GridPos     struct {
			H int `json:"h"`
			W int `json:"w"`
			X int `json:"x"`
			Y int `json:"y"`
		} `json:"gridPos"`
		Targets []target `json:"targets"`
	} `json:"panels"`
}

func dashboard(t *testing.T) board {
	t.Helper()
	var b board
	if err := json.Unmarshal([]byte(read(t, filepath.Join(configuration, "dashboards/holdfast.json"))), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// substituted is a query as Grafana sends it with all namespaces and schedules,
// from a panel whose points are a minute apart.
func substituted(query string) string {
	return strings.NewReplacer("$namespace", ".*", "$schedule", ".*", "$__rate_interval", "4m").Replace(query)
}

// engine evaluates as a Prometheus with default settings does.
func engine(t *testing.T) *prometheus.Engine {
	t.Helper()
	return promqltest.NewTestEngine(t, false, 5*time.Minute, 10_000_000)
}

// now is when the dashboard is looked at: the end of the recorded series.
var now = time.Unix(0, 0).Add(11 * time.Hour)

// Every query of the dashboard answers over the recorded series, with the labels
// that its legend names.
func TestDashboardAnswers(t *testing.T) {
	storage, engine := promqltest.LoadedStorage(t, read(t, "testdata/cluster.series")), engine(t)
	t.Cleanup(func() { storage.Close() })
	legend := regexp.MustCompile(`\{\{ *([a-z_]+) *\}\}`)
	queries := 0
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			queries++
			expr := substituted(target.Expr)
			var query prometheus.Query
			var err error
			if target.Range {
				query, err = engine.NewRangeQuery(t.Context(), storage, nil, expr, now.Add(-time.Hour), now, time.Minute)
			} else {
				query, err = engine.NewInstantQuery(t.Context(), storage, nil, expr, now)
			}
			if err != nil {
				t.Errorf("panel %q: %s: %v", p.Title, expr, err)
				continue
			}
			series, err := answered(query.Exec(t.Context()))
			query.Close()
			if err != nil || len(series) == 0 {
				t.Errorf("panel %q answers nothing: %s: %v", p.Title, expr, err)
			}
			for _, name := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				for _, set := range series {
					if set.Get(name[1]) == "" {
						t.Errorf("panel %q: the legend %s names a label that %s has not", p.Title, target.LegendFormat, set)
					}
				}
			}
		}
	}
	if queries < 30 {
		t.Errorf("%d queries", queries)
	}
}

// answered are the series of a result that have a number.
func answered(result *prometheus.Result) ([]labels.Labels, error) {
	var series []labels.Labels
	switch value := result.Value.(type) {
	case prometheus.Vector:
		for _, s := range value {
			if !math.IsNaN(s.F) {
				series = append(series, s.Metric)
			}
		}
	case prometheus.Matrix:
		for _, s := range value {
			if slices.ContainsFunc(s.Floats, func(p prometheus.FPoint) bool { return !math.IsNaN(p.F) }) {
				series = append(series, s.Metric)
			}
		}
	}
	return series, result.Err
}

// What the panels say of the recorded series, whose file tells the story.
func TestDashboardIsRight(t *testing.T) {
	storage, engine := promqltest.LoadedStorage(t, read(t, "testdata/cluster.series")), engine(t)
	t.Cleanup(func() { storage.Close() })
	for title, want := range map[string][]string{
		"Schedules behind":                           {"{} 1"},
		"Without any ready copy":                     {"{} 1"},
		"Failed copies":                              {"{} 2"},
		"Unprotected claims":                         {"{} 5"},
		"Policy violations":                          {"{} 7"},
		"Leader":                                     {"{} 1"},
		"Certificate ends in":                        {"{} 2592000"},
		"Volumes attaching":                          {"{} 3"},
		"Volumes on nodes that are gone":             {"{} 1"},
		"Claims stuck":                               {"{} 7"},
		"Orphans that cannot go":                     {"{} 1"},
		"Claims at maximum":                          {"{} 2"},
		"Age of the newest ready copy, in intervals": {`{namespace="bank", schedule="hourly"} 5`, `{namespace="shop", schedule="hourly"} 0.5`},
		"Copies by state":                            {`{state="failed"} 2`, `{state="pending"} 1`, `{state="ready"} 30`},
		"Copies that became ready":                   {`{namespace="bank", schedule="hourly"} 0`, `{namespace="shop", schedule="hourly"} 1.017`},
		"Missed runs":                                {`{namespace="bank", schedule="hourly"} 1`, `{namespace="shop", schedule="hourly"} 0`},
		"Claims that are not copied":                 {`{namespace="bank", schedule="hourly"} 2`, `{namespace="shop", schedule="hourly"} 0`},
		"Hooks that failed":                          {`{namespace="bank", schedule="hourly", when="before"} 3`},
		"Pods that may be frozen":                    {`{namespace="bank", schedule="hourly"} 1`},
		"Cloud snapshots that outlived their copies": {`{namespace="shop", schedule="hourly"} 4`},
		"Violations":                                 {`{action="Deny", policy="databases", rule="claim.maxSize"} 7`},
		"Templates behind their claims":              {`{action="RaiseAtCreate"} 3`, `{action="Report"} 1`},
		"StatefulSets made anew":                     {`{result="completed"} 60`},
		"Claims that are stuck":                      {`{namespace="bank", reason="HeldByPod"} 3`, `{namespace="lab", reason="HeldByFinalizer"} 1`, `{namespace="lab"} 1`, `{namespace="shop", reason="NoPod"} 1`, `{namespace="shop", reason="NotProvisioned"} 2`},
		"Attached to nodes that are gone":            {`{driver="ebs.csi.aws.com"} 1`},
		"Orphaned claims that cannot go":             {`{namespace="bank"} 1`},
		"Left behind":                                {`{driver="ebs.csi.aws.com"} 4`, `{namespace="bank"} 6`, `{namespace="shop"} 5`},
		"Capacity left behind":                       {`{driver="ebs.csi.aws.com"} 400000000000`, `{namespace="bank"} 600000000000`, `{namespace="shop"} 500000000000`},
		"Orphaned claims retired":                    {`{} 1`, `{} 2`},
	} {
		var got []string
		for _, p := range dashboard(t).Panels {
			if p.Title != title || got != nil {
				continue
			}
			for _, target := range p.Targets {
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, substituted(target.Expr), now)
				if err != nil {
					t.Fatal(err)
				}
				result := query.Exec(t.Context())
				vector, err := result.Vector()
				if err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				for _, s := range vector {
					got = append(got, s.Metric.String()+" "+strconv.FormatFloat(math.Round(s.F*1000)/1000, 'f', -1, 64))
				}
				query.Close()
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("panel %q (-want +got)\n%s", title, diff)
		}
	}
}

// seriesOf are the series that a variable is read from, which may be of several
// names.
func seriesOf(selector string) []string {
	names, several := strings.CutPrefix(selector, `{__name__=~"`)
	if !several {
		return []string{selector}
	}
	return strings.Split(strings.TrimSuffix(names, `"}`), "|")
}

// Who looks for a namespace finds it, whatever there is of it: one without any
// schedule may have a claim that is stuck.
func TestEveryNamespaceIsToBeChosen(t *testing.T) {
	storage, engine := promqltest.LoadedStorage(t, read(t, "testdata/cluster.series")), engine(t)
	t.Cleanup(func() { storage.Close() })
	namespaces := func(selector string) []string {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, "count by (namespace) ("+selector+")", now)
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		series, err := answered(query.Exec(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range series {
			names = append(names, s.Get("namespace"))
		}
		slices.Sort(names)
		return names
	}
	for _, v := range dashboard(t).Templating.List {
		if v.Name != "namespace" {
			continue
		}
		selector := strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ", namespace)")
		want := namespaces(`{__name__=~".+", namespace!=""}`)
		if got := namespaces(selector); !slices.Equal(got, want) || len(got) != 3 {
			t.Errorf("the variable offers %v, and there are series of %v", got, want)
		}
	}
}

// The variables find what there is, whatever is chosen takes effect, and the
// panels lie beside each other.
func TestDashboardIsInOrder(t *testing.T) {
	b, all := dashboard(t), metrics(t)
	var variables []string
	values := regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)
	for _, v := range b.Templating.List {
		variables = append(variables, v.Name)
		if v.Definition == "" {
			continue
		}
		match := values.FindStringSubmatch(v.Definition)
		if match == nil {
			t.Errorf("variable %s: %s", v.Name, v.Definition)
			continue
		}
		for _, series := range seriesOf(match[1]) {
			if _, err := uses(all, "count by ("+match[2]+") ("+substituted(series)+")"); err != nil {
				t.Errorf("variable %s: %v", v.Name, err)
			}
		}
	}
	if want := []string{"datasource", "namespace", "schedule"}; !slices.Equal(variables, want) {
		t.Errorf("variables %v, want %v", variables, want)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("panel %q lies over %q at column %d", p.Title, other, x)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q says not what it is, or asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "holdfast_schedule_") && !strings.Contains(target.Expr, `namespace=~"$namespace", schedule=~"$schedule"`) {
				t.Errorf("panel %q shows schedules that are not chosen: %s", p.Title, target.Expr)
			}
			if target.Instant == target.Range {
				t.Errorf("panel %q: a query is either for now or for a time", p.Title)
			}
		}
	}
}

// The recorded series are such as a scrape brings.
func TestRecordedSeriesAreReal(t *testing.T) {
	all := metrics(t)
	for line := range strings.Lines(read(t, "testdata/cluster.series")) {
		if series, _, found := strings.Cut(strings.TrimSpace(line), "} "); found {
			checkSeries(t, all, series+"}")
		}
	}
}
