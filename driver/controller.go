package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Volumes is what the controller service needs of the cloud for volumes. Every
// call may be repeated with the same arguments and ends with its context.
type Volumes interface {
	// EnsureVolume makes the volume, or finds it where an earlier call did.
	EnsureVolume(ctx context.Context, want ebs.VolumeRequest) (ebs.Volume, error)
	// Volume looks a volume up; ErrNotFound where there is none.
	Volume(ctx context.Context, id ebs.VolumeID) (ebs.Volume, error)
	// ListVolumes answers one page: what the driver made, and all else that is attached.
	ListVolumes(ctx context.Context, q ebs.VolumeQuery) (ebs.VolumePage, error)
	// DeleteVolume deletes a volume; one that does not exist is no error.
	DeleteVolume(ctx context.Context, id ebs.VolumeID) error
	// WaitInitialized waits until all content of a volume's source is there, for as
	// long as a request should take, and then answers ErrNotReady.
	WaitInitialized(ctx context.Context, id ebs.VolumeID) error
	// Attach attaches a volume to an instance and waits until it is.
	Attach(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID) (ebs.Attachment, error)
	// Detach detaches a volume from an instance and waits until it is; nothing to detach is no error.
	Detach(ctx context.Context, id ebs.VolumeID, from ebs.InstanceID) error
	// Health is what is known to be wrong with a volume; ErrNotFound where there is none.
	Health(ctx context.Context, id ebs.VolumeID) (ebs.Health, error)
	// ListUnhealthy answers one page of the volumes with which something is wrong.
	ListUnhealthy(ctx context.Context, q ebs.VolumeQuery) (ebs.HealthPage, error)
	// Modify makes a volume what is wanted and waits until that can be used; what it is already is no error.
	Modify(ctx context.Context, id ebs.VolumeID, want ebs.Modification) (ebs.Volume, error)
}

// Snapshots is what the controller service needs of the cloud for snapshots.
type Snapshots interface {
	// EnsureSnapshot starts the snapshot, or finds it where an earlier call did.
	EnsureSnapshot(ctx context.Context, want ebs.SnapshotRequest) (ebs.Snapshot, error)
	// DeleteSnapshot deletes a snapshot; one that does not exist is no error.
	DeleteSnapshot(ctx context.Context, id ebs.SnapshotID) error
	// ListSnapshots answers one page.
	ListSnapshots(ctx context.Context, q ebs.SnapshotQuery) (ebs.SnapshotPage, error)
}

// publishDevicePath is the key of the publish context under which the node
// finds the device name of the attachment, as with AWS's driver.
const publishDevicePath = "devicePath"

// ControllerService is the CSI controller service.
type ControllerService struct {
	csi.UnimplementedControllerServer
	volumes   Volumes
	snapshots Snapshots
	tagging   Tagging
}

// NewControllerService makes the controller service.
func NewControllerService(v Volumes, s Snapshots, t Tagging) *ControllerService {
	return &ControllerService{volumes: v, snapshots: s, tagging: t}
}

// CreateVolume makes a volume, empty, from a snapshot or as a copy of another volume.
func (s *ControllerService) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	want, volumeContext, err := parseCreateVolume(req, s.tagging)
	if err != nil {
		return nil, grpcError(err)
	}
	vol, err := s.volumes.EnsureVolume(ctx, want)
	if err != nil {
		return nil, grpcError(fmt.Errorf("create volume %q: %w", want.Name, err))
	}
	logr.FromContextOrDiscard(ctx).Info("CreateVolume: ready", "volumeID", vol.ID, "zone", vol.Zone.Name, "sizeGiB", vol.Size, "type", vol.Type)
	return createVolumeResponse(vol, volumeContext, req.GetVolumeContentSource()), nil
}

// createVolumeResponse is the one answer for new and found volumes.
func createVolumeResponse(vol ebs.Volume, volumeContext map[string]string, source *csi.VolumeContentSource) *csi.CreateVolumeResponse {
	answer := &csi.CreateVolumeResponse{Volume: csiVolume(vol)}
	answer.Volume.VolumeContext = volumeContext
	answer.Volume.ContentSource = source
	return answer
}

