package driver_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// PersistentVolumes bring a context of other makers: the in-tree translation's
// partition, and what csi-provisioner writes into each.
func TestForeignVolumeContext(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	foreign := map[string]string{"partition": "1", "storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-ebs.csi.aws.com"}
	confirmed, err := c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: vol, VolumeContext: foreign, VolumeCapabilities: []*csi.VolumeCapability{singleWriter()}})
	if err != nil || confirmed.GetConfirmed().GetVolumeContext()["partition"] != "1" {
		t.Errorf("%v, %v: it is not confirmed", confirmed, err)
	}
	_, err = c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: vol, NodeId: nodeA, VolumeContext: foreign, VolumeCapability: singleWriter()})
	if err != nil {
		t.Errorf("publish: %v", err)
	}
}
