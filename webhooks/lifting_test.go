package webhooks

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestLiftingProtection: nobody has the right to override, and what would lift
// the protection of claims is refused; what lifts nothing is not.
func TestLiftingProtection(t *testing.T) {
	ns := func(name, labels, annotations string) string {
		return `{"metadata":{"name":"` + name + `","labels":{` + labels + `},"annotations":{` + annotations + `}}}`
	}
	const mine = `"holdfast.dev/override-deletion":"mine"`
	const mayNot = `user "" may not override StoragePolicy "fuzzed"`
	for name, tc := range map[string]struct {
		why      string
		change   func(*fixture)
		old, now string // of the namespace db
		refusal  string // part of it; empty: passes
	}{
		"label off":             {"all its claims lose their protection", nil, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"x"`, ""), mayNot},
		"another label":         {"which no policy asks about", nil, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"db","team":"a"`, ""), ""},
		"label on":              {"more protection is free", nil, ns("db", `"tier":"x"`, ""), ns("db", `"tier":"db"`, ""), ""},
		"no claims":             {"nothing is lost", func(f *fixture) { f.claims = nil }, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"x"`, ""), ""},
		"being deleted":         {"nothing is held back any more", nil, ns("db", `"tier":"db"`, ""), strings.Replace(ns("db", `"tier":"x"`, ""), `"name"`, `"deletionTimestamp":"2026-12-01T11:00:00Z","name"`, 1), ""},
		"Audit":                 {"a policy that only looks refuses nothing", func(f *fixture) { f.policy.Spec.Guardrails.Action = v1alpha1.Audit }, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"x"`, ""), ""},
		"override":              {"the namespace would go", nil, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"db"`, mine), mayNot},
		"override, unprotected": {"a policy that protects nothing has nothing to override", func(f *fixture) { f.policy.Spec.Guardrails.Deletion = nil }, ns("db", `"tier":"db"`, ""), ns("db", `"tier":"db"`, mine), ""},
		"override comes along":  {"coming under the policy with it is writing it", nil, ns("db", `"tier":"x"`, mine), ns("db", `"tier":"db"`, mine), mayNot},
		"override of a claim": {"likewise for the claims in it", func(f *fixture) {
			f.claims[1].Annotations = map[string]string{v1alpha1.AnnotationOverrideDeletion: "mine"}
		}, ns("db", `"tier":"x"`, ""), ns("db", `"tier":"db"`, ""), mayNot},
		"strict off": {"its requests would pass unjudged", nil, ns("db", `"tier":"db","holdfast.dev/enforce":"strict"`, ""), ns("db", `"tier":"db"`, ""), mayNot},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture()
			if tc.change != nil {
				tc.change(x)
			}
			allowed, status, answer := x.judged(t, "/validate/namespaces", asked{op: admissionv1.Update, name: "db", now: []byte(tc.now), old: []byte(tc.old)})
			if status != 200 || allowed != (tc.refusal == "") || !strings.Contains(strings.ReplaceAll(string(answer), `\"`, `"`), tc.refusal) {
				t.Errorf("%s: allowed %v, status %d: %s", tc.why, allowed, status, answer)
			}
		})
	}
}

// TestClassIsGone: a claim stays under the policies of its provisioner when its
// class goes, by what the volume controller wrote on it.
func TestClassIsGone(t *testing.T) {
	const held = `"spec":{"volumeName":"pv","storageClassName":"good"}`
	for name, tc := range map[string]struct {
		claim string
		kept  bool
	}{
		"provisioned":       {`{"metadata":{"name":"a","annotations":{"volume.kubernetes.io/storage-provisioner":"ebs.csi.aws.com"}},` + held + `}`, true},
		"long ago":          {`{"metadata":{"name":"a","annotations":{"volume.beta.kubernetes.io/storage-provisioner":"ebs.csi.aws.com"}},` + held + `}`, true},
		"by another driver": {`{"metadata":{"name":"a","annotations":{"volume.kubernetes.io/storage-provisioner":"efs.csi.aws.com","volume.beta.kubernetes.io/storage-provisioner":"ebs.csi.aws.com"}},` + held + `}`, false},
		"nobody knows":      {`{"metadata":{"name":"a"},` + held + `}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture()
			x.policy.Spec.Match.Provisioners = []string{"ebs.csi.aws.com"}
			for _, classes := range [][]storagev1.StorageClass{x.classes, nil} {
				x.classes = classes
				allowed, status, answer := x.judged(t, "/validate/claims", asked{op: admissionv1.Delete, namespace: guarded, name: "a", old: []byte(tc.claim)})
				if kept := tc.kept || classes != nil; status != 200 || allowed == kept {
					t.Errorf("with %d classes: allowed %v, status %d: %s", len(classes), allowed, status, answer)
				}
			}
		})
	}
}