// DeleteVolume deletes a volume.
func (s *ControllerService) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return nil, grpcError(err)
	}
	if err := s.volumes.DeleteVolume(ctx, id); err != nil {
		return nil, grpcError(fmt.Errorf("delete volume %s: %w", id, err))
	}
	logr.FromContextOrDiscard(ctx).Info("DeleteVolume: deleted")
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerPublishVolume attaches a volume to an instance.
func (s *ControllerService) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node, err := parsePublish(req)
	if err != nil {
		return nil, grpcError(err)
	}
	wait, err := mustBeInitialized(req.GetVolumeContext())
	if err == nil && wait {
		err = s.volumes.WaitInitialized(ctx, id)
	}
	if err != nil {
		return nil, grpcError(err)
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("ControllerPublishVolume: attaching")
	att, err := s.volumes.Attach(ctx, id, node)
	if err == nil {
		err = checkAlone(att, req.GetVolumeCapability())
	}
	if err != nil {
		return nil, grpcError(fmt.Errorf("attach %s to %s: %w", id, node, err))
	}
	log.Info("ControllerPublishVolume: attached", "devicePath", att.DeviceName)
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{publishDevicePath: att.DeviceName}}, nil
}

// ControllerUnpublishVolume detaches a volume from an instance, or from all
// where none is named, as the specification asks.
func (s *ControllerService) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return nil, grpcError(err)
	}
	nodes, err := s.nodesToDetach(ctx, id, ebs.InstanceID(req.GetNodeId()))
	if err != nil {
		return nil, grpcError(fmt.Errorf("detach %s: %w", id, err))
	}
	log := logr.FromContextOrDiscard(ctx)
	for _, node := range nodes {
		log.Info("ControllerUnpublishVolume: detaching", "nodeID", node)
		if err := s.volumes.Detach(ctx, id, node); err != nil {
			return nil, grpcError(fmt.Errorf("detach %s from %s: %w", id, node, err))
		}
	}
	log.Info("ControllerUnpublishVolume: detached")
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// nodesToDetach is the named instance, or all that have the volume.
func (s *ControllerService) nodesToDetach(ctx context.Context, id ebs.VolumeID, named ebs.InstanceID) ([]ebs.InstanceID, error) {
	if named != "" {
		return []ebs.InstanceID{named}, nil
	}
	vol, err := s.volumes.Volume(ctx, id)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes []ebs.InstanceID
	for _, a := range vol.Attachments {
		nodes = append(nodes, a.Instance)
	}
	return nodes, nil
}

// ValidateVolumeCapabilities confirms what the driver can do with a volume.
func (s *ControllerService) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return nil, grpcError(err)
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, grpcError(fmt.Errorf("%w: the request names no volume capability", ebs.ErrInvalid))
	}
	vol, err := s.volumes.Volume(ctx, id)
	if err != nil {
		return nil, grpcError(fmt.Errorf("look up volume %s: %w", id, err))
	}
	if forSeveralNodes(req.GetVolumeCapabilities()...) && !vol.MultiAttach {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: fmt.Sprintf("volume %s is for one node at a time: it was made without Multi-Attach", id)}, nil
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	params, err := parseVolumeParameters(req.GetParameters())
	if err == nil {
		err = checkFormat(params.format, req.GetVolumeCapabilities(), 0)
	}
	if err == nil {
		_, err = parseMutableParameters(req.GetMutableParameters())
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}

