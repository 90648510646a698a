package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/retention"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

const snapshotsPage = "snapshots.md"

// definition is the kind as it is installed.
func definition(t *testing.T) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(read(t, "../config/crd/holdfast.dev_snapshotschedules.yaml")), &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0]
}

// TestDefaultsAreTold: the table has each default of the spec, and no other.
func TestDefaultsAreTold(t *testing.T) {
	told := map[string]string{}
	for _, row := range table(t, read(t, snapshotsPage), "field of `spec`", "is") {
		told[code(row[0])] = code(row[1])
	}
	is := map[string]string{}
	var walk func(path string, s apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s apiextensionsv1.JSONSchemaProps) {
		if s.Default != nil && string(s.Default.Raw) != "{}" {
			is[path] = strings.Trim(string(s.Default.Raw), `"`)
		}
		for name, field := range s.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), field)
		}
	}
	walk("", definition(t).Schema.OpenAPIV3Schema.Properties["spec"])
	if diff := cmp.Diff(is, told); diff != "" {
		t.Errorf("defaults (-of the kind +of %s)\n%s", snapshotsPage, diff)
	}
}

// TestColumnsAreThoseOfTheKind: what kubectl prints has the columns of the example.
func TestColumnsAreThoseOfTheKind(t *testing.T) {
	want := []string{"NAMESPACE", "NAME"}
	for _, c := range definition(t).AdditionalPrinterColumns {
		if c.Priority == 0 {
			want = append(want, strings.ToUpper(c.Name))
		}
	}
	_, block, _ := strings.Cut(section(t, read(t, snapshotsPage), "Is it working?"), "$ kubectl get snapsched -A\n")
	head, _, _ := strings.Cut(block, "\n")
	if diff := cmp.Diff(want, regexp.MustCompile(` {2,}`).Split(head, -1)); diff != "" {
		t.Errorf("columns (-of the kind +of %s)\n%s", snapshotsPage, diff)
	}
}

// TestClockRowsAreComputed: what the guide promises of clocks that change.
func TestClockRowsAreComputed(t *testing.T) {
	for _, row := range table(t, read(t, snapshotsPage), "schedule", "timeZone", "after", "runs") {
		s, err := cron.Parse(code(row[0]), row[1])
		if err != nil {
			t.Errorf("%v: %v", row, err)
			continue
		}
		after, err := time.Parse(time.RFC3339, row[2])
		if err != nil {
			t.Errorf("%v: %v", row, err)
			continue
		}
		var runs []string
		for _, at := range s.Upcoming(after, strings.Count(row[3], ",")+1) {
			runs = append(runs, at.Format(time.RFC3339))
		}
		if want := strings.Join(runs, ", "); row[3] != want {
			t.Errorf("%s in %s after %s: the guide says %s, it is %s", row[0], row[1], row[2], row[3], want)
		}
	}
}

// TestMissedRowsArePlanned: what the guide promises after an outage is what the
// planner does with one claim that has a copy of the last run.
func TestMissedRowsArePlanned(t *testing.T) {
	const none = "–"
	at := func(text string) time.Time {
		t.Helper()
		when, err := time.Parse("2 Jan 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return when.AddDate(2027, 0, 0)
	}
	written := func(when time.Time) string { return when.Format("2 Jan 15:04") }
	for _, row := range table(t, read(t, snapshotsPage), "schedule", "last run", "manager is back at", "startingDeadlineSeconds", "catchUp", "makes up for", "missed", "next") {
		deadline, err := strconv.ParseInt(row[3], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		spec := v1alpha1.SnapshotScheduleSpec{Schedule: code(row[0]), StartingDeadlineSeconds: int32(deadline), CatchUp: v1alpha1.CatchUp(row[4])}
		ready, errs := schedule.Compile(&spec)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		last, before := at(row[1]), at(row[1]).AddDate(0, -1, 0)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "c", CreationTimestamp: metav1.NewTime(before)}}
		plan := schedule.Decide(at(row[2]), schedule.Observed{
			Namespace: "db", Name: "s", UID: "s", Created: before, Spec: spec, Cron: ready.Cron,
			Status:     v1alpha1.SnapshotScheduleStatus{ActiveSince: &metav1.Time{Time: before}, ObservedScheduleHash: schedule.Hash(&spec), LastScheduleTime: &metav1.Time{Time: last}},
			Candidates: []schedule.Candidate{{Claim: claim, Driver: "block.example.com", Class: "copies"}},
			Copies:     []copies.Copy{{Name: "last", ClaimUID: "c", Slot: copies.SlotOf(last), State: copies.Ready, Asked: last, Cut: last}},
		}, schedule.DefaultLimits())
		madeUp := none
		if len(plan.Create) == 1 {
			slot, err := time.Parse("20060102T150405Z", plan.Create[0].Labels[v1alpha1.LabelSlot])
			if err != nil {
				t.Fatal(err)
			}
			madeUp = written(slot)
		}
		got := []string{madeUp, strconv.Itoa(plan.Missed), written(plan.NextScheduleTime)}
		if diff := cmp.Diff(got, row[5:]); diff != "" {
			t.Errorf("%v (-the planner +the guide)\n%s", row, diff)
		}
	}
}

