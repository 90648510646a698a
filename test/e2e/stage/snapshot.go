package stage

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SnapshotClass makes a VolumeSnapshotClass for the test alone and returns its name.
func (s *Stage) SnapshotClass(suffix string, parameters map[string]string) string {
	s.T.Helper()
	c := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta:     metav1.ObjectMeta{Name: s.Namespace + "-" + suffix},
		Driver:         Driver,
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		Parameters:     parameters,
	}
	s.Create(c)
	return c.Name
}

// Snapshot takes a snapshot of a claim, waits until it is ready and returns
// the id of the EBS snapshot.
func (s *Stage) Snapshot(name, claim, class string) string {
	s.T.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &class,
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
		},
	}
	s.Create(snapshot)
	s.Eventually("snapshot "+name+" ready", func(ctx context.Context) (string, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot); err != nil {
			return "", err
		}
		st := snapshot.Status
		switch {
		case st == nil || st.BoundVolumeSnapshotContentName == nil:
			return "no content yet", nil
		case st.Error != nil && st.Error.Message != nil && !ptr.Deref(st.ReadyToUse, false):
			return *st.Error.Message, nil
		case !ptr.Deref(st.ReadyToUse, false):
			return "not ready", nil
		}
		return "", nil
	})
	var content snapshotv1.VolumeSnapshotContent
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Name: *snapshot.Status.BoundVolumeSnapshotContentName}, &content))
	return ptr.Deref(content.Status.SnapshotHandle, "")
}

// FromSnapshot has a claim restored from a snapshot of its namespace.
func FromSnapshot(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: name,
		}
	}
}

// FromClaim has a claim be a clone of another claim of its namespace.
func FromClaim(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}
