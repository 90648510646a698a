//go:build envtest

package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestStoragePolicySchema asks a real API server, since markers and CEL are
// only as good as what it makes of them. Bad values go in as plain YAML: Go's
// types could not hold them.
func TestStoragePolicySchema(t *testing.T) {
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
			why: "all that the design shows of guardrails is accepted",
			spec: `
priority: 100
match: {namespaceSelector: {matchLabels: {tier: db}}, claimSelector: {}, storageClassNames: [gp3], provisioners: [ebs.csi.aws.com]}
guardrails:
  action: Deny
  overrides: [{rule: claim.maxSize, action: Warn}]
  storageClass:
    allowed: [gp3-encrypted]
    inTreeProvisioners: Forbidden
    parameters: [{key: encrypted, values: ["true"]}, {key: type, values: [gp3, io2]}]
    volumeBindingMode: WaitForFirstConsumer
    allowVolumeExpansion: Required
    reclaimPolicy: Retain
    maxIOPS: 16000
  attributesClass: {allowed: []}
  snapshotClass: {deletionPolicy: Retain}
  claim: {minSize: 1Gi, maxSize: 2Ti, maxGrowthPercent: 100, accessModes: [ReadWriteOnce, ReadWriteOncePod], volumeModes: [Filesystem]}
  statefulSet: {whenDeleted: Retain, whenScaled: Retain, minTerminationGracePeriodSeconds: 30, podDisruptionBudget: Required}
  deletion: {protect: WhenBound, allow: RecentSnapshot, snapshotNotOlderThanSeconds: 86400}
  scaleDown: {snapshotNotOlderThanSeconds: 3600}
exemptions: [{selector: {matchLabels: {a: b}}, rules: [claim.maxSize], reason: migration, until: "2027-01-31T00:00:00Z"}]`,
		},
		"a size as a number":      {why: "a Quantity may be written as a number of bytes", spec: `guardrails: {claim: {minSize: 1073741824, maxSize: 2Gi}}`},
		"no quantity":             {why: "what matches the pattern and cannot be read would stop the manager from reading any policy", spec: `guardrails: {claim: {maxSize: 1e1.5}}`, want: "spec.guardrails.claim.maxSize"},
		"no least quantity":       {why: "likewise", spec: `guardrails: {claim: {minSize: 1E.5}}`, want: "spec.guardrails.claim.minSize"},
		"equal bounds":            {why: "one size alone may be allowed", spec: `guardrails: {claim: {minSize: 1Gi, maxSize: 1024Mi}}`},
		"defaults":                {why: "claims are picked by their labels and namespaces", spec: `match: {namespaceSelector: {matchLabels: {tier: db}}, claimSelector: {matchLabels: {a: b}}, storageClassNames: []}` + "\n" + `defaults: {storageClassName: gp3}`},
		"defaults by class":       {why: "a claim that names no class has none of these", spec: `match: {storageClassNames: [gp2]}` + "\n" + `defaults: {storageClassName: gp3}`, want: "spec.defaults"},
		"defaults by provisioner": {why: "nor a provisioner", spec: `match: {provisioners: [ebs.csi.aws.com]}` + "\n" + `defaults: {storageClassName: gp3}`, want: "spec.defaults"},
		"a size below nothing":    {why: "every claim would break it", spec: `guardrails: {claim: {maxSize: -1Gi}}`, want: "maxSize must be above 0"},
		"no size at all":          {why: "and none could keep this", spec: `guardrails: {claim: {maxSize: 0}}`, want: "maxSize must be above 0"},
		"a least size of 0":       {why: "what has no effect is not accepted", spec: `guardrails: {claim: {minSize: 0Gi}}`, want: "minSize must be above 0"},
		"does nothing":            {why: "a policy that holds nothing is a mistake", spec: `priority: 1`, want: "does nothing"},
		"no rule":                 {why: "so are guardrails without a rule", spec: `guardrails: {action: Warn}`, want: "guardrails without a rule"},
		"empty rule group":        {why: "and a group without one", spec: `guardrails: {claim: {}}`, want: "spec.guardrails.claim"},
		"contradicting bounds":    {why: "no claim could keep them", spec: `guardrails: {claim: {minSize: 2Gi, maxSize: 1025Mi}}`, want: "spec.guardrails.claim.minSize"},
		"bounds as bytes":         {why: "compared as sizes, not as texts", spec: `guardrails: {claim: {minSize: 9, maxSize: 10}}`},
		"bad size":                {why: "a size must be one", spec: `guardrails: {claim: {maxSize: large}}`, want: "spec.guardrails.claim.maxSize"},
		"unknown field":           {why: "a typing error must not pass for a rule", spec: `guardrails: {claim: {maxsize: 1Gi}}`, want: "maxsize"},
		"unknown rule":            {why: "an override of nothing", spec: `guardrails: {claim: {maxSize: 1Gi}, overrides: [{rule: claim.size, action: Warn}]}`, want: "spec.guardrails.overrides[0].rule"},
		"rule twice":              {why: "which action would hold?", spec: `guardrails: {claim: {maxSize: 1Gi}, overrides: [{rule: claim.maxSize, action: Warn}, {rule: claim.maxSize, action: Deny}]}`, want: "spec.guardrails.overrides[1]"},
		"unknown action":          {why: "actions are three", spec: `guardrails: {action: Refuse, claim: {maxSize: 1Gi}}`, want: "spec.guardrails.action"},
		"unknown time":            {why: "an exemption whose end is none would never end", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: tomorrow}]`, want: "spec.exemptions[0].until"},
		"time in small letters":   {why: "what the format takes and Go cannot read would stop the manager from reading any policy", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: "2027-01-31T00:00:00z"}]`, want: "spec.exemptions[0].until"},
		"small t":                 {why: "likewise", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: "2027-01-31t00:00:00Z"}]`, want: "spec.exemptions[0].until"},
		"offset of no place":      {why: "likewise", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: "2027-01-31T00:00:00+25:00"}]`, want: "spec.exemptions[0].until"},
		"fraction by comma":       {why: "likewise", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: "2027-01-31T00:00:00,5Z"}]`, want: "spec.exemptions[0].until"},
		"time with offset":        {why: "an offset is as good as Z", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: "2027-01-31T00:00:00.5+02:00"}]`},
		"no time":                 {why: "an exemption ends", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not}]`, want: "spec.exemptions[0].until"},
		"no reason":               {why: "an exemption says why", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0].reason"},
		"empty exemption":         {why: "it would switch the policy off", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{reason: why not, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0]"},
		"exemption for all":       {why: "an empty selector is everything", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {}, namespaceSelector: {}, reason: why not, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0]"},
		"age without use":         {why: "what has no effect is not accepted", spec: `guardrails: {deletion: {allow: OverrideOnly, snapshotNotOlderThanSeconds: 3600}}`, want: "spec.guardrails.deletion.snapshotNotOlderThanSeconds"},
		"deletion by default":     {why: "defaults protect bound claims", spec: `guardrails: {deletion: {}}`},
		"access mode":             {why: "access modes are four", spec: `guardrails: {claim: {accessModes: [RWO]}}`, want: "spec.guardrails.claim.accessModes[0]"},
		"parameter without any":   {why: "a parameter that may have no value at all", spec: `guardrails: {storageClass: {parameters: [{key: type, values: []}]}}`, want: "spec.guardrails.storageClass.parameters[0].values"},
		"schedules": {
			why:  "all that the design shows of schedules is accepted, and a policy may do nothing else",
			spec: `snapshots: {required: Warn, schedules: [{name: daily, spec: {schedule: "0 3 * * *", retention: {keepLast: 7}}}, {name: hourly, spec: {schedule: "@hourly", onScheduleDelete: Retain, target: {claimSelector: {matchLabels: {tier: db}}}}}]}`,
		},
		"snapshots required alone": {why: "who makes the schedules is the namespace's affair", spec: `snapshots: {required: Deny}`},
		"orphans alone":            {why: "they are reason enough for a policy, and have defaults", spec: `orphans: {}`},
		"orphans":                  {why: "all that the design shows of them", spec: `orphans: {afterSeconds: 604800, action: SnapshotThenDelete}`},
		"orphans at once":          {why: "a set that is being recreated leaves claims for a moment", spec: `orphans: {afterSeconds: 59}`, want: "spec.orphans.afterSeconds"},
		"unknown end of orphans":   {why: "actions are three", spec: `orphans: {action: Archive}`, want: "spec.orphans.action"},
		"snapshots of nothing":     {why: "what does nothing is a mistake", spec: `snapshots: {}`, want: "do nothing"},
		"no schedules":             {why: "likewise", spec: `snapshots: {schedules: []}`, want: "do nothing"},
		"unknown demand":           {why: "actions are three", spec: `snapshots: {required: Always}`, want: "spec.snapshots.required"},
		"schedule twice":           {why: "which one would be made?", spec: `snapshots: {schedules: [{name: a, spec: {schedule: "@daily"}}, {name: a, spec: {schedule: "@weekly"}}]}`, want: "spec.snapshots.schedules[1]"},
		"schedule without a name":  {why: "it is part of the object's", spec: `snapshots: {schedules: [{spec: {schedule: "@daily"}}]}`, want: "spec.snapshots.schedules[0].name"},
		"schedule of no name":      {why: "likewise", spec: `snapshots: {schedules: [{name: a.b, spec: {schedule: "@daily"}}]}`, want: "spec.snapshots.schedules[0].name"},
		"schedule without a time":  {why: "the spec is that of a SnapshotSchedule", spec: `snapshots: {schedules: [{name: a, spec: {}}]}`, want: "spec.snapshots.schedules[0].spec.schedule"},
		"unknown catch-up":         {why: "likewise", spec: `snapshots: {schedules: [{name: a, spec: {schedule: "@daily", catchUp: All}}]}`, want: "spec.snapshots.schedules[0].spec.catchUp"},
		"copies that would go":     {why: "a label taken off a namespace would delete every copy", spec: `snapshots: {schedules: [{name: a, spec: {schedule: "@daily", onScheduleDelete: Delete}}]}`, want: "spec.snapshots.schedules[0].spec.onScheduleDelete"},
		"hooks":                    {why: "commands in the Pods of every matching namespace", spec: `snapshots: {schedules: [{name: a, spec: {schedule: "@daily", hooks: {before: [{command: [sync]}]}}}]}`, want: "spec.snapshots.schedules[0].spec.hooks"},
		"expansion": {
			why: "all that the design shows of it is accepted, and a policy may do nothing else",
			spec: `expansion: {mode: Auto, trigger: {usedPercent: 80, freeBytes: 10Gi, inodesUsedPercent: 90, forSeconds: 60}, step: {percent: 20, min: 5Gi, max: 500Gi}, maxSize: 2Ti,
  cooldownSeconds: 900, budget: {modifications: 4, windowSeconds: 86400, reserve: 1}, statefulSetTemplate: RaiseAtCreate}`,
		},
		"expansion by default":      {why: "a bound is all that must be said", spec: `expansion: {maxSize: 2Ti}`},
		"no cooldown":               {why: "0 is a number of seconds", spec: `expansion: {maxSize: 2Ti, cooldownSeconds: 0}`},
		"no bound":                  {why: "growth without an end is a bill without one", spec: `expansion: {mode: Auto}`, want: "spec.expansion.maxSize"},
		"bound of no size":          {why: "what cannot be read would stop the manager from reading any policy", spec: `expansion: {maxSize: 1e1.5}`, want: "spec.expansion.maxSize"},
		"bound below a GiB":         {why: "claims grow to whole GiB", spec: `expansion: {maxSize: 500Mi}`, want: "at least 1Gi"},
		"trigger of nothing":        {why: "it never fires", spec: `expansion: {maxSize: 2Ti, trigger: {forSeconds: 60}}`, want: "never fires"},
		"full":                      {why: "at 100 percent the writer has failed", spec: `expansion: {maxSize: 2Ti, trigger: {usedPercent: 100}}`, want: "spec.expansion.trigger.usedPercent"},
		"free of nothing":           {why: "nothing is below 0", spec: `expansion: {maxSize: 2Ti, trigger: {freeBytes: "0"}}`, want: "spec.expansion.trigger.freeBytes"},
		"step that is contrary":     {why: "no step keeps both", spec: `expansion: {maxSize: 2Ti, step: {min: 5Gi, max: 4Gi}}`, want: "spec.expansion.step.min"},
		"step above the bound":      {why: "no claim could ever grow", spec: `expansion: {maxSize: 2Gi, step: {min: 5Gi}}`, want: "step.min is above maxSize"},
		"step of no size":           {why: "likewise", spec: `expansion: {maxSize: 2Gi, step: {min: 1E.5}}`, want: "spec.expansion.step.min"},
		"step below a GiB":          {why: "claims grow to whole GiB", spec: `expansion: {maxSize: 2Gi, step: {min: 1Mi, max: 10Mi}}`, want: "spec.expansion.step.max"},
		"budget of nothing":         {why: "a budget of no modification is no expansion", spec: `expansion: {maxSize: 2Ti, budget: {modifications: 0}}`, want: "spec.expansion.budget.modifications"},
		"budget without a number":   {why: "likewise", spec: `expansion: {maxSize: 2Ti, budget: {windowSeconds: 60}}`, want: "spec.expansion.budget.modifications"},
		"reserve above the budget":  {why: "there are no more to keep back", spec: `expansion: {maxSize: 2Ti, budget: {modifications: 2, reserve: 3}}`, want: "spec.expansion.budget.reserve"},
		"unknown mode":              {why: "modes are two", spec: `expansion: {maxSize: 2Ti, mode: Manual}`, want: "spec.expansion.mode"},
		"unknown fate of templates": {why: "there are three", spec: `expansion: {maxSize: 2Ti, statefulSetTemplate: Replace}`, want: "spec.expansion.statefulSetTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &unstructured.Unstructured{Object: map[string]any{}}
			if err := yaml.Unmarshal([]byte(tc.spec), &policy.Object); err != nil {
				t.Fatal(err)
			}
			policy.Object = map[string]any{"spec": policy.Object}
			policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StoragePolicy"))
			policy.SetName(strings.ReplaceAll(strings.ToLower(name), " ", "-"))
			err := client.WithFieldValidation(c, "Strict").Create(t.Context(), policy, client.DryRunAll)
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