// TestRetentionExampleIsPlanned: the copies of the guide's example are those that
// the planner leaves, hour after hour.
func TestRetentionExampleIsPlanned(t *testing.T) {
	text := section(t, read(t, snapshotsPage), "How long copies live")
	if !strings.Contains(text, "since 1 January 2027 in `UTC`, with `keepLast: 3, hourly: 6, daily: 4, weekly: 3, monthly: 3`, a claim has these copies on 5 May 2027 at 12:20") {
		t.Fatal("the example is another than the one that is computed here")
	}
	rules := v1alpha1.SnapshotRetention{KeepLast: 3, Hourly: 6, Daily: 4, Weekly: 3, Monthly: 3}
	seen := retention.Observed{Rules: rules, Zone: time.UTC, Claims: map[types.UID]retention.Life{"c": retention.Living}}
	var plan retention.Plan
	for at, end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 5, 5, 12, 20, 0, 0, time.UTC); at.Before(end); at = at.Add(time.Hour) {
		name := at.Format(time.RFC3339)
		seen.Copies = append(seen.Copies, retention.Member{Copy: copies.Copy{Name: name, UID: types.UID(name), ClaimUID: "c", State: copies.Ready, Asked: at, Cut: at}})
		plan = retention.Decide(at.Add(20*time.Minute), seen)
		seen.Copies = nil
		for _, v := range plan.Keep {
			seen.Copies = append(seen.Copies, v.Member)
		}
	}
	var want [][]string
	for _, v := range slices.Backward(plan.Keep) {
		want = append(want, []string{v.Name, strings.TrimPrefix(v.Why, "it is ")})
	}
	if diff := cmp.Diff(want, table(t, text, "copy of", "kept, since it is")); diff != "" {
		t.Errorf("copies (-the planner +the guide)\n%s", diff)
	}
}

// TestLimitsAreTold: the bounds that the table tells are those that hold.
func TestLimitsAreTold(t *testing.T) {
	limits := schedule.DefaultLimits()
	ebs := limits.Volume["ebs.csi.aws.com"]
	listed := definition(t).Schema.OpenAPIV3Schema.Properties["status"].Properties["claims"].MaxItems
	rows := map[string]string{}
	for _, row := range table(t, section(t, read(t, snapshotsPage), "Limits"), "what", "at most", "else") {
		rows[row[0]] = row[1]
	}
	for what, want := range map[string]string{
		"copies asked for and not cut yet, in the cluster": strconv.Itoa(limits.Cluster),
		"the same of one VolumeSnapshotClass":              strconv.Itoa(limits.Class),
		"new copies of one EBS volume":                     "1 in " + ebs.Every.String(),
		"copies of one EBS volume in the making":           strconv.Itoa(ebs.Pending),
		"claims listed in the status":                      fmt.Sprint(*listed),
	} {
		if rows[what] != want {
			t.Errorf("%s: the guide says %q, it is %q", what, rows[what], want)
		}
	}
}

// constants are the string constants of the API that a rule picks, by value.
func constants(t *testing.T, files string, pick func(name, kind string) bool) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "api", "v1alpha1", files))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 {
				return true
			}
			kind := ""
			if named, is := spec.Type.(*ast.Ident); is {
				kind = named.Name
			}
			text, is := spec.Values[0].(*ast.BasicLit)
			if is && text.Kind == token.STRING && pick(spec.Names[0].Name, kind) {
				values = append(values, strings.Trim(text.Value, `"`))
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("no constants are found in %s", files)
	}
	slices.Sort(values)
	return values
}

// quoted finds what stands as code in a cell.
var quoted = regexp.MustCompile("`([^`]+)`")

// TestReasonsHaveRows: who reads a reason in the status finds its row here, for
// conditions and for claims, and no row is of a reason that is none.
func TestReasonsHaveRows(t *testing.T) {
	text := section(t, read(t, snapshotsPage), "Reasons in the status")
	first := func(rows [][]string, column int) (all []string) {
		for _, row := range rows {
			all = append(all, code(row[column]))
		}
		slices.Sort(all)
		return all
	}
	ofClaims := table(t, text, "reason of a claim", "means", "do")
	if diff := cmp.Diff(constants(t, "*.go", func(_, kind string) bool { return kind == "ClaimReason" }), first(ofClaims, 0)); diff != "" {
		t.Errorf("reasons of claims (-of the kind +of %s)\n%s", snapshotsPage, diff)
	}
	ofConditions := table(t, text, "condition", "reason", "means", "do")
	reasons := constants(t, "snapshotschedule_types.go", func(name, kind string) bool { return kind == "" && strings.HasPrefix(name, "Reason") })
	if diff := cmp.Diff(reasons, slices.Compact(first(ofConditions, 1))); diff != "" {
		t.Errorf("reasons of conditions (-of the kind +of %s)\n%s", snapshotsPage, diff)
	}
	conditions := []string{}
	for _, row := range ofConditions {
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			conditions = append(conditions, m[1])
		}
	}
	slices.Sort(conditions)
	kinds := append(constants(t, "snapshotschedule_types.go", func(name, _ string) bool { return strings.HasPrefix(name, "Condition") }), "Ready")
	slices.Sort(kinds)
	if diff := cmp.Diff(kinds, slices.Compact(conditions)); diff != "" {
		t.Errorf("conditions (-of the kind +of %s)\n%s", snapshotsPage, diff)
	}
}
