package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const hybrid = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
50 27 0:31 / /mnt/again rw,relatime - cgroup cgroup rw,cpuset
51 27 0:29 /docker/1 /mnt/part rw,relatime - cgroup cgroup rw,cpu,cpuacct
`

const unified = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		why, mountinfo string
		want           []Hierarchy
		pure2          bool
	}{
		"hybrid": {"each hierarchy counts once, by its root, without options that are not controllers", hybrid, []Hierarchy{
			{Mount: "/sys/fs/cgroup/cpu,cpuacct", Controllers: "cpu,cpuacct"},
			{Mount: "/sys/fs/cgroup/cpuset", Controllers: "cpuset"},
			{Mount: "/sys/fs/cgroup/systemd", Controllers: "none,name=systemd"},
			{Mount: "/sys/fs/cgroup/unified"},
		}, false},
		"v2": {"ordinary machines have v2 alone", unified, []Hierarchy{{Mount: "/sys/fs/cgroup"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.NewReader(tc.mountinfo))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Hierarchies); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			if got.Pure2() != tc.pure2 {
				t.Errorf("%s: pure v2 is %t", tc.why, got.Pure2())
			}
		})
	}
	if _, err := parse(strings.NewReader("27 1 254:0 / / rw - ext4 /dev/vda rw\n")); err == nil {
		t.Error("a machine without cgroups must be refused")
	}
}

func TestNodeMounts(t *testing.T) {
	for name, tc := range map[string]struct {
		why, mountinfo string
		want           []Mount
	}{
		"hybrid": {"programs look for cpu and cpuacct by their own names", hybrid, []Mount{
			{
				Target: "/sys/fs/cgroup/cpu,cpuacct", Type: "cgroup", Data: "cpu,cpuacct",
				Links: []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"},
			},
			{Target: "/sys/fs/cgroup/cpuset", Type: "cgroup", Data: "cpuset"},
			{Target: "/sys/fs/cgroup/systemd", Type: "cgroup", Data: "none,name=systemd"},
			{Target: "/sys/fs/cgroup/unified", Type: "cgroup2"},
		}},
		"v2": {"the folder itself is the hierarchy", unified, []Mount{{Target: "/sys/fs/cgroup", Type: "cgroup2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := parse(strings.NewReader(tc.mountinfo))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.NodeMounts()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestFolders(t *testing.T) {
	l := Layout{Hierarchies: []Hierarchy{{Mount: "/sys/fs/cgroup/pids", Controllers: "pids"}, {Mount: "/sys/fs/cgroup/unified"}}}
	want := []string{"/sys/fs/cgroup/pids/s/n", "/sys/fs/cgroup/unified/s/n"}
	if diff := cmp.Diff(want, l.Folders("s/n")); diff != "" {
		t.Errorf("folders (-want +got)\n%s", diff)
	}
}

func TestV2Folder(t *testing.T) {
	v1 := Hierarchy{Mount: "/sys/fs/cgroup/pids", Controllers: "pids"}
	for name, tc := range map[string]struct {
		why   string
		mount string
		l     Layout
	}{
		"hybrid": {"v2 is beside v1", "/sys/fs/cgroup/unified", Layout{Hierarchies: []Hierarchy{v1, {Mount: "/sys/fs/cgroup/unified"}}}},
		"v2":     {"v2 is all there is", "/sys/fs/cgroup", Layout{Hierarchies: []Hierarchy{{Mount: "/sys/fs/cgroup"}}}},
		"v1":     {"there is no v2", "", Layout{Hierarchies: []Hierarchy{v1}}},
	} {
		got, ok := tc.l.V2Folder("s/n")
		if want := filepath.Join(tc.mount, "s/n"); ok != (tc.mount != "") || ok && got != want {
			t.Errorf("%s: folder %q, %v: %s", name, got, ok, tc.why)
		}
	}
}
