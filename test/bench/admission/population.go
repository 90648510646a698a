package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// Names of what the measurement stands on.
const (
	namespaces = 50 // that the claims are spread over
	loaded     = "load"
	goodClass  = "gp3-encrypted"
	badClass   = "gp2"
	newClass   = "not-there"
)

func ptr[T any](v T) *T { return &v }

// populate makes namespaces, classes, and claims that are bound.
func (s *server) populate(ctx context.Context, claims int) error {
	objects := []client.Object{
		bench.Class(goodClass, map[string]string{"type": "gp3", "encrypted": "true"}), bench.Class(badClass, map[string]string{"type": "gp2"}),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: loaded, Labels: map[string]string{"tier": "db"}}},
	}
	for i := range namespaces {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i), Labels: map[string]string{"tier": []string{"db", "web"}[i%2]}}})
	}
	for _, o := range objects {
		if err := s.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
	}
	var all []*corev1.PersistentVolumeClaim
	for i := range claims {
		all = append(all, bench.Claim(namespaceOf(i), fmt.Sprintf("data-postgresql-%d", i/namespaces), goodClass))
	}
	return s.BindAll(ctx, nil, all, func(i int) string { return fmt.Sprintf("vol-%017x", i+1) })
}

func namespaceOf(i int) string { return fmt.Sprintf("team-%02d", i%namespaces) }

// policyOf is the i-th policy. All of them are about all namespaces of
// databases, and judge every claim there by every rule on claims and classes:
// what is measured is the worst case.
func policyOf(i int) *v1alpha1.StoragePolicy {
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%03d", i)}}
	p.Spec = v1alpha1.StoragePolicySpec{
		Priority: int32(i),
		Match:    v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}},
		Guardrails: &v1alpha1.Guardrails{
			StorageClass: &v1alpha1.StorageClassRules{
				Allowed: []string{"gp3", "io2-encrypted", goodClass, badClass}, InTreeProvisioners: v1alpha1.Forbidden,
				Parameters:        []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}, {Key: "type", Values: []string{"gp3", "io2"}}},
				VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer, AllowVolumeExpansion: v1alpha1.Required, ReclaimPolicy: corev1.PersistentVolumeReclaimRetain, MaxIOPS: 16000,
			},
			Claim: &v1alpha1.ClaimRules{
				MinSize: ptr(resource.MustParse("1Gi")), MaxSize: ptr(resource.MustParse("2Ti")), MaxGrowthPercent: 100,
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}, VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem},
			},
			StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, WhenScaled: v1alpha1.RetainClaims, MinTerminationGracePeriodSeconds: 30},
			Deletion:    &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot},
		},
		Exemptions: []v1alpha1.Exemption{{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "legacy-ledger"}}, Rules: []v1alpha1.Rule{v1alpha1.RuleClassParameters},
			Reason: "migration to encrypted volumes", Until: metav1.Date(2099, 1, 1, 0, 0, 0, 0, metav1.Now().Location()),
		}},
	}
	return p
}
