package retention

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// TestContentOf: the content of a snapshot is found by what the API server has of
// it and by what informers hold of it.
func TestContentOf(t *testing.T) {
	for name, content := range map[string]string{"made for it": "snapcontent-u", "imported": "imported", "not known yet": ""} {
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &snapshotv1.VolumeSnapshotStatus{}}
		want := "snapcontent-u"
		if content != "" {
			s.Status.BoundVolumeSnapshotContentName, want = &content, content
		}
		whole := contentOf(s)
		if _, err := snapshots.Slim(s); err != nil {
			t.Fatal(err)
		}
		if slim := contentOf(s); whole != want || slim != want {
			t.Errorf("%s: the content is %q, and %q by an informer; want %q", name, whole, slim, want)
		}
	}
}
