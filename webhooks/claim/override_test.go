package claim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestTakesOverride(t *testing.T) {
	db := State{Of: policy.Claim{Namespace: policy.Namespace{Name: "db", Labels: map[string]string{"tier": "db"}}, Labels: map[string]string{"keep": "yes"}, ClassName: "gp3", Provisioner: "ebs.csi.aws.com"}, Bound: true}
	but := func(change func(*State)) State {
		s := db
		change(&s)
		return s
	}
	unlabelled := func(s *State) { s.Of.Labels = nil }
	legacy := func(s *State) { s.Of.Labels = map[string]string{"keep": "yes", "app": "legacy"} }
	elsewhere := func(s *State) { s.Of.Namespace.Labels = map[string]string{"tier": "web"} }
	moved := func(s *State) { s.Of.Namespace.Labels = map[string]string{"tier": "db", "moving": "yes"} }
	armed := func(s *State) { s.Reason = "mine" }
	unbound := func(s *State) { s.Bound = false }

	deny := &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound}}
	acting := func(a v1alpha1.Action) *v1alpha1.Guardrails {
		return &v1alpha1.Guardrails{Deletion: deny.Deletion, Overrides: []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleDeletion, Action: a}}}
	}
	protecting := func(p v1alpha1.Protection) *v1alpha1.Guardrails {
		return &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: p}}
	}
	scaling := &v1alpha1.Guardrails{ScaleDown: &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 60}}
	sizes := &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: quantity("1Gi")}}
	for name, tc := range map[string]struct {
		why           string
		guardrails    *v1alpha1.Guardrails
		before, after State
		want          bool
	}{
		"nothing changed":             {"a claim that stays as it is", deny, db, db, false},
		"label off":                   {"the policy is no longer about it", deny, db, but(unlabelled), true},
		"label off, scale down":       {"and its Pod may be taken", scaling, db, but(unlabelled), true},
		"label off, unbound":          {"what holds nothing is not protected", deny, but(unbound), but(func(s *State) { unbound(s); unlabelled(s) }), false},
		"label off, unbound, always":  {"unless the policy protects it all the same", protecting(v1alpha1.ProtectAlways), but(unbound), but(func(s *State) { unbound(s); unlabelled(s) }), true},
		"label off, never protected":  {"nor is what the policy does not protect", protecting(v1alpha1.ProtectNever), db, but(unlabelled), false},
		"label off, Audit":            {"a policy that only looks refuses nothing", acting(v1alpha1.Audit), db, but(unlabelled), false},
		"label off, Warn":             {"nor does one that warns", acting(v1alpha1.Warn), db, but(unlabelled), false},
		"label off, other rules":      {"nor one that protects nothing", sizes, db, but(unlabelled), false},
		"label off, exempt":           {"what is let off already loses nothing", deny, but(legacy), but(unlabelled), false},
		"label of an exemption":       {"the exemption lets it go", deny, db, but(legacy), true},
		"label into the policy":       {"more protection is free", deny, but(unlabelled), db, false},
		"namespace out":               {"the policy is no longer about its namespace", deny, db, but(elsewhere), true},
		"namespace into an exemption": {"the exemption lets the whole namespace off", deny, db, but(moved), true},
		"another class":               {"the policy is no longer about its class", deny, db, but(func(s *State) { s.Of.ClassName = "gp2" }), true},
		"becomes a Pod's":             {"it would go with the Pod", deny, db, but(func(s *State) { s.OfPod = true }), true},
		"override written":            {"it lets the claim go", deny, db, but(armed), true},
		"override, unbound":           {"once it is bound too", deny, but(unbound), but(func(s *State) { unbound(s); armed(s) }), true},
		"override, Audit":             {"and once the policy denies", acting(v1alpha1.Audit), db, but(armed), true},
		"override, exempt":            {"and once the exemption has ended", deny, but(legacy), but(func(s *State) { legacy(s); armed(s) }), true},
		"override, never protected":   {"there is nothing to override", protecting(v1alpha1.ProtectNever), db, but(armed), false},
		"override, elsewhere":         {"nor where the policy is not about the claim", deny, but(unlabelled), but(func(s *State) { unlabelled(s); armed(s) }), false},
		"override of before":          {"it was written with the right", deny, but(armed), but(armed), false},
		"override taken off":          {"more protection is free", deny, but(armed), db, false},
		"another reason":              {"it is recorded, so it is who may override that gives it", deny, but(armed), but(func(s *State) { s.Reason = "yours" }), true},
		"override comes along":        {"coming under the policy with it is writing it", deny, but(func(s *State) { unlabelled(s); armed(s) }), but(armed), true},
		"override, with a namespace":  {"so is being brought by the namespace's labels", deny, but(func(s *State) { elsewhere(s); armed(s) }), but(armed), true},
	} {
		t.Run(name, func(t *testing.T) {
			p := compiled(t, tc.guardrails)
			if got := TakesOverride(p, &tc.before, tc.after, now); got != tc.want {
				t.Errorf("takes the right to override: %v, want %v: %s", got, tc.want, tc.why)
			}
		})
	}
	if p := compiled(t, deny); TakesOverride(p, nil, db, now) || !TakesOverride(p, nil, but(armed), now) {
		t.Error("a new claim takes the right where it carries the override, and there alone")
	}
}

// compiled is a policy about gp3 claims of the tier db that are to be kept, which
// lets legacy ones off, and those of namespaces that move.
func compiled(t *testing.T, g *v1alpha1.Guardrails) *policy.Policy {
	t.Helper()
	with := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	until := metav1.NewTime(now.Add(time.Hour))
	p, errs := policy.Compile(&v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{NamespaceSelector: with("tier", "db"), ClaimSelector: with("keep", "yes"), StorageClassNames: []string{"gp3"}},
		Guardrails: g,
		Exemptions: []v1alpha1.Exemption{{Selector: with("app", "legacy"), Until: until}, {NamespaceSelector: with("moving", "yes"), Until: until}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return p
}

func TestOfPod(t *testing.T) {
	owned := func(name, kind, by string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Name = name
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: by, Controller: ptr(true)}}
		if change != nil {
			change(c)
		}
		return c
	}
	for name, tc := range map[string]struct {
		why   string
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"ephemeral": {"the Pod's name, then the volume's", owned("web-0-scratch", "Pod", "web-0", nil), true},
		"of a set":  {"the StatefulSet controller makes a Pod control what it lets go", owned("data-pg-0", "Pod", "pg-0", nil), false},
		"any Pod":   {"whoever may edit the claim can name one", owned("data", "Pod", "x", nil), false},
		"the Pod's": {"a name that only begins alike", owned("web-01", "Pod", "web-0", nil), false},
		"stamped": {"a set's claim, whatever it is called", owned("a-0-x-a-0", "Pod", "a-0", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationSetUID: "1"}
		}), false},
		"another kind": {"only Pods have ephemeral volumes", owned("web-0-scratch", "Service", "web-0", nil), false},
		"no control":   {"an owner that does not control it", owned("web-0-scratch", "Pod", "web-0", func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].Controller = nil }), false},
		"nobody's":     {"no owner at all", &corev1.PersistentVolumeClaim{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OfPod(tc.claim); got != tc.want {
				t.Errorf("OfPod = %v: %s", got, tc.why)
			}
		})
	}
}
