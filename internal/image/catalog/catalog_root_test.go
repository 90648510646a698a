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

// enter runs a command in the folder $0 as in a container: with /proc, and in
// a mount namespace that ends with it.
const enter = `mkdir -p "$0/proc" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"`

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
	for _, disk := range []string{"ext3.img", "ext4.img", "xfs.img"} {
		// The smallest size that mkfs.xfs accepts; the file is sparse.
		if err := exec.Command("truncate", "-s", "300M", filepath.Join(root, "tmp", disk)).Run(); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{
		// Formatting and checking start helpers by themselves.
		{"mkfs.ext3", "-F", "-q", "/tmp/ext3.img"}, {"fsck", "-a", "-t", "ext3", "/tmp/ext3.img"},
		{"mkfs.ext4", "-F", "-q", "/tmp/ext4.img"}, {"fsck", "-a", "-t", "ext4", "/tmp/ext4.img"},
		{"mkfs.xfs", "-f", "-q", "/tmp/xfs.img"}, {"fsck", "-a", "-t", "xfs", "/tmp/xfs.img"},
		{"xfs_repair", "-n", "-f", "/tmp/xfs.img"}, {"resize2fs", "-P", "/tmp/ext4.img"},
		{"e2fsck", "-V"}, {"xfs_growfs", "-V"}, {"blkid", "-V"}, {"blockdev", "-V"},
		{"mount", "-V"}, {"umount", "-V"}, {"sh", "-c", "exit 0"}, {"fsck.xfs", "-a", "/etc/fstab"},
	} {
		out, err := exec.Command("unshare", append([]string{"--mount", "sh", "-c", enter, root}, argv...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s in the image: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}
