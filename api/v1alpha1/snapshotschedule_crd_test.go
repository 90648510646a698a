//go:build envtest

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestSnapshotScheduleSchema asks a real API server. Bad values go in as plain
// YAML: Go's types could not hold them.
func TestSnapshotScheduleSchema(t *testing.T) {
	c, err := client.New(testenv.APIServer(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		why  string
		spec string
		want string // part of the refusal; empty: accepted
	}{
		"the shape of the design": {
			why: "all that the design shows is accepted",
			spec: `
schedule: "0 * * * *"
timeZone: Asia/Tokyo
jitterSeconds: 300
startingDeadlineSeconds: 1800
catchUp: Latest
suspend: false
concurrencyPolicy: Forbid
target: {claimSelector: {}, statefulSetName: postgresql, storageClassNames: []}
snapshotClassName: ebs-snapshot-class
snapshotClassNamesByDriver: [{driver: ebs.csi.aws.com, name: ebs-snapshot-class}]
template: {labels: {team: db}, annotations: {why: "any text"}}
readyDeadlineSeconds: 86400
retention: {keepLast: 3, keepWithinSeconds: 0, hourly: 24, daily: 7, weekly: 4, monthly: 12, yearly: 0, failed: {keep: 3, deleteAfterSeconds: 86400}, contents: Delete}
onClaimDelete: KeepNewest`,
		},
		"hooks": {
			why: "all that the design shows of hooks is accepted",
			spec: `
schedule: "@daily"
hooks:
  before: [{podSelector: {matchLabels: {app: pg}}, container: pg, command: [psql, -c, CHECKPOINT], timeoutSeconds: 20, onError: Fail}, {command: [fsfreeze, -f, /data], onError: Continue}]
  after: [{command: [fsfreeze, -u, /data]}]
  maxFreezeSeconds: 30`,
		},
		"nothing before":           {why: "there would be nothing to undo", spec: `{schedule: "@daily", hooks: {after: [{command: [a]}]}}`, want: "spec.hooks.before"},
		"no hook before":           {why: "likewise", spec: `{schedule: "@daily", hooks: {before: []}}`, want: "spec.hooks.before"},
		"nine hooks":               {why: "a freeze is short", spec: `{schedule: "@daily", hooks: {before: [` + strings.Repeat("{command: [a]}, ", 9) + `]}}`, want: "spec.hooks.before: Too many"},
		"no command":               {why: "a hook runs something", spec: `{schedule: "@daily", hooks: {before: [{container: a}]}}`, want: "spec.hooks.before[0].command"},
		"empty command":            {why: "a hook runs something", spec: `{schedule: "@daily", hooks: {before: [{command: []}]}}`, want: "spec.hooks.before[0].command"},
		"empty program":            {why: "no program has this name", spec: `{schedule: "@daily", hooks: {before: [{command: ["", a]}]}}`, want: "the program to run"},
		"empty argument":           {why: "arguments may be empty", spec: `{schedule: "@daily", hooks: {before: [{command: [a, ""]}]}}`},
		"command as text":          {why: "there is no shell", spec: `{schedule: "@daily", hooks: {before: [{command: "sync"}]}}`, want: "spec.hooks.before[0].command"},
		"no time":                  {why: "every hook would fail", spec: `{schedule: "@daily", hooks: {before: [{command: [a], timeoutSeconds: 0}]}}`, want: "spec.hooks.before[0].timeoutSeconds"},
		"an hour for a hook":       {why: "a freeze is short", spec: `{schedule: "@daily", hooks: {before: [{command: [a], timeoutSeconds: 301}]}}`, want: "spec.hooks.before[0].timeoutSeconds"},
		"unknown onError":          {why: "there are two", spec: `{schedule: "@daily", hooks: {before: [{command: [a], onError: Ignore}]}}`, want: "spec.hooks.before[0].onError"},
		"onError after":            {why: "hooks of after run whatever happens", spec: `{schedule: "@daily", hooks: {before: [{command: [a]}], after: [{command: [a], onError: Continue}]}}`, want: "onError"},
		"frozen for no time":       {why: "nothing could be cut", spec: `{schedule: "@daily", hooks: {before: [{command: [a]}], maxFreezeSeconds: 0}}`, want: "spec.hooks.maxFreezeSeconds"},
		"frozen for long":          {why: "a database that is frozen is down", spec: `{schedule: "@daily", hooks: {before: [{command: [a]}], maxFreezeSeconds: 601}}`, want: "spec.hooks.maxFreezeSeconds"},
		"the least":                {why: "a schedule is all that is needed", spec: `schedule: "@daily"`},
		"no schedule":              {why: "nothing would ever run", spec: `timeZone: UTC`, want: "spec.schedule: Required"},
		"empty schedule":           {why: "nor by this", spec: `schedule: ""`, want: "spec.schedule"},
		"long schedule":            {why: "what is stored is bounded", spec: `schedule: "` + strings.Repeat("1,", 128) + `1 * * * *"`, want: "spec.schedule: Too long"},
		"empty zone":               {why: "absent is UTC, empty is a mistake", spec: `{schedule: "@daily", timeZone: ""}`, want: "spec.timeZone"},
		"long zone":                {why: "what is stored is bounded", spec: `{schedule: "@daily", timeZone: ` + strings.Repeat("a", 65) + `}`, want: "spec.timeZone: Too long"},
		"negative jitter":          {why: "nothing runs before its time", spec: `{schedule: "@daily", jitterSeconds: -1}`, want: "spec.jitterSeconds"},
		"jitter of a day":          {why: "the most that is of use", spec: `{schedule: "@weekly", jitterSeconds: 86400}`},
		"more than a day":          {why: "a typing error", spec: `{schedule: "@weekly", jitterSeconds: 86401}`, want: "spec.jitterSeconds"},
		"no deadline":              {why: "a restart of the manager would miss runs", spec: `{schedule: "@daily", startingDeadlineSeconds: 59}`, want: "spec.startingDeadlineSeconds"},
		"deadline past a month":    {why: "copies of last month are not begun", spec: `{schedule: "@daily", startingDeadlineSeconds: 2678401}`, want: "spec.startingDeadlineSeconds"},
		"duration as text":         {why: "seconds are numbers", spec: `{schedule: "@daily", startingDeadlineSeconds: 1h}`, want: "spec.startingDeadlineSeconds"},
		"unknown catch-up":         {why: "there are two", spec: `{schedule: "@daily", catchUp: All}`, want: "spec.catchUp"},
		"unknown concurrency":      {why: "no copy in the making is thrown away", spec: `{schedule: "@daily", concurrencyPolicy: Replace}`, want: "spec.concurrencyPolicy"},
		"suspend as text":          {why: "yes or no", spec: `{schedule: "@daily", suspend: "true"}`, want: "spec.suspend"},
		"empty set":                {why: "absent is any set, empty is a mistake", spec: `{schedule: "@daily", target: {statefulSetName: ""}}`, want: "spec.target.statefulSetName"},
		"class twice":              {why: "a set has each once", spec: `{schedule: "@daily", target: {storageClassNames: [a, a]}}`, want: "spec.target.storageClassNames[1]"},
		"class without a name":     {why: "static claims have no class to copy by", spec: `{schedule: "@daily", target: {storageClassNames: [""]}}`, want: "spec.target.storageClassNames[0]"},
		"empty snapshot class":     {why: "absent is the default class, empty is a mistake", spec: `{schedule: "@daily", snapshotClassName: ""}`, want: "spec.snapshotClassName"},
		"driver twice":             {why: "which class would hold?", spec: `{schedule: "@daily", snapshotClassNamesByDriver: [{driver: a, name: b}, {driver: a, name: c}]}`, want: "spec.snapshotClassNamesByDriver[1]"},
		"driver without a class":   {why: "a row says both", spec: `{schedule: "@daily", snapshotClassNamesByDriver: [{driver: a}]}`, want: "spec.snapshotClassNamesByDriver[0].name"},
		"class without a driver":   {why: "a row says both", spec: `{schedule: "@daily", snapshotClassNamesByDriver: [{name: a}]}`, want: "spec.snapshotClassNamesByDriver[0].driver"},
		"33 drivers":               {why: "what is stored is bounded", spec: `{schedule: "@daily", snapshotClassNamesByDriver: [` + drivers(33) + `]}`, want: "spec.snapshotClassNamesByDriver: Too many"},
		"ready at once":            {why: "no copy would count as ready", spec: `{schedule: "@daily", readyDeadlineSeconds: 59}`, want: "spec.readyDeadlineSeconds"},
		"ready never":              {why: "a copy that fails would never be told", spec: `{schedule: "@daily", readyDeadlineSeconds: 2678401}`, want: "spec.readyDeadlineSeconds"},
		"nothing kept":             {why: "the last good copy is never lost", spec: `{schedule: "@daily", retention: {keepLast: 0}}`, want: "spec.retention.keepLast"},
		"too many kept":            {why: "a typing error", spec: `{schedule: "@daily", retention: {keepLast: 10001}}`, want: "spec.retention.keepLast"},
		"negative age":             {why: "an age is none", spec: `{schedule: "@daily", retention: {keepWithinSeconds: -1}}`, want: "spec.retention.keepWithinSeconds"},
		"an age past all bounds":   {why: "what Go cannot read would keep the manager from reading any schedule", spec: `{schedule: "@daily", retention: {keepWithinSeconds: 2147483648}}`, want: "spec.retention.keepWithinSeconds"},
		"negative hours":           {why: "a count is none", spec: `{schedule: "@daily", retention: {hourly: -1}}`, want: "spec.retention.hourly"},
		"days past all bounds":     {why: "a typing error", spec: `{schedule: "@daily", retention: {daily: 10001}}`, want: "spec.retention.daily"},
		"half a week":              {why: "a count is whole", spec: `{schedule: "@daily", retention: {weekly: 0.5}}`, want: "spec.retention.weekly"},
		"negative months":          {why: "a count is none", spec: `{schedule: "@daily", retention: {monthly: -1}}`, want: "spec.retention.monthly"},
		"negative years":           {why: "a count is none", spec: `{schedule: "@daily", retention: {yearly: -1}}`, want: "spec.retention.yearly"},
		"no failed copies":         {why: "one may not want to see them", spec: `{schedule: "@daily", retention: {failed: {keep: 0}}}`},
		"too many failed":          {why: "failed copies are bounded", spec: `{schedule: "@daily", retention: {failed: {keep: 101}}}`, want: "spec.retention.failed.keep"},
		"failed gone at once":      {why: "somebody is to see them", spec: `{schedule: "@daily", retention: {failed: {deleteAfterSeconds: 59}}}`, want: "spec.retention.failed.deleteAfterSeconds"},
		"failed past all bounds":   {why: "what Go cannot read would keep the manager from reading any schedule", spec: `{schedule: "@daily", retention: {failed: {deleteAfterSeconds: 4294967296}}}`, want: "spec.retention.failed.deleteAfterSeconds"},
		"unknown contents":         {why: "there are two", spec: `{schedule: "@daily", retention: {contents: Retain}}`, want: "spec.retention.contents"},
		"unknown end of a claim":   {why: "there are three", spec: `{schedule: "@daily", onClaimDelete: Delete}`, want: "spec.onClaimDelete"},
		"unknown field":            {why: "a typing error must not pass for a rule", spec: `{schedule: "@daily", retention: {keeplast: 9}}`, want: "keeplast"},
		"the field of a CronJob":   {why: "nor the words of another kind", spec: `{schedule: "@daily", successfulJobsHistoryLimit: 3}`, want: "successfulJobsHistoryLimit"},
		"a label that is a number": {why: "labels are texts", spec: `{schedule: "@daily", template: {labels: {a: 1}}}`, want: "spec.template.labels.a"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.spec), &spec); err != nil {
				t.Fatal(err)
			}
			s := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SnapshotSchedule"))
			s.SetNamespace("default")
			s.SetName("s")
			err := client.WithFieldValidation(c, "Strict").Create(t.Context(), s, client.DryRunAll)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: refused: %v", tc.why, err)
			case tc.want != "" && err == nil:
				t.Errorf("%s: accepted, want a refusal with %q", tc.why, tc.want)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("%s: refused with %q, want it to name %q", tc.why, err, tc.want)
			}
		})
	}
}

// drivers are rows of snapshotClassNamesByDriver.
func drivers(n int) string {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("{driver: d%d, name: a}", i))
	}
	return strings.Join(rows, ", ")
}
