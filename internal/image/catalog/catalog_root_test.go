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

// The server and its programs must start with nothing else around them, as a
// user who is not root. The packages are fetched once a machine.
func TestPostgreSQLImageMakesADatabase(t *testing.T) {
	img, err := postgresqlImage(context.Background(), newTestSource(t))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "rootfs")
	if err := image.Unpack(root, img); err != nil {
		t.Fatal(err)
	}
	const script = `export PGDATA=/var/lib/postgresql/data/d POSTGRES_PASSWORD=x POSTGRES_DB=shop POSTGRES_INITDB_ARGS=--data-checksums
		docker-entrypoint.sh postgres --version && [ "$(stat -c %a "$PGDATA")" = 700 ] &&
		echo 'SELECT datname FROM pg_database;' | postgres --single -j postgres | grep -q 'datname = "shop"' &&
		pg_controldata | grep -q 'checksum version: *1' && psql --version && pgbench --version && pg_amcheck --version && pg_isready --version`
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mkdir -p "$0/proc" "$0/dev" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec=999:999 "$0" "$@"`, root,
		"sh", "-euxc", script)
	cmd.Env = img.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in the image: %v\n%s", err, out)
	}
}
