//go:build e2e

package schedules

import (
	"os"
	"path/filepath"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// Labels of copies, as docs/snapshots.md tells them.
const (
	ofSchedule = "holdfast.dev/schedule"
	ofSlot     = "holdfast.dev/slot"
)

// immediate has claims be bound without a Pod.
func immediate(c *storagev1.StorageClass) {
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
}

// apply has kubectl apply a manifest.
func apply(s *stage.Stage, manifest string) {
	s.T.Helper()
	name := filepath.Join(s.T.TempDir(), "manifest.yaml")
	s.Must(os.WriteFile(name, []byte(manifest), 0o600))
	s.Run("-n", s.Namespace, "apply", "-f", name)
}

// copied are the copies of a schedule in a run ("": in all), by claim. A claim
// that has two in one run fails the test.
func copied(s *stage.Stage, schedule, slot string) map[string]snapshotv1.VolumeSnapshot {
	s.T.Helper()
	labels := client.MatchingLabels{ofSchedule: schedule}
	if slot != "" {
		labels[ofSlot] = slot
	}
	var list snapshotv1.VolumeSnapshotList
	s.Must(s.Client.List(s.T.Context(), &list, client.InNamespace(s.Namespace), labels))
	all := map[string]snapshotv1.VolumeSnapshot{}
	for _, o := range list.Items {
		claim := *o.Spec.Source.PersistentVolumeClaimName
		if other, twice := all[claim]; twice && slot != "" {
			s.T.Errorf("claim %s has two copies of run %s: %s and %s", claim, slot, other.Name, o.Name)
		}
		all[claim] = o
	}
	return all
}

// isReady says whether a copy can be restored from.
func isReady(o snapshotv1.VolumeSnapshot) bool {
	return o.Status != nil && ptr.Deref(o.Status.ReadyToUse, false)
}
