package driver

import (
	iofs "io/fs"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// noDevice is an instance from which a disk was torn away.
type noDevice struct{ oneDevice }

func (noDevice) Owner(uint32, uint32) (ebs.VolumeID, bool, error) { return "", false, iofs.ErrNotExist }

// What only a node sees, without its kernel: root tests show the rest.
func TestNodeHealthConditions(t *testing.T) {
	disk := oneDevice{device: blockdev.Device{Path: "/dev/nvme1n1", Major: 259, Minor: 1}}
	for name, tc := range map[string]struct {
		why     string
		devices Devices
		point   fs.Point
		want    string
	}{
		"well":           {"nothing is told", disk, fs.Point{Major: 259, Minor: 1}, ""},
		"device gone":    {"the disk was torn away under its mount", noDevice{}, fs.Point{Major: 259, Minor: 1}, "INACCESSIBLE DeviceGone"},
		"shut off":       {"the kernel's own doing", disk, fs.Point{Major: 259, Minor: 1, Failed: "emergency_ro"}, "INACCESSIBLE FilesystemShutOff"},
		"read-only":      {"asked for", disk, fs.Point{Major: 259, Minor: 1, ReadOnly: true}, ""},
		"not the disk's": {"a tmpfs in its place says nothing, the device is there", disk, fs.Point{Minor: 42}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			service := NewNodeService(tc.devices, mountsThatDoNotGrow{at: map[string]fs.Point{"/nowhere/stage": tc.point}}, metadata{}, VolumeLimits{})
			answer, err := service.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1", StagingTargetPath: "/nowhere/stage"})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
				got += s.GetStatus().String() + " " + s.GetReason()
			}
			if got != tc.want || answer.GetVolumeHealth().GetVolumeId() != "vol-1" {
				t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}
