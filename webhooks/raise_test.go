//go:build envtest

package webhooks_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// testRaise is RaiseAtCreate: a new replica of a set whose claims have grown comes
// up at their size, through the API server and the claim webhook.
func testRaise(t *testing.T) {
	ns, free := namespace(t, map[string]string{"kind": "raise"}), namespace(t, nil)
	ctx, c := t.Context(), server.client
	policy(t, v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "raise"}}},
		Guardrails: &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("90Gi"))}},
		Expansion:  &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("30Gi")},
	}, claimOf(ns, "probe", "91Gi", nil))
	labels := map[string]string{"app": "pg"}
	pg := setOf(ns, "pg", func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = ptr[int32](3)
		s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, *claimOf("", "wal", "1Gi", nil))
	})
	namesake := pg.DeepCopy()
	namesake.Namespace = free
	create(t, pg, namesake)
	// of is a claim as the StatefulSet controller makes it.
	of := func(in, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return claimOf(in, name, "1Gi", func(p *corev1.PersistentVolumeClaim) {
			p.Labels = labels
			if change != nil {
				change(p)
			}
		})
	}
	grown := func(set *appsv1.StatefulSet, template string, ordinal int, size string) *corev1.PersistentVolumeClaim {
		return of(set.Namespace, fmt.Sprintf("%s-pg-%d", template, ordinal), func(p *corev1.PersistentVolumeClaim) {
			bound(p)
			p.Annotations = map[string]string{v1alpha1.AnnotationSetUID: string(set.UID), v1alpha1.AnnotationSetName: "pg", v1alpha1.AnnotationSetTemplate: template}
			p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		})
	}
	create(t, grown(pg, "data", 0, "25Gi"), grown(pg, "data", 1, "20Gi"), grown(namesake, "data", 0, "25Gi"))

	// given is the size that a claim is given, were it made now.
	given := func(p *corev1.PersistentVolumeClaim) (string, error) {
		made := p.DeepCopy()
		err := c.Create(ctx, made, client.DryRunAll)
		return made.Spec.Resources.Requests.Storage().String(), err
	}
	gets := func(why string, p *corev1.PersistentVolumeClaim, want string) {
		t.Helper()
		eventually(t, why, func() error { // the informers may not have all of it yet
			got, err := given(p)
			if err == nil && got != want {
				err = fmt.Errorf("claim %s is given %s, want %s", p.Name, got, want)
			}
			return err
		})
	}
	stays := func(why string, p *corev1.PersistentVolumeClaim) {
		t.Helper()
		if got, err := given(p); err != nil || got != p.Spec.Resources.Requests.Storage().String() {
			t.Errorf("%s: claim %s/%s is given %s, %v", why, p.Namespace, p.Name, got, err)
		}
	}
	gets("the largest of its siblings", of(ns, "data-pg-2", nil), "25Gi")
	stays("its template has no siblings", of(ns, "wal-pg-2", nil))
	stays("it asks for more", of(ns, "data-pg-2", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("28Gi")
	}))
	stays("somebody made it by hand", of(ns, "data-pg-2", func(p *corev1.PersistentVolumeClaim) { p.Labels = nil }))
	stays("the set has no such template", of(ns, "more-pg-2", nil))
	stays("the set has no such ordinal", of(ns, "data-pg-02", nil))
	stays("there is no such set", of(ns, "data-web-2", func(p *corev1.PersistentVolumeClaim) { p.Labels = map[string]string{"app": "web"} }))
	stays("no policy has it grow", of(free, "data-pg-2", nil))

	made, plain := of(ns, "data-pg-2", nil), of(free, "data-pg-2", nil)
	create(t, made, plain)
	plain.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("25Gi")
	if diff := cmp.Diff(plain.Spec, made.Spec); diff != "" {
		t.Errorf("more than its size is not as it was asked for (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]any{plain.Labels, plain.Annotations, plain.OwnerReferences, plain.Finalizers}, []any{made.Labels, made.Annotations, made.OwnerReferences, made.Finalizers}); diff != "" {
		t.Errorf("its metadata is not as it was asked for (-want +got)\n%s", diff)
	}

	gets("its own annotation holds it to less", of(ns, "data-pg-3", func(p *corev1.PersistentVolumeClaim) {
		p.Annotations = map[string]string{v1alpha1.AnnotationMaxSize: "22Gi"}
	}), "22Gi")
	was := pg.DeepCopy()
	pg.Annotations = map[string]string{v1alpha1.AnnotationSize: "data=27Gi,wal=5Gi"}
	accepted(t, "declare sizes", c.Patch(ctx, pg, client.MergeFrom(was)))
	gets("what its set declares", of(ns, "data-pg-3", nil), "27Gi")
	gets("of each template by itself", of(ns, "wal-pg-3", nil), "5Gi")
	create(t, grown(pg, "data", 5, "40Gi"))
	gets("at most what the policy allows", of(ns, "data-pg-3", nil), "30Gi")
}
