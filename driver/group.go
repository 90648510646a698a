package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Groups is what the group controller service needs of the cloud. Every call may
// be repeated with the same arguments and ends with its context.
type Groups interface {
	// EnsureGroup takes snapshots of volumes at one instant, or finds those that an earlier call took.
	EnsureGroup(ctx context.Context, want ebs.GroupRequest) (ebs.SnapshotGroup, error)
	// Group looks a group up; ErrNotFound where there is none.
	Group(ctx context.Context, id ebs.GroupID) (ebs.SnapshotGroup, error)
	// DeleteGroup deletes a group's snapshots; those that do not exist are no error. members are
	// the snapshots that the caller takes for the group's, if it tells; others are ErrInvalid.
	DeleteGroup(ctx context.Context, id ebs.GroupID, members []ebs.SnapshotID) error
}

// GroupService is the CSI group controller service: snapshots of several volumes
// at one instant.
type GroupService struct {
	csi.UnimplementedGroupControllerServer
	groups  Groups
	tagging Tagging
}

// NewGroupService makes the group controller service.
func NewGroupService(g Groups, t Tagging) *GroupService {
	return &GroupService{groups: g, tagging: t}
}

// CreateVolumeGroupSnapshot takes the snapshots of a group and answers whether
// they can be used yet; it does not wait for that, csi-snapshotter asks again.
func (s *GroupService) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	want, err := parseCreateGroup(req, s.tagging)
	if err != nil {
		return nil, grpcError(err)
	}
	group, err := s.groups.EnsureGroup(ctx, want)
	if err != nil {
		return nil, grpcError(fmt.Errorf("take group snapshot %q: %w", want.Name, err))
	}
	answer := csiGroup(group)
	logr.FromContextOrDiscard(ctx).Info("CreateVolumeGroupSnapshot: taken", "groupSnapshotID", group.ID, "snapshots", len(group.Snapshots), "ready", answer.GetReadyToUse())
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: answer}, nil
}

// parseCreateGroup reads and judges the whole request before anything is done in EC2.
func parseCreateGroup(req *csi.CreateVolumeGroupSnapshotRequest, tagging Tagging) (ebs.GroupRequest, error) {
	if err := checkName(req.GetName()); err != nil {
		return ebs.GroupRequest{}, err
	}
	volumes, err := parseGroupVolumes(req.GetSourceVolumeIds())
	if err != nil {
		return ebs.GroupRequest{}, err
	}
	params, err := parseGroupParameters(req.GetParameters())
	if err != nil {
		return ebs.GroupRequest{}, err
	}
	tags, err := tagging.groupTags(req.GetName(), volumes, params)
	if err != nil {
		return ebs.GroupRequest{}, err
	}
	return ebs.GroupRequest{
		Name: req.GetName(), Volumes: volumes, Tags: tags,
		FastRestoreZones: params.fastRestoreZones, Lock: params.lock,
	}, nil
}

// parseGroupVolumes are the volumes of a group, sorted.
func parseGroupVolumes(ids []string) ([]ebs.VolumeID, error) {
	if len(ids) == 0 {
		return nil, invalid("the request names no source volume ids")
	}
	var volumes []ebs.VolumeID
	for _, id := range ids {
		v, err := volumeID(id)
		if err != nil {
			return nil, invalid("one of the source volume ids is empty")
		}
		if slices.Contains(volumes, v) {
			return nil, invalid("source volume %s is named twice", v)
		}
		volumes = append(volumes, v)
	}
	slices.Sort(volumes)
	return volumes, nil
}

// csiGroup says a group in CSI's words. It is as old as its oldest snapshot, and
// ready when all are.
func csiGroup(group ebs.SnapshotGroup) *csi.VolumeGroupSnapshot {
	answer := &csi.VolumeGroupSnapshot{GroupSnapshotId: string(group.ID), ReadyToUse: true}
	var oldest time.Time
	for _, snap := range group.Snapshots {
		s := csiSnapshot(snap)
		s.GroupSnapshotId = string(group.ID)
		answer.Snapshots = append(answer.Snapshots, s)
		answer.ReadyToUse = answer.ReadyToUse && s.GetReadyToUse()
		if oldest.IsZero() || snap.StartTime.Before(oldest) {
			oldest = snap.StartTime
		}
	}
	answer.CreationTime = timestamppb.New(oldest)
	return answer
}

// DeleteVolumeGroupSnapshot deletes all snapshots of a group.
func (s *GroupService) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id, members, err := parseGroup(req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if err != nil {
		return nil, grpcError(err)
	}
	if err := s.groups.DeleteGroup(ctx, id, members); err != nil {
		return nil, grpcError(fmt.Errorf("delete group snapshot %q: %w", id, err))
	}
	logr.FromContextOrDiscard(ctx).Info("DeleteVolumeGroupSnapshot: deleted")
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot answers a group as it is now. The snapshots that the
// request names must be the group's.
func (s *GroupService) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id, members, err := parseGroup(req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if err != nil {
		return nil, grpcError(err)
	}
	group, err := s.groups.Group(ctx, id)
	if err != nil {
		return nil, grpcError(fmt.Errorf("look up group snapshot %q: %w", id, err))
	}
	if err := checkMembers(group, members); err != nil {
		return nil, grpcError(err)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: csiGroup(group)}, nil
}

// checkMembers compares a group with what the caller takes for it, if it tells.
func checkMembers(group ebs.SnapshotGroup, members []ebs.SnapshotID) error {
	if len(members) == 0 {
		return nil
	}
	var have []ebs.SnapshotID
	for _, snap := range group.Snapshots {
		have = append(have, snap.ID)
	}
	slices.Sort(have)
	slices.Sort(members)
	if !slices.Equal(have, slices.Compact(members)) {
		return invalid("group snapshot %q has the snapshots %v, the request names %v", group.ID, have, members)
	}
	return nil
}

func parseGroup(id string, snapshots []string) (ebs.GroupID, []ebs.SnapshotID, error) {
	if id == "" {
		return "", nil, invalid("the request names no group snapshot id")
	}
	var members []ebs.SnapshotID
	for _, s := range snapshots {
		members = append(members, ebs.SnapshotID(s))
	}
	return ebs.GroupID(id), members, nil
}

// groupCapabilities is what the group controller service advertises.
var groupCapabilities = []csi.GroupControllerServiceCapability_RPC_Type{
	csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
}

// GroupControllerGetCapabilities answers groupCapabilities.
func (s *GroupService) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	answer := &csi.GroupControllerGetCapabilitiesResponse{}
	for _, c := range groupCapabilities {
		answer.Capabilities = append(answer.Capabilities, &csi.GroupControllerServiceCapability{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}
