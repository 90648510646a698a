package monitoring

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// ruleFiles are the PrometheusRules.
var ruleFiles = []string{"manager/alerts.yaml", "driver/alerts.yaml"}

// alerts are all rules, read as Prometheus reads them: strictly, with their
// expressions and templates.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var all []rulefmt.Rule
	for _, file := range ruleFiles {
		var object struct {
			Kind string         `json:"kind"`
			Spec map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join(configuration, file))), &object); err != nil || object.Kind != "PrometheusRule" {
			t.Fatalf("%s: %s, %v", file, object.Kind, err)
		}
		spec, err := yaml.Marshal(object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
		for _, err := range errs {
			t.Fatalf("%s: %v", file, err)
		}
		for _, g := range groups.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// cases are a file of testdata, in the form of promtool's unit tests.
type cases struct {
	Tests []struct {
		Name        string         `json:"name"`
		Interval    model.Duration `json:"interval"`
		InputSeries []struct {
			Series string `json:"series"`
			Values string `json:"values"`
		} `json:"input_series"`
		AlertRuleTest []struct {
			EvalTime  model.Duration `json:"eval_time"`
			Alertname string         `json:"alertname"`
			ExpAlerts []struct {
				ExpLabels map[string]string `json:"exp_labels"`
				// ExpAnnotations may be some of them; promtool wants all.
				ExpAnnotations map[string]string `json:"exp_annotations"`
			} `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

// Alerts fire when they should, after their time, once for what they are about,
// and not otherwise. Each has a case of both.
func TestAlerts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	all := metrics(t)
	fired, silent := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		var c cases
		if err := yaml.UnmarshalStrict([]byte(read(t, file)), &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, test := range c.Tests {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+"/"+test.Name, func(t *testing.T) {
				var load strings.Builder
				fmt.Fprintf(&load, "load %s\n", test.Interval)
				for _, s := range test.InputSeries {
					checkSeries(t, all, s.Series)
					fmt.Fprintf(&load, "  %s %s\n", s.Series, s.Values)
				}
				var until time.Duration
				var asked []string
				for _, want := range test.AlertRuleTest {
					until = max(until, time.Duration(want.EvalTime))
					asked = append(asked, want.Alertname)
				}
				history := watch(t, load.String(), until, asked)
				for _, want := range test.AlertRuleTest {
					var expected []string
					for _, a := range want.ExpAlerts {
						expected = append(expected, labels.FromMap(a.ExpLabels).String())
					}
					slices.Sort(expected)
					got := history[time.Duration(want.EvalTime)][want.Alertname]
					if diff := cmp.Diff(expected, slices.Sorted(maps.Keys(got))); diff != "" {
						t.Errorf("%s at %s (-want +got)\n%s", want.Alertname, want.EvalTime, diff)
					}
					for _, a := range want.ExpAlerts {
						for key, text := range a.ExpAnnotations {
							if is := got[labels.FromMap(a.ExpLabels).String()].Get(key); is != text {
								t.Errorf("%s at %s: %s is %q, want %q", want.Alertname, want.EvalTime, key, is, text)
							}
						}
					}
					fired[want.Alertname] = fired[want.Alertname] || len(expected) > 0
					silent[want.Alertname] = silent[want.Alertname] || len(expected) == 0
				}
			})
		}
	}
	for _, a := range alerts(t) {
		if !fired[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s has no case of both: it fires %t, it does not %t", a.Alert, fired[a.Alert], silent[a.Alert])
		}
		delete(fired, a.Alert)
	}
	for name := range fired {
		t.Errorf("there is a case of %s, and no such alert", name)
	}
}

// firing are the annotations of what fires, by its labels, by alert.
type firing map[string]map[string]labels.Labels

// watch evaluates the alerts that are asked about each minute over loaded series,
// as a Prometheus does, and answers what fired at each. All of them over the days
// of some cases would be minutes of work whose result nobody reads.
func watch(t *testing.T, load string, until time.Duration, asked []string) map[time.Duration]firing {
	t.Helper()
	storage := promqltest.LoadedStorage(t, load)
	query := rules.EngineQueryFunc(engine(t), storage)
	history := map[time.Duration]firing{}
	var watched []*rules.AlertingRule
	for _, a := range alerts(t) {
		if !slices.Contains(asked, a.Alert) {
			continue
		}
		expr, err := promql.ParseExpr(a.Expr)
		if err != nil {
			t.Fatal(err)
		}
		watched = append(watched, rules.NewAlertingRule(a.Alert, expr, time.Duration(a.For), time.Duration(a.KeepFiringFor),
			labels.FromMap(a.Labels), labels.FromMap(a.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler)))
	}
	for at := time.Duration(0); at <= until; at += time.Minute {
		now := firing{}
		for _, rule := range watched {
			if _, err := rule.Eval(t.Context(), 0, time.UnixMilli(at.Milliseconds()), query, &url.URL{}, 0); err != nil {
				t.Fatalf("%s at %s: %v", rule.Name(), at, err)
			}
			for _, a := range rule.ActiveAlerts() {
				if a.State == rules.StateFiring {
					if now[rule.Name()] == nil {
						now[rule.Name()] = map[string]labels.Labels{}
					}
					own := labels.NewBuilder(a.Labels).Del(labels.AlertName).Labels()
					now[rule.Name()][own.String()] = a.Annotations
				}
			}
		}
		history[at] = now
	}
	return history
}

// Whoever is woken knows how bad it is, what happened and where to read what to
// do.
func TestAlertsSayWhatToDo(t *testing.T) {
	text := read(t, guide)
	_, section, found := strings.Cut(text, "\n## Alerts\n")
	if !found {
		t.Fatalf("%s has no section Alerts", guide)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	sections := map[string]string{}
	for _, part := range strings.Split(section, "\n### ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		sections[name] = body
	}
	for _, a := range alerts(t) {
		severity := a.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q", a.Alert, severity)
		}
		if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 80 {
			t.Errorf("%s does not say what happened and what to do: %q", a.Alert, a.Annotations)
		}
		if want := "https://github.com/holdfast-dev/holdfast/blob/main/docs/monitoring.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if body, there := sections[a.Alert]; !there || !strings.HasPrefix(body, "*"+severity+".* ") || len(body) < 200 {
			t.Errorf("%s has no section in %s that begins with *%s.* and says what to do", a.Alert, guide, severity)
		}
		delete(sections, a.Alert)
	}
	for name := range sections {
		t.Errorf("%s has a section on %s, and there is no such alert", guide, name)
	}
}

// The webhooks that alerts are about are all that config/webhook has.
func TestAlertsAreAboutEveryWebhook(t *testing.T) {
	var names []string
	for _, file := range []string{"validating.yaml", "mutating.yaml"} {
		var object struct {
			Webhooks []struct {
				Name string `json:"name"`
			} `json:"webhooks"`
		}
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join(configuration, "../webhook", file))), &object); err != nil {
			t.Fatal(err)
		}
		for _, w := range object.Webhooks {
			names = append(names, w.Name)
		}
	}
	if len(names) < 10 {
		t.Fatalf("%d webhooks", len(names))
	}
	var load strings.Builder
	load.WriteString("load 1m\n")
	for _, name := range names {
		fmt.Fprintf(&load, "  apiserver_admission_webhook_fail_open_count{name=%q,type=\"validating\"} 0x9 5x10\n", name)
		fmt.Fprintf(&load, "  apiserver_admission_webhook_rejection_count{name=%q,type=\"validating\",operation=\"CREATE\",error_type=\"calling_webhook_error\",rejection_code=\"0\"} 0x9 5x10\n", name)
	}
	asked := []string{"HoldfastRequestsUnjudged", "HoldfastRequestsRefusedUnjudged"}
	now := watch(t, load.String(), 15*time.Minute, asked)[15*time.Minute]
	for _, alert := range asked {
		if got := len(now[alert]); got != len(names) {
			t.Errorf("%s fires for %d of %d webhooks", alert, got, len(names))
		}
	}
}
