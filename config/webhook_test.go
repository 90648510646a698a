package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
)

// timeoutSeconds is how long the API server waits for an answer.
const timeoutSeconds = 5

// TestWebhooksHoldNothingUp: only in namespaces labelled strict does a request
// fail for want of an answer, never in a system namespace, never one for an
// object that is in no namespace; and what goes with its namespace is not asked
// about, so that one that has begun to go does not wait for a manager.
func TestWebhooksHoldNothingUp(t *testing.T) {
	objects := render(t, "webhook")
	validating := find[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration/holdfast")
	byName := map[string]admissionregistrationv1.ValidatingWebhook{}
	for _, w := range validating.Webhooks {
		byName[w.Name] = w
	}
	if admit.Timeout >= timeoutSeconds*time.Second {
		t.Errorf("a judge has %v and the API server waits %d s: nobody would say what took so long", admit.Timeout, timeoutSeconds)
	}
	strict, opened, hooks := 0, 0, 0
	for name, w := range byName {
		if *w.SideEffects != admissionregistrationv1.SideEffectClassNone || *w.TimeoutSeconds != timeoutSeconds {
			t.Errorf("%s has side effects %s and %d s of time; want none, and 5 s", name, *w.SideEffects, *w.TimeoutSeconds)
		}
		skips := slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
			return c.Expression == "request.operation != 'DELETE' || request.userInfo.username != 'system:serviceaccount:kube-system:namespace-controller'"
		})
		if deletesInNamespace(w.Rules) && !skips {
			t.Errorf("%s is asked about what goes with its namespace", name)
		}
		if *w.FailurePolicy == admissionregistrationv1.Ignore {
			continue
		}
		if name == "namespaces-opened.holdfast.dev" {
			checkOpened(t, w, byName["namespaces.holdfast.dev"])
			opened++
			continue
		}
		if name == "snapshotschedules-hooks.holdfast.dev" {
			checkHooks(t, w, byName["snapshotschedules.holdfast.dev"])
			hooks++
			continue
		}
		strict++
		checkStrict(t, w, byName[strings.Replace(name, ".strict.", ".", 1)])
	}
	if strict != 7 {
		t.Errorf("%d webhooks fail without an answer, want 7: claims, StatefulSets, their scale, snapshots, groups of them, their schedules, namespaces", strict)
	}
	if opened != 1 {
		t.Errorf("%d webhooks fail without an answer where a namespace is strict no longer, want 1", opened)
	}
	if hooks != 1 {
		t.Errorf("%d webhooks fail without an answer for schedules with hooks, want 1", hooks)
	}
}

// TestDefaultsHoldNothingUp: what fills in is asked about claims that are made,
// outside of system namespaces, and is never a reason to fail.
func TestDefaultsHoldNothingUp(t *testing.T) {
	mutating := find[*admissionregistrationv1.MutatingWebhookConfiguration](t, render(t, "webhook"), "MutatingWebhookConfiguration/holdfast")
	if len(mutating.Webhooks) != 1 {
		t.Fatalf("%d webhooks fill in, want that of claims", len(mutating.Webhooks))
	}
	w := mutating.Webhooks[0]
	if *w.FailurePolicy != admissionregistrationv1.Ignore || *w.SideEffects != admissionregistrationv1.SideEffectClassNone || *w.TimeoutSeconds != timeoutSeconds {
		t.Errorf("%s has failurePolicy %s, side effects %s and %d s of time; want Ignore, none, and 5 s", w.Name, *w.FailurePolicy, *w.SideEffects, *w.TimeoutSeconds)
	}
	namespaces := []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: v1alpha1.SystemNamespaces()},
	}
	if diff := cmp.Diff(namespaces, w.NamespaceSelector.MatchExpressions); diff != "" {
		t.Errorf("%s is asked about other namespaces (-want +got)\n%s", w.Name, diff)
	}
	scope := admissionregistrationv1.NamespacedScope
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumeclaims"}, Scope: &scope},
	}}
	if diff := cmp.Diff(rules, w.Rules); diff != "" {
		t.Errorf("%s is asked about something else than new claims (-want +got)\n%s", w.Name, diff)
	}
}

func deletesInNamespace(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return *r.Scope == admissionregistrationv1.NamespacedScope && slices.Contains(r.Operations, admissionregistrationv1.Delete)
	})
}

