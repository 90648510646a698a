package stage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func TestCompare(t *testing.T) {
	kept := belongings{volumes: []string{"vol-1"}, snapshots: []string{"snap-1"}, attachments: []string{"vol-1 at i-1"}}
	for name, tc := range map[string]struct {
		why          string
		wanted, have belongings
		want         []string
	}{
		"equal": {
			why:    "nothing is left over",
			wanted: kept, have: kept,
		},
		"leaked": {
			why:  "what costs money and has no owner",
			have: kept,
			want: []string{
				"volume vol-1 is in EC2 and no PersistentVolume names it",
				"snapshot snap-1 is in EC2 and no VolumeSnapshotContent names it",
				"attachment vol-1 at i-1 is in EC2 and no VolumeAttachment names it",
			},
		},
		"lost": {
			why:    "an owner whose volume is gone",
			wanted: belongings{volumes: []string{"vol-1"}},
			want:   []string{"a PersistentVolume names volume vol-1, which EC2 does not have"},
		},
		"elsewhere": {
			why:    "attached to another instance than the VolumeAttachment says",
			wanted: belongings{attachments: []string{"vol-1 at i-1"}},
			have:   belongings{attachments: []string{"vol-1 at i-2"}},
			want: []string{
				"attachment vol-1 at i-2 is in EC2 and no VolumeAttachment names it",
				"a VolumeAttachment names attachment vol-1 at i-1, which EC2 does not have",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, compare(tc.wanted, tc.have)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestStrayMounts(t *testing.T) {
	staging := csiDir + Driver + "/" + hash("vol-1") + "/globalmount"
	mounts := []byte("proc /proc proc rw 0 0\n/dev/loop3 " + staging + " ext4 rw 0 0\n/dev/loop3 /var/lib/kubelet/pods/x/volumes/kubernetes.io~csi/pvc-1/mount ext4 rw 0 0\n")
	attached := belongings{attachments: []string{"vol-1 at i-1"}}
	if got := strayMounts("node-1", "i-1", mounts, attached); len(got) != 0 {
		t.Errorf("the mount of an attached volume is called stray: %v", got)
	}
	want := []string{"node node-2: " + staging + " is mounted and its volume is not attached"}
	if diff := cmp.Diff(want, strayMounts("node-2", "i-2", mounts, attached)); diff != "" {
		t.Errorf("a mount on a node that the volume is not attached to (-want +got)\n%s", diff)
	}
}

func TestOnMachine(t *testing.T) {
	state := ec2sim.State{Volumes: []ec2sim.Volume{
		{ID: "vol-1", Attachments: []ec2sim.Attachment{{InstanceID: "i-1"}}},
		{ID: "vol-2"},
	}}
	got := onMachine([]loop{
		{"loop1", "/s/mine/ec2/volumes/vol-1.img"},
		{"loop2", "/s/mine/ec2/volumes/vol-2.img"},
		{"loop3", "/s/mine/ec2/volumes/vol-3.img"}, // of a volume that was deleted
		{"loop4", "/s/other/ec2/volumes/vol-4.img"},
	}, "/s/mine", state)
	want := []string{
		"loop2 is on the disk of volume vol-2, which is not attached",
		"loop3 is on the disk of volume vol-3, which is not attached",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loop devices that belong to nothing (-want +got)\n%s", diff)
	}
}
