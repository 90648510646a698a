//go:build vmguest

package guest

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
)

// TestGrowWithFormatOptions: filesystems that were made with the options of a
// class grow under a Pod, with bigalloc into a second block group.
func TestGrowWithFormatOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		fsType  string
		context map[string]string
		facts   []string // of dumpe2fs, before and after
	}{
		"ext4-blocks":   {"ext4", map[string]string{"blocksize": "1024"}, []string{"Block size: 1024"}},
		"ext4-inodes":   {"ext4", map[string]string{"inodesize": "512", "bytesperinode": "8192"}, []string{"Inode size: 512"}},
		"ext4-ratio":    {"ext4", map[string]string{"bytesperinode": "1024"}, nil},
		"ext4-count":    {"ext4", map[string]string{"numberofinodes": "5000"}, nil},
		"ext4-bigalloc": {"ext4", map[string]string{"ext4bigalloc": "true"}, []string{"bigalloc", "Cluster size: 65536"}},
		"ext4-clusters": {"ext4", map[string]string{"ext4bigalloc": "true", "ext4clustersize": "16k"}, []string{"Cluster size: 16384"}},
		"ext4-encrypt":  {"ext4", map[string]string{"ext4encryptionsupport": "true"}, []string{" encrypt "}},
		"xfs-both":      {"xfs", map[string]string{"blocksize": "2048", "inodesize": "1024"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, blockdev.Options{Identity: blockdev.LoopBackingFile})
			v := newLoopVolume(t, volumeA, 1024)
			request := n.stageRequest(volumeA, mountOf(tc.fsType))
			request.VolumeContext = tc.context
			_, err := n.client.NodeStageVolume(t.Context(), request)
			must(t, err)
			t.Cleanup(func() { _ = n.unstage(volumeA) })
			must(t, n.publish(volumeA, "pod", mountOf(tc.fsType), false))
			must(t, os.WriteFile(n.path("pod/data"), []byte("kept"), 0o600))
			before := n.totalBytes(volumeA, "pod")
			v.grow(3072)
			_, err = n.expand(volumeA, "pod", 3072, mountOf(tc.fsType))
			must(t, err)
			// An inode of 256 bytes for each KiB, the densest of these, leaves three quarters.
			if grown := n.totalBytes(volumeA, "pod") - before; grown < 1500<<20 {
				t.Errorf("the filesystem must have grown by three quarters of 2 GiB at least, it grew by %d bytes", grown)
			}
			if tc.facts != nil {
				facts := strings.Join(strings.Fields(run(t, "dumpe2fs", "-h", v.device)), " ")
				for _, fact := range tc.facts {
					if !strings.Contains(facts, fact) {
						t.Errorf("the disk must have %q: %s", fact, facts)
					}
				}
			}
			must(t, n.unpublish(volumeA, "pod"))
			must(t, n.unstage(volumeA))
			_, err = n.client.NodeStageVolume(t.Context(), request) // what has grown passes fsck
			must(t, err)
			if data, err := os.ReadFile(n.path("stage-" + volumeA + "/data")); string(data) != "kept" || err != nil {
				t.Errorf("the content must stay: %q, %v", data, err)
			}
		})
	}
}
