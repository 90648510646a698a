package world

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNewestCut: external-snapshotter stores the epoch for a driver that does not
// tell when it cuts. The object's own time stands for it, or no copy of such a
// driver would ever let its claim go.
func TestNewestCut(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2027, 5, 5, hour, 0, 0, 0, time.UTC) }
	snapshot := func(made time.Time, cut *metav1.Time) snapshotv1.VolumeSnapshot {
		return snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}, Status: &snapshotv1.VolumeSnapshotStatus{CreationTime: cut}}
	}
	told := func(hour int) *metav1.Time { return &metav1.Time{Time: at(hour)} }
	epoch := &metav1.Time{Time: time.Unix(0, 0)}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(3))}}
	for name, tc := range map[string]struct {
		copies []snapshotv1.VolumeSnapshot
		want   time.Time
	}{
		"none":             {nil, time.Time{}},
		"the newest":       {[]snapshotv1.VolumeSnapshot{snapshot(at(4), told(4)), snapshot(at(6), told(6)), snapshot(at(5), told(5))}, at(6)},
		"before the claim": {[]snapshotv1.VolumeSnapshot{snapshot(at(2), told(2))}, time.Time{}},
		"no cut told":      {[]snapshotv1.VolumeSnapshot{snapshot(at(4), epoch), snapshot(at(5), epoch)}, at(5)},
		"no time at all":   {[]snapshotv1.VolumeSnapshot{snapshot(at(4), nil)}, at(4)},
	} {
		if got := NewestCut(tc.copies, claim); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
