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
defaults: {storageClassName: gp3-encrypted}
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
		"a size as a number":    {why: "a Quantity may be written as a number of bytes", spec: `guardrails: {claim: {minSize: 1073741824, maxSize: 2Gi}}`},
		"equal bounds":          {why: "one size alone may be allowed", spec: `guardrails: {claim: {minSize: 1Gi, maxSize: 1024Mi}}`},
		"does nothing":          {why: "a policy that holds nothing is a mistake", spec: `priority: 1`, want: "does nothing"},
		"no rule":               {why: "so are guardrails without a rule", spec: `guardrails: {action: Warn}`, want: "guardrails without a rule"},
		"empty rule group":      {why: "and a group without one", spec: `guardrails: {claim: {}}`, want: "spec.guardrails.claim"},
		"contradicting bounds":  {why: "no claim could keep them", spec: `guardrails: {claim: {minSize: 2Gi, maxSize: 1025Mi}}`, want: "spec.guardrails.claim.minSize"},
		"bounds as bytes":       {why: "compared as sizes, not as texts", spec: `guardrails: {claim: {minSize: 9, maxSize: 10}}`},
		"bad size":              {why: "a size must be one", spec: `guardrails: {claim: {maxSize: large}}`, want: "spec.guardrails.claim.maxSize"},
		"unknown field":         {why: "a typing error must not pass for a rule", spec: `guardrails: {claim: {maxsize: 1Gi}}`, want: "maxsize"},
		"unknown rule":          {why: "an override of nothing", spec: `guardrails: {claim: {maxSize: 1Gi}, overrides: [{rule: claim.size, action: Warn}]}`, want: "spec.guardrails.overrides[0].rule"},
		"rule twice":            {why: "which action would hold?", spec: `guardrails: {claim: {maxSize: 1Gi}, overrides: [{rule: claim.maxSize, action: Warn}, {rule: claim.maxSize, action: Deny}]}`, want: "spec.guardrails.overrides[1]"},
		"unknown action":        {why: "actions are three", spec: `guardrails: {action: Refuse, claim: {maxSize: 1Gi}}`, want: "spec.guardrails.action"},
		"unknown time":          {why: "an exemption whose end is none would never end", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not, until: tomorrow}]`, want: "spec.exemptions[0].until"},
		"no time":               {why: "an exemption ends", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, reason: why not}]`, want: "spec.exemptions[0].until"},
		"no reason":             {why: "an exemption says why", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {matchLabels: {a: b}}, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0].reason"},
		"empty exemption":       {why: "it would switch the policy off", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{reason: why not, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0]"},
		"exemption for all":     {why: "an empty selector is everything", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `exemptions: [{selector: {}, namespaceSelector: {}, reason: why not, until: "2027-01-31T00:00:00Z"}]`, want: "spec.exemptions[0]"},
		"age without use":       {why: "what has no effect is not accepted", spec: `guardrails: {deletion: {allow: OverrideOnly, snapshotNotOlderThanSeconds: 3600}}`, want: "spec.guardrails.deletion.snapshotNotOlderThanSeconds"},
		"deletion by default":   {why: "defaults protect bound claims", spec: `guardrails: {deletion: {}}`},
		"access mode":           {why: "access modes are four", spec: `guardrails: {claim: {accessModes: [RWO]}}`, want: "spec.guardrails.claim.accessModes[0]"},
		"parameter without any": {why: "a parameter that may have no value at all", spec: `guardrails: {storageClass: {parameters: [{key: type, values: []}]}}`, want: "spec.guardrails.storageClass.parameters[0].values"},
		"growth of nothing":     {why: "a field of later work is not there", spec: `guardrails: {claim: {maxSize: 1Gi}}` + "\n" + `expansion: {mode: Auto}`, want: "expansion"},
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
