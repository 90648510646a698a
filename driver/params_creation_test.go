package driver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// A class of attributes does for a new volume what it does for one that lives.
func TestAClassAtCreationAsAtModification(t *testing.T) {
	for name, tc := range map[string]struct {
		params, class map[string]string
		iops          int32
	}{
		"raised":           {nil, map[string]string{"iopsPerGB": "10", "allowAutoIOPSIncreaseOnModify": "true"}, 3000},
		"gp3 to io2":       {nil, map[string]string{"type": "io2"}, 3000},
		"gp2 to io2":       {map[string]string{"type": "gp2"}, map[string]string{"type": "io2"}, 3000},
		"io1 to gp3":       {map[string]string{"type": "io1", "iops": "200"}, map[string]string{"type": "gp3"}, 3000},
		"io2 to io1":       {map[string]string{"type": "io2", "iops": "9000"}, map[string]string{"type": "io1"}, 5000},
		"a rate to gp3":    {map[string]string{"type": "io2", "iopsPerGB": "1000"}, map[string]string{"type": "gp3"}, 50000},
		"a low rate to it": {map[string]string{"type": "io1", "iopsPerGB": "10"}, map[string]string{"type": "gp3"}, 3000},
		"to gp2":           {map[string]string{"type": "io1", "iopsPerGB": "10"}, map[string]string{"type": "gp2"}, 0},
	} {
		req := &csi.CreateVolumeRequest{
			Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 100 << 30}, Parameters: tc.params, MutableParameters: tc.class,
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
		}
		if want, _, err := parseCreateVolume(req, Tagging{}); err != nil || want.IOPS != tc.iops {
			t.Errorf("%s: %d IOPS, %v; want %d", name, want.IOPS, err, tc.iops)
		}
	}
}
