package ec2

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestCommonInstance(t *testing.T) {
	vol := func(id ebs.VolumeID, at ...ebs.Attachment) ebs.Volume {
		return ebs.Volume{ID: id, State: ebs.VolumeInUse, Attachments: at}
	}
	on := func(i ebs.InstanceID, s ebs.AttachmentState) ebs.Attachment {
		return ebs.Attachment{Instance: i, State: s}
	}
	for name, tc := range map[string]struct {
		why     string
		volumes []ebs.Volume
		want    ebs.InstanceID
		wrong   error
		texts   []string
	}{
		"one instance":  {"both are there", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), vol("vol-b", on("i-1", ebs.Busy))}, "i-1", nil, nil},
		"two instances": {"which volume is where is told", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), vol("vol-b", on("i-2", ebs.Attached))}, "", ebs.ErrNotTogether, []string{"vol-a to i-1", "vol-b to i-2"}},
		"multi-attach":  {"an instance that has all of them", []ebs.Volume{vol("vol-a", on("i-2", ebs.Attached), on("i-1", ebs.Attached)), vol("vol-b", on("i-2", ebs.Attached))}, "i-2", nil, nil},
		"not attached":  {"the volume is named", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), vol("vol-b")}, "", ebs.ErrNotTogether, []string{"vol-b is attached to no instance"}},
		"on its way":    {"soon it will be there", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), vol("vol-b", on("i-1", ebs.Attaching))}, "", ebs.ErrNotReady, []string{"vol-b is attaching"}},
		"leaving":       {"soon it will be elsewhere", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), vol("vol-b", on("i-1", ebs.Detaching))}, "", ebs.ErrNotReady, []string{"vol-b is detaching"}},
		"unknown":       {"EC2 has no such volume", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached))}, "", ebs.ErrNotFound, []string{"vol-b"}},
		"deleted":       {"it is on its way out", []ebs.Volume{vol("vol-a", on("i-1", ebs.Attached)), {ID: "vol-b", State: ebs.VolumeDeleting}}, "", ebs.ErrNotFound, []string{"vol-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := commonInstance([]ebs.VolumeID{"vol-a", "vol-b"}, tc.volumes)
			if got != tc.want || !errors.Is(err, tc.wrong) {
				t.Fatalf("%s: %q, %v; want %q, %v", tc.why, got, err, tc.want, tc.wrong)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %q", tc.why, err, text)
				}
			}
		})
	}
}

func TestBesides(t *testing.T) {
	i := instance{root: "/dev/xvda", devices: map[string]ebs.VolumeID{"/dev/xvda": "vol-root", "/dev/xvdaa": "vol-a", "/dev/xvdab": "vol-c", "/dev/xvdac": "vol-b", "/dev/xvdad": ""}}
	leaveOut, withRoot := besides(i, []ebs.VolumeID{"vol-a"})
	if diff := cmp.Diff([]ebs.VolumeID{"vol-b", "vol-c"}, leaveOut); diff != "" || withRoot {
		t.Errorf("the root volume has a switch of its own, the others are left out by id; with root: %v (-want +got)\n%s", withRoot, diff)
	}
	if leaveOut, withRoot = besides(i, []ebs.VolumeID{"vol-a", "vol-b", "vol-c", "vol-root"}); len(leaveOut) != 0 || !withRoot {
		t.Errorf("all are wanted: left out are %v, with root: %v", leaveOut, withRoot)
	}
}

func TestSortGroup(t *testing.T) {
	snap := func(id ebs.SnapshotID, of ebs.VolumeID) ebs.Snapshot { return ebs.Snapshot{ID: id, Volume: of} }
	got := sortGroup([]ebs.Snapshot{snap("snap-4", "vol-b"), snap("snap-1", "vol-a"), snap("snap-2", "vol-x"), snap("snap-3", "vol-a")}, []ebs.VolumeID{"vol-a", "vol-b", "vol-c"})
	want := sortedGroup{
		members: []ebs.Snapshot{snap("snap-1", "vol-a"), snap("snap-4", "vol-b")},
		strays:  []ebs.Snapshot{snap("snap-2", "vol-x")},
		double:  []ebs.Snapshot{snap("snap-3", "vol-a")},
		missing: []ebs.VolumeID{"vol-c"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sortedGroup{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
