package driver_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// Every capability of the plugin as a whole that is advertised is there.
func TestPluginCapabilities(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	vol := c.volume("pvc-1").GetVolumeId()
	calls := map[string]func(t *testing.T){
		"CONTROLLER_SERVICE": func(t *testing.T) {
			answer, err := c.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
			if err != nil || len(answer.GetCapabilities()) == 0 {
				t.Errorf("%v, %v", answer, err)
			}
		},
		"GROUP_CONTROLLER_SERVICE": func(t *testing.T) {
			answer, err := c.groups.GroupControllerGetCapabilities(ctx, &csi.GroupControllerGetCapabilitiesRequest{})
			if err != nil || len(answer.GetCapabilities()) == 0 {
				t.Errorf("%v, %v", answer, err)
			}
		},
		"VOLUME_ACCESSIBILITY_CONSTRAINTS": func(t *testing.T) {
			made := c.volume("pvc-2", in(zoneB))
			if got := made.GetAccessibleTopology(); len(got) != 1 || got[0].GetSegments()["topology.kubernetes.io/zone"] != zoneB {
				t.Errorf("a volume wanted in %s is accessible from %v", zoneB, got)
			}
			_, err := c.publish(made.GetVolumeId(), nodeA)
			wantCode(t, "a node of another zone", err, codes.InvalidArgument, zoneB)
		},
		"ONLINE": func(t *testing.T) {
			if _, err := c.publish(vol, nodeA); err != nil {
				t.Fatal(err)
			}
			answer, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 11 * gib}, VolumeCapability: singleWriter()})
			if err != nil || answer.GetCapacityBytes() != 11*gib {
				t.Errorf("growth of a volume in use: %v, %v", answer, err)
			}
		},
	}
	answer, err := c.identity.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, capability := range answer.GetCapabilities() {
		name := capability.GetService().GetType().String()
		if expansion := capability.GetVolumeExpansion(); expansion != nil {
			name = expansion.GetType().String()
		}
		call, known := calls[name]
		if !known {
			t.Errorf("%s is advertised and this test does not call it", name)
			continue
		}
		t.Run(name, call)
		delete(calls, name)
	}
	for name := range calls {
		t.Errorf("%s is not advertised", name)
	}
}
