package fs

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	mountutils "k8s.io/mount-utils"
)

func TestParseType(t *testing.T) {
	for in, want := range map[string]Type{"": Ext4, "ext4": Ext4, "EXT3": Ext3, "XFS": XFS, "xfs": XFS} {
		if got, err := ParseType(in); got != want || err != nil {
			t.Errorf("%q: want %s, got %s, %v", in, want, got, err)
		}
	}
	for _, in := range []string{"btrfs", "ext2", "ext4 "} {
		if _, err := ParseType(in); err == nil || !strings.Contains(err.Error(), "ext4, ext3 or xfs") {
			t.Errorf("%q must be refused with what is allowed, got %v", in, err)
		}
	}
}

func TestMountOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		fsType   Type
		options  []string
		readOnly bool
		want     []string
	}{
		"none":      {"ext4 needs none", Ext4, nil, false, nil},
		"xfs":       {"a clone has its source's UUID", XFS, []string{"noatime"}, false, []string{"noatime", "nouuid"}},
		"xfs twice": {"an option is given once", XFS, []string{"nouuid"}, false, []string{"nouuid"}},
		"read-only": {"read-only access is the mount's", Ext3, []string{"noatime"}, true, []string{"noatime", "ro"}},
		"ro twice":  {"an option is given once", Ext4, []string{"ro"}, true, []string{"ro"}},
	} {
		t.Run(name, func(t *testing.T) {
			given := append([]string(nil), tc.options...)
			if diff := cmp.Diff(tc.want, mountOptions(tc.fsType, tc.options, tc.readOnly)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(given, tc.options); diff != "" {
				t.Errorf("the caller's options must stay as they are\n%s", diff)
			}
		})
	}
}

func TestMountsAs(t *testing.T) {
	for _, tc := range []struct {
		mounted string
		wanted  Type
		want    bool
	}{{"ext4", Ext4, true}, {"ext3", Ext4, true}, {"ext4", Ext3, false}, {"xfs", Ext4, false}, {"xfs", XFS, true}} {
		if got := MountsAs(tc.mounted, tc.wanted); got != tc.want {
			t.Errorf("%s for %s: want %t, got %t", tc.mounted, tc.wanted, tc.want, got)
		}
	}
}

func TestAtFolder(t *testing.T) {
	m := NewMounter()
	for name, path := range map[string]string{"folder": t.TempDir(), "absent": filepath.Join(t.TempDir(), "a/b")} {
		if point, mounted, err := m.At(path); mounted || err != nil {
			t.Errorf("%s: want no mount, got %+v, %v", name, point, err)
		}
	}
	if point, mounted, err := m.At("/proc"); !mounted || point.Type != "proc" || err != nil {
		t.Errorf("/proc is a mount, got %+v, %t, %v", point, mounted, err)
	}
}

// What the kernel shows of filesystems, as Linux 6.1 and 6.18 write it.
func TestPointOf(t *testing.T) {
	for name, tc := range map[string]struct {
		why            string
		mount, beneath string
		readOnly       bool
		failed         string
	}{
		"writable":        {"a sound one", "rw,relatime", "rw", false, ""},
		"read-only":       {"mount -o ro", "ro,relatime", "ro", true, ""},
		"bound read-only": {"a Pod's own wish", "ro,relatime", "rw", true, ""},
		"error":           {"ext4 made itself read-only", "rw,relatime", "ro,errors=remount-ro", false, "ro"},
		"error, newer":    {"ext4 since 6.15 says so, and keeps rw", "rw,relatime", "rw,errors=remount-ro,emergency_ro", false, "emergency_ro"},
		"shut down":       {"its journal was aborted", "rw,relatime", "rw,shutdown", false, "shutdown"},
		"labelled":        {"SELinux categories have commas", "rw,relatime", `rw,context="system_u:object_r:container_file_t:s0:c1,c2"`, false, ""},
		"both":            {"bound read-only, and failed", "ro,relatime", "rw,emergency_ro", true, "emergency_ro"},
	} {
		got := pointOf("/p", &mountinfo.Info{Options: tc.mount, VFSOptions: tc.beneath})
		if got.ReadOnly != tc.readOnly || got.Failed != tc.failed {
			t.Errorf("%s: %s: got read-only %t, failed %q", name, tc.why, got.ReadOnly, got.Failed)
		}
	}
}

// recorder notes whether it was asked to mount.
type recorder struct {
	mountutils.Interface
	mounted bool
}

func (r *recorder) MountSensitive(string, string, string, []string, []string) error {
	r.mounted = true
	return nil
}

// TestNoMountAfterTheEnd: mount-utils goes on after an fsck that was cut off;
// what it would then mount has not been checked.
func TestNoMountAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{}
	m := boundMounter{r, ctx}
	if err := m.MountSensitive("", "", "", nil, nil); err != nil || !r.mounted {
		t.Errorf("before the end it mounts: %t, %v", r.mounted, err)
	}
	r.mounted = false
	cancel()
	if err := m.MountSensitive("", "", "", nil, nil); !errors.Is(err, context.Canceled) || r.mounted {
		t.Errorf("after the end it must not mount: %t, %v", r.mounted, err)
	}
}

func TestNodeNumber(t *testing.T) {
	if _, _, ok, err := NodeNumber("/dev/null"); ok || err != nil {
		t.Errorf("a character device is no block device: %t, %v", ok, err)
	}
	if _, _, ok, err := NodeNumber(filepath.Join(t.TempDir(), "absent")); ok || err != nil {
		t.Errorf("an absent path is no block device: %t, %v", ok, err)
	}
}

func TestUsageOf(t *testing.T) {
	usage, err := UsageOf(t.TempDir())
	if err != nil || usage.TotalBytes <= 0 || usage.UsedBytes > usage.TotalBytes || usage.UsedInodes+usage.FreeInodes != usage.TotalInodes {
		t.Errorf("usage does not add up: %+v, %v", usage, err)
	}
	if _, err := UsageOf("/no/such/path"); err == nil || !strings.Contains(err.Error(), "/no/such/path") {
		t.Errorf("want an error that names the path, got %v", err)
	}
}
