package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// ListVolumes answers the driver's volumes and all others that are attached,
// with the nodes that have them. csi-attacher compares them each minute with
// its VolumeAttachments and takes a volume that is missing for detached.
func (s *ControllerService) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, grpcError(invalid("max_entries %d: it cannot be negative", req.GetMaxEntries()))
	}
	page, err := s.volumes.ListVolumes(ctx, ebs.VolumeQuery{MaxEntries: req.GetMaxEntries(), Token: req.GetStartingToken()})
	if err != nil {
		return nil, grpcError(fmt.Errorf("list volumes: %w", err))
	}
	answer := &csi.ListVolumesResponse{NextToken: page.NextToken}
	for _, vol := range page.Volumes {
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{
			Volume: csiVolume(vol),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: publishedNodes(vol)},
		})
	}
	return answer, nil
}

// ControllerGetVolume answers one volume, with the nodes that have it.
func (s *ControllerService) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return nil, grpcError(err)
	}
	vol, err := s.volumes.Volume(ctx, id)
	if err == nil && !vol.Exists() {
		err = fmt.Errorf("%w: it is in state %s", ebs.ErrNotFound, vol.State)
	}
	if err != nil {
		return nil, grpcError(fmt.Errorf("look up volume %s: %w", id, err))
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: csiVolume(vol),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: publishedNodes(vol)},
	}, nil
}

// csiVolume says a volume in CSI's words.
func csiVolume(vol ebs.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId:           string(vol.ID),
		CapacityBytes:      vol.Size.Bytes(),
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topologyZone: vol.Zone.Name}}},
	}
}

// publishedNodes are the instances between the end of ControllerPublishVolume
// and that of ControllerUnpublishVolume: those that are being attached do not
// count yet, those that are being detached still do. Otherwise csi-attacher
// would repeat each call that it sees under way.
func publishedNodes(vol ebs.Volume) []string {
	var nodes []string
	for _, a := range vol.Attachments {
		if a.State.Holds() {
			nodes = append(nodes, string(a.Instance))
		}
	}
	return nodes
}