// ControllerExpandVolume grows a volume, attached or not.
func (s *ControllerService) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, atLeast, err := parseExpand(req)
	if err != nil {
		return nil, grpcError(err)
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("ControllerExpandVolume: growing", "toGiB", atLeast)
	vol, err := s.volumes.Modify(ctx, id, ebs.Modification{Size: atLeast})
	if err != nil {
		return nil, grpcError(fmt.Errorf("grow %s to %d GiB: %w", id, atLeast, err))
	}
	log.Info("ControllerExpandVolume: grown", "sizeGiB", vol.Size)
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes: vol.Size.Bytes(),
		// A raw block device grows by itself; a filesystem is grown by the node.
		NodeExpansionRequired: req.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

// ControllerModifyVolume gives a volume the attributes of a class.
func (s *ControllerService) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	id, want, err := parseModify(req)
	if err != nil {
		return nil, grpcError(err)
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("ControllerModifyVolume: modifying", "type", want.Type, "iops", want.IOPS, "iopsPerGB", want.IOPSPerGiB, "throughput", want.ThroughputMiBps)
	vol, err := s.volumes.Modify(ctx, id, want)
	if err != nil {
		return nil, grpcError(fmt.Errorf("modify %s: %w", id, err))
	}
	log.Info("ControllerModifyVolume: modified", "type", vol.Type, "iops", vol.IOPS, "throughput", vol.ThroughputMiBps)
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// CreateSnapshot starts a snapshot and answers whether it can be used yet; it
// does not wait for that, csi-snapshotter asks again.
func (s *ControllerService) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	want, err := parseCreateSnapshot(req, s.tagging)
	if err != nil {
		return nil, grpcError(err)
	}
	snap, err := s.snapshots.EnsureSnapshot(ctx, want)
	if err != nil {
		return nil, grpcError(fmt.Errorf("create snapshot %q of %s: %w", want.Name, want.Volume, err))
	}
	logr.FromContextOrDiscard(ctx).Info("CreateSnapshot: started", "snapshotID", snap.ID, "state", snap.State)
	return &csi.CreateSnapshotResponse{Snapshot: csiSnapshot(snap)}, nil
}

// csiSnapshot says a snapshot in CSI's words.
func csiSnapshot(snap ebs.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     string(snap.ID),
		SourceVolumeId: string(snap.Volume),
		SizeBytes:      snap.Size.Bytes(),
		CreationTime:   timestamppb.New(snap.StartTime),
		ReadyToUse:     snap.State == ebs.SnapshotCompleted,
		// One of a group goes with the group, never alone.
		GroupSnapshotId: snap.Tags[ebs.TagGroupName],
	}
}

// DeleteSnapshot deletes a snapshot.
func (s *ControllerService) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id := ebs.SnapshotID(req.GetSnapshotId())
	if id == "" {
		return nil, grpcError(fmt.Errorf("%w: the request names no snapshot id", ebs.ErrInvalid))
	}
	if err := s.snapshots.DeleteSnapshot(ctx, id); err != nil {
		return nil, grpcError(fmt.Errorf("delete snapshot %s: %w", id, err))
	}
	logr.FromContextOrDiscard(ctx).Info("DeleteSnapshot: deleted")
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots answers snapshots by id, of a volume, or all of this account.
func (s *ControllerService) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, grpcError(fmt.Errorf("%w: max_entries %d: it cannot be negative", ebs.ErrInvalid, req.GetMaxEntries()))
	}
	page, err := s.snapshots.ListSnapshots(ctx, ebs.SnapshotQuery{
		ID:         ebs.SnapshotID(req.GetSnapshotId()),
		Volume:     ebs.VolumeID(req.GetSourceVolumeId()),
		MaxEntries: req.GetMaxEntries(),
		Token:      req.GetStartingToken(),
	})
	if err != nil {
		return nil, grpcError(fmt.Errorf("list snapshots: %w", err))
	}
	answer := &csi.ListSnapshotsResponse{NextToken: page.NextToken}
	for _, snap := range page.Snapshots {
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: csiSnapshot(snap)})
	}
	return answer, nil
}

// GetSnapshot answers one snapshot, of a group or not.
func (s *ControllerService) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	id := ebs.SnapshotID(req.GetSnapshotId())
	if id == "" {
		return nil, grpcError(invalid("the request names no snapshot id"))
	}
	page, err := s.snapshots.ListSnapshots(ctx, ebs.SnapshotQuery{ID: id})
	if err == nil && len(page.Snapshots) == 0 {
		err = ebs.ErrNotFound
	}
	if err != nil {
		return nil, grpcError(fmt.Errorf("look up snapshot %s: %w", id, err))
	}
	return &csi.GetSnapshotResponse{Snapshot: csiSnapshot(page.Snapshots[0])}, nil
}

// controllerCapabilities is what the controller service advertises.
var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
}

// ControllerGetCapabilities answers controllerCapabilities.
func (s *ControllerService) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range controllerCapabilities {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}
