package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSuperfluous(t *testing.T) {
	points := []string{"/proc", "/sys", "/dev", "/dev/pts", "/", "/var", "/var/tmp", "/home", "/run", "/sys/fs/cgroup", "/s/nodes/a/dev", "/s/nodes/b/dev"}
	for name, tc := range map[string]struct {
		why         string
		keep, spare []string
		want        []string
	}{
		"node": {
			"a node keeps what carries its files, and lets the rest go, inner ones first",
			[]string{"/var/tmp/s", "/home/u/.cache/bin", "/s/nodes/a/dev"}, nil,
			[]string{"/s/nodes/b/dev", "/sys/fs/cgroup", "/run", "/dev/pts", "/dev", "/sys", "/proc"},
		},
		"top": {
			"top keeps the kernel's own folders",
			[]string{"/var/tmp/s"},
			[]string{"/proc", "/sys", "/dev"},
			[]string{"/s/nodes/b/dev", "/s/nodes/a/dev", "/run", "/home"},
		},
		"similar name": {
			"/var/tmp carries /var/tmp/x, and not /var/tmpx",
			[]string{"/var/tmpx"}, []string{"/proc", "/sys", "/dev", "/s", "/home", "/run"},
			[]string{"/var/tmp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, superfluous(points, tc.keep, tc.spare)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestMountPoints(t *testing.T) {
	got, err := mountPoints(strings.NewReader("22 27 0:21 / /proc rw - proc proc rw\n23 27 0:22 / /my\\040disk\\134x rw shared:1 - ext4 /dev/x rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/proc", `/my disk\x`}, got); diff != "" {
		t.Errorf("mountinfo escapes spaces and backslashes (-want +got)\n%s", diff)
	}
}

func TestSpecRoundTrip(t *testing.T) {
	want := Spec{
		Kind: Node, Name: "n", Socket: "/s", Keep: []string{"/k"}, Addresses: []string{"10.0.0.1/24"},
		Routes: []Route{{To: "0.0.0.0/0", Via: "10.0.0.2"}}, Binds: []Bind{{From: "/a", To: "/b"}}, DevDir: "/d",
	}
	path := t.TempDir() + "/spec.json"
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got)\n%s", diff)
	}
}

func TestDeviceNodes(t *testing.T) {
	loops := 0
	for _, d := range deviceNodes() {
		if strings.HasPrefix(d.name, "loop") && d.name != "loop-control" {
			if d.major != 7 {
				t.Errorf("%s has major %d", d.name, d.major)
			}
			loops++
		}
	}
	if loops != 256 {
		t.Errorf("%d loop devices: volume limits and kubelet's loops on raw block volumes need 256", loops)
	}
}
