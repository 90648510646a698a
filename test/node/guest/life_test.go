//go:build vmguest

package guest

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
)

// TestLifeOnNVMe takes a hot-plugged disk through its life on a node, with each
// filesystem. There is no udev in the machine, hence no by-id link: the disk is
// found by its serial number.
func TestLifeOnNVMe(t *testing.T) {
	for fsType, mib := range map[string]int64{"ext4": 64, "xfs": 320, "ext3": 64} {
		t.Run(fsType, func(t *testing.T) {
			n := startNode(t, blockdev.Options{})
			attach(t, volumeB, 64) // another volume's disk, which must stay out of it
			attach(t, volumeA, mib)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), false))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), false))
			writeSynced(t, n.path("pod/data"), "kept")
			must(t, n.unpublish(volumeA, "pod"))
			must(t, n.unpublish(volumeA, "pod"))
			must(t, n.unstage(volumeA))
			must(t, n.unstage(volumeA))
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), true))
			wantFile(t, n.path("pod/data"), "kept")
		})
	}
}
