//go:build root

package catalog

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/image"
)

// The node image must be able to run each tool with nothing else around it.
func TestNodeImageToolsRunOnTheirOwn(t *testing.T) {
	s := newTestSource(t)
	fakeDriver(t, s)
	img, err := nodeImage(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "rootfs")
	if err := image.Unpack(root, img); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"mkfs.ext3", "-V"}, {"mkfs.ext4", "-V"}, {"e2fsck", "-V"}, {"fsck.ext4", "-V"}, {"mkfs.xfs", "-V"},
		{"xfs_repair", "-V"}, {"xfs_growfs", "-V"}, {"fsck", "--version"}, {"blkid", "-V"}, {"blockdev", "-V"},
		{"mount", "-V"}, {"umount", "-V"}, {"sh", "-c", "exit 0"}, {"fsck.xfs", "-a", "/etc/fstab"},
	} {
		out, err := exec.Command("chroot", append([]string{root}, argv...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s in the image: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}