// TestFinalizersComeOff: whatever else an update takes from a claim or a snapshot
// that is being deleted, it is not refused: the object would never go.
func TestFinalizersComeOff(t *testing.T) {
	object := func(deleting, finalizers, labels, more string) string {
		return `{"metadata":{"name":"a","creationTimestamp":"2026-11-01T00:00:00Z",` + deleting + `"finalizers":[` + finalizers + `],"labels":{` + labels + `}},` + more + `}`
	}
	const deleting = `"deletionTimestamp":"2026-12-01T11:00:00Z",`
	for kind, tc := range map[string]struct{ path, more, labels string }{
		"claim":    {"/validate/claims", `"spec":{"volumeName":"pv","storageClassName":"good"}`, `"keep":"yes"`},
		"snapshot": {"/validate/volumesnapshots", `"spec":{"source":{"persistentVolumeClaimName":"data-pg-0"}}`, ``},
	} {
		for when, refused := range map[string]bool{"": true, deleting: false} {
			x := newFixture()
			after := ``
			if kind == "claim" {
				x.policy.Spec.Match.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}
			} else {
				after = `"app":"legacy"`
				x.policy.Spec.Exemptions = []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "legacy"}}, Reason: "migration", Until: metav1.NewTime(now.Add(time.Hour))}}
			}
			allowed, status, answer := x.judged(t, tc.path, asked{
				op: admissionv1.Update, namespace: guarded, name: "a",
				old: []byte(object(when, `"x/y"`, tc.labels, tc.more)), now: []byte(object(when, ``, after, tc.more)),
			})
			if status != 200 || allowed == refused {
				t.Errorf("a %s, being deleted: %v: allowed %v, status %d: %s", kind, !refused, allowed, status, answer)
			}
		}
	}
}

// TestScaleDownOfWhatGoesAnyway: a claim that is being deleted waits for its Pod to
// go. No snapshot can be taken of it any more, so none is asked for.
func TestScaleDownOfWhatGoesAnyway(t *testing.T) {
	scale := func(replicas string) []byte { return []byte(`{"spec":{"replicas":` + replicas + `}}`) }
	for _, deleting := range []bool{false, true} {
		x := newFixture()
		if deleting {
			x.claims[1].DeletionTimestamp = ptr(metav1.NewTime(now))
		}
		allowed, status, answer := x.judged(t, "/validate/statefulsets", asked{
			op: admissionv1.Update, namespace: guarded, name: "pg", sub: "scale", old: scale("2"), now: scale("1"),
		})
		if status != 200 || allowed != deleting {
			t.Errorf("the claim is being deleted: %v: allowed %v, status %d: %s", deleting, allowed, status, answer)
		}
	}
}

// TestSetOfTheDefaultClass: the claims of a set whose template names no class are
// given the policy's default class, and the set is told of what they would be
// denied for.
func TestSetOfTheDefaultClass(t *testing.T) {
	const set = `{"metadata":{"name":"new"},"spec":{"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}]}}`
	x := newFixture()
	x.policy.Spec.Defaults.StorageClassName = "bad"
	allowed, status, answer := x.judged(t, "/validate/statefulsets", asked{op: admissionv1.Create, namespace: guarded, name: "new", now: []byte(set)})
	text := strings.ReplaceAll(string(answer), `\"`, `"`)
	if status != 200 || !allowed || !strings.Contains(text, `volumeClaimTemplates[0].spec.storageClassName is "bad", whose reclaimPolicy`) {
		t.Errorf("it is not warned of the class that its claims are given: allowed %v, status %d: %s", allowed, status, answer)
	}
}
