package world

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Watch starts the informers of all that judging reads before the first
// question comes. Those of snapshots are among them where the cluster has the
// kind: the first deletion must not wait for them, since what takes too long
// passes where the webhooks fail open. Where it does not, or not yet, and for
// VolumeAttributesClasses, they start when they are first asked for.
func (w *World) Watch(c cache.Cache) error {
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, o := range []client.Object{
		namespaces, &v1alpha1.SnapshotSchedule{}, &storagev1.StorageClass{}, &corev1.PersistentVolumeClaim{},
		&appsv1.StatefulSet{}, &policyv1.PodDisruptionBudget{},
	} {
		if _, err := c.GetInformer(context.Background(), o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	policies, err := c.GetInformer(context.Background(), &v1alpha1.StoragePolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch StoragePolicies: %w", err)
	}
	w.policies.informer, _ = policies.(toolscache.SharedIndexInformer) // a manager's is one
	_, err = w.Index.Begin(context.Background(), w.Now())
	return err
}
