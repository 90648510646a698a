package stage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Attributes makes a VolumeAttributesClass for the test alone and returns its name.
func (s *Stage) Attributes(suffix string, parameters map[string]string) string {
	s.T.Helper()
	c := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + suffix},
		DriverName: Driver,
		Parameters: parameters,
	}
	s.Create(c)
	return c.Name
}

// OfAttributes has a claim begin with a class of attributes.
func OfAttributes(class string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &class }
}

// AskAttributes changes a claim's class of attributes and, unless size is empty,
// its size in the same step.
func (s *Stage) AskAttributes(claim, class, size string) {
	s.T.Helper()
	patch := fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, class)
	if size != "" {
		patch = fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q,"resources":{"requests":{"storage":%q}}}}`, class, size)
	}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: claim}}
	s.Must(s.Client.Patch(s.T.Context(), c, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// HasAttributes waits until a claim's volume has the attributes of a class and
// nothing more is to be done.
func (s *Stage) HasAttributes(claim, class string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("claim %s has the attributes of %s", claim, class), func(ctx context.Context) (string, error) {
		var c corev1.PersistentVolumeClaim
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: claim}, &c); err != nil {
			return "", err
		}
		if got := ptr.Deref(c.Status.CurrentVolumeAttributesClassName, ""); got != class || c.Status.ModifyVolumeStatus != nil {
			return fmt.Sprintf("it has those of %q, status %+v, conditions %+v", got, c.Status.ModifyVolumeStatus, c.Status.Conditions), nil
		}
		return "", nil
	})
}

// Infeasible waits until a claim says that its volume cannot have the attributes of a class.
func (s *Stage) Infeasible(claim, class string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("claim %s says that %s is infeasible", claim, class), func(ctx context.Context) (string, error) {
		var c corev1.PersistentVolumeClaim
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: claim}, &c); err != nil {
			return "", err
		}
		m := c.Status.ModifyVolumeStatus
		if m == nil || m.TargetVolumeAttributesClassName != class || m.Status != corev1.PersistentVolumeClaimModifyVolumeInfeasible {
			return fmt.Sprintf("status %+v", m), nil
		}
		return "", nil
	})
}

// OneModification reports a volume that EC2 has not modified exactly once.
func (s *Stage) OneModification(id string) {
	s.T.Helper()
	state, err := s.Sim.State(s.T.Context())
	s.Must(err)
	for _, v := range state.Volumes {
		if v.ID == id && len(v.Modifications) != 1 {
			s.T.Errorf("EC2 has modified %s %d times, want once: %+v", id, len(v.Modifications), v.Modifications)
		}
	}
}