// checkStrict holds that a webhook that fails closed asks what its twin asks,
// in other namespaces.
func checkStrict(t *testing.T, strict, twin admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	want := []metav1.LabelSelectorRequirement{
		{Key: "holdfast.dev/enforce", Operator: metav1.LabelSelectorOpIn, Values: []string{"strict"}},
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "kube-public", "kube-node-lease", "holdfast-system"}},
	}
	if diff := cmp.Diff(want, strict.NamespaceSelector.MatchExpressions); diff != "" {
		t.Errorf("%s fails in other namespaces than it may (-want +got)\n%s", strict.Name, diff)
	}
	want[0].Operator = metav1.LabelSelectorOpNotIn
	if twin.NamespaceSelector == nil {
		t.Fatalf("%s has no twin for all other namespaces", strict.Name)
	}
	if diff := cmp.Diff(want, twin.NamespaceSelector.MatchExpressions); diff != "" {
		t.Errorf("%s and %s leave a namespace out or have one in common (-want +got)\n%s", strict.Name, twin.Name, diff)
	}
	strict.Name, strict.FailurePolicy, strict.NamespaceSelector = twin.Name, twin.FailurePolicy, twin.NamespaceSelector
	if diff := cmp.Diff(twin, strict); diff != "" {
		t.Errorf("%s asks something else in strict namespaces (-else +strict)\n%s", twin.Name, diff)
	}
}

// checkOpened holds that the one webhook that fails closed outside of strict
// namespaces is asked about updates alone, of namespaces that were strict, are
// none of the system's and are not on their way out.
func checkOpened(t *testing.T, opened, ordinary admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	if diff := cmp.Diff(ordinary.NamespaceSelector, opened.NamespaceSelector); diff != "" {
		t.Errorf("%s is about other namespaces than those that are not strict (-want +got)\n%s", opened.Name, diff)
	}
	if diff := cmp.Diff(ordinary.ClientConfig, opened.ClientConfig); diff != "" {
		t.Errorf("%s asks somebody else (-want +got)\n%s", opened.Name, diff)
	}
	if len(opened.Rules) != 1 || !slices.Equal(opened.Rules[0].Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Update}) ||
		!slices.Equal(opened.Rules[0].Resources, []string{"namespaces"}) {
		t.Errorf("%s is asked about %v, want updates of namespaces", opened.Name, opened.Rules)
	}
	want := []admissionregistrationv1.MatchCondition{
		{Name: "was-strict", Expression: "has(oldObject.metadata.labels) && 'holdfast.dev/enforce' in oldObject.metadata.labels && oldObject.metadata.labels['holdfast.dev/enforce'] == 'strict'"},
		{Name: "not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
	}
	if diff := cmp.Diff(want, opened.MatchConditions); diff != "" {
		t.Errorf("%s is asked about other updates (-want +got)\n%s", opened.Name, diff)
	}
}

// checkHooks holds that schedules with hooks, and no others, are asked about in
// all namespaces, and are refused for want of an answer.
func checkHooks(t *testing.T, hooks, ordinary admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	if hooks.NamespaceSelector != nil || hooks.ObjectSelector != nil {
		t.Errorf("%s leaves schedules out, and hooks there would run unasked", hooks.Name)
	}
	want := []admissionregistrationv1.MatchCondition{
		{Name: "brings-hooks", Expression: "has(object.spec.hooks) && (request.operation == 'CREATE' || object.spec != oldObject.spec)"},
		{Name: "not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
	}
	if diff := cmp.Diff(want, hooks.MatchConditions); diff != "" {
		t.Errorf("%s is asked about other schedules (-want +got)\n%s", hooks.Name, diff)
	}
	if diff := cmp.Diff(ordinary.Rules, hooks.Rules); diff != "" {
		t.Errorf("%s is asked about something else (-want +got)\n%s", hooks.Name, diff)
	}
	if diff := cmp.Diff(ordinary.ClientConfig, hooks.ClientConfig); diff != "" {
		t.Errorf("%s asks somebody else (-want +got)\n%s", hooks.Name, diff)
	}
}

// TestSnapshotsLabelsAreAskedAbout: an exemption picks by them, so a change of
// them alone is judged.
func TestSnapshotsLabelsAreAskedAbout(t *testing.T) {
	validating := find[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, "webhook"), "ValidatingWebhookConfiguration/holdfast")
	asked := 0
	for _, w := range validating.Webhooks {
		for _, c := range w.MatchConditions {
			if strings.HasPrefix(w.Name, "volumesnapshots.") && c.Name == "something-is-changed" && strings.Contains(c.Expression, "object.metadata.labels : {}) != (has(oldObject.metadata.labels)") {
				asked++
			}
		}
	}
	if asked != 2 {
		t.Errorf("%d of the 2 webhooks for snapshots are asked where labels alone are changed", asked)
	}
}

// A size that a set declares in an annotation is judged, though nothing else of
// the set changes.
func TestDeclaredSizesAreAskedAbout(t *testing.T) {
	validating := find[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, "webhook"), "ValidatingWebhookConfiguration/holdfast")
	asked := 0
	for _, w := range validating.Webhooks {
		for _, c := range w.MatchConditions {
			if strings.HasPrefix(w.Name, "statefulsets.") && c.Name == "something-is-changed" && strings.Contains(c.Expression, "object.metadata.annotations['"+v1alpha1.AnnotationSize+"']") {
				asked++
			}
		}
	}
	if asked != 2 {
		t.Errorf("%d of the two webhooks of StatefulSets are asked about a change of annotation %s alone", asked, v1alpha1.AnnotationSize)
	}
}
