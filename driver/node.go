package driver

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// Devices is what the node service needs of this instance's block devices.
type Devices interface {
	// Wait returns the volume's device as soon as it is there and proved.
	Wait(ctx context.Context, want blockdev.Want) (blockdev.Device, error)
	// Find looks for the volume's device once.
	Find(want blockdev.Want) (blockdev.Device, error)
	// WaitForSize returns the device as soon as it is this large.
	WaitForSize(ctx context.Context, d blockdev.Device, atLeastBytes int64) (blockdev.Device, error)
	// ByNumber returns the device with this number.
	ByNumber(major, minor uint32) (blockdev.Device, error)
	// Owner tells which volume a device is, false where nothing can tell.
	Owner(major, minor uint32) (ebs.VolumeID, bool, error)
}

// Filesystems is what the node service needs of filesystems and mounts.
type Filesystems interface {
	At(path string) (fs.Point, bool, error)
	CheckWritable(p fs.Point) error
	OtherMount(major, minor uint32, except ...string) (path string, found bool, err error)
	Mount(ctx context.Context, r fs.Request) (fs.Outcome, error)
	Bind(source, target string, readOnly bool) error
	Unmount(path string) error
	Grow(ctx context.Context, device, path string) (fs.Growth, error)
}

// NodeService is the CSI node service. It calls no EC2 API and remembers
// nothing: what is mounted is read from the kernel at each call, so that a
// restarted process goes on where the last one stopped.
type NodeService struct {
	csi.UnimplementedNodeServer
	devices  Devices
	mounts   Filesystems
	instance InstanceMetadata
	limits   VolumeLimits
	// told is the limit in the last answer of NodeGetInfo, for the log alone.
	told atomic.Int64
}

// NewNodeService returns a node service.
func NewNodeService(devices Devices, mounts Filesystems, instance InstanceMetadata, limits VolumeLimits) *NodeService {
	return &NodeService{devices: devices, mounts: mounts, instance: instance, limits: limits}
}

// nodeCapabilities are what the node service can do besides publishing.
var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
}

// NodeGetCapabilities answers nodeCapabilities.
func (s *NodeService) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range nodeCapabilities {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return out, nil
}

// NodeStageVolume finds the volume's device and, for a filesystem, mounts it at
// the staging path. A raw block volume needs no staging beyond its device.
func (s *NodeService) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	want, err := parseNodeStage(req)
	if err != nil {
		return nil, nodeError(err)
	}
	device, err := s.devices.Wait(ctx, want.device)
	if err != nil {
		return nil, nodeError(err)
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("devicePath", device.Path)
	log.Info("NodeStageVolume: device found", "sizeBytes", device.SizeBytes)
	if want.access.block {
		log.Info("NodeStageVolume: block volume, nothing to mount")
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := s.stageFilesystem(logr.NewContext(ctx, log), device, want); err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stageFilesystem mounts the device, or accepts the mount of an earlier call.
func (s *NodeService) stageFilesystem(ctx context.Context, device blockdev.Device, want stageRequest) error {
	log := logr.FromContextOrDiscard(ctx)
	point, mounted, err := s.mounts.At(want.path)
	if err != nil {
		return err
	}
	if mounted && s.isDead(point) {
		log.Info("NodeStageVolume: the device of what is mounted is gone, unmounting", "path", want.path, "major", point.Major, "minor", point.Minor)
		if err := s.mounts.Unmount(want.path); err != nil {
			return err
		}
		mounted = false
	}
	if mounted {
		if err := sameStaging(point, device, want); err != nil {
			return err
		}
		log.Info("NodeStageVolume: already mounted", "path", want.path, "fsType", point.Type)
		return s.finishStage(ctx, device, want)
	}
	done, err := s.mounts.Mount(ctx, fs.Request{
		Device:   device.Path,
		Target:   want.path,
		Type:     want.access.fsType,
		Options:  want.access.mountFlags,
		ReadOnly: want.access.readOnly,
		Format:   want.format,
	})
	if err != nil {
		return err
	}
	log.Info("NodeStageVolume: mounted", "path", want.path, "fsType", done.Type, "formatted", done.Formatted)
	if done.Formatted {
		return nil // a new filesystem has the device's size
	}
	return s.finishStage(ctx, device, want)
}

// isDead says whether the device under a mount is gone: the volume was detached by
// force from a node that was taken for lost, and is back. Nothing can be read or
// written there, and while it stays no Pod can be given the volume. The kernel
// gives the device's number to no other one before the mount has ended; number 0
// is a filesystem's without a device.
func (s *NodeService) isDead(point fs.Point) bool {
	if point.Major == 0 {
		return false
	}
	_, err := s.devices.ByNumber(point.Major, point.Minor)
	return errors.Is(err, iofs.ErrNotExist)
}

// finishStage makes sure that what is staged can be written to, if that is
// wanted: mount(8) mounts a write-protected device read-only and calls it a
// success, and the filesystem of an earlier call may have met an error since.
// Then it is grown.
func (s *NodeService) finishStage(ctx context.Context, device blockdev.Device, want stageRequest) error {
	if want.access.readOnly {
		return nil
	}
	point, mounted, err := s.mounts.At(want.path)
	if err == nil && !mounted {
		err = fmt.Errorf("%s: %w", want.path, fs.ErrNotMounted)
	}
	if err == nil {
		err = s.mounts.CheckWritable(point)
	}
	if err != nil {
		return fmt.Errorf("volume %s: %w: %w", want.device.Volume, errStaysStaged, err)
	}
	return s.growStaged(ctx, device, want)
}

// growStaged grows a staged filesystem to its device: a volume may have been
// restored from a smaller snapshot, or grown while no node had it, and an
// earlier call may have mounted it and failed to grow it.
func (s *NodeService) growStaged(ctx context.Context, device blockdev.Device, want stageRequest) error {
	grown, err := s.mounts.Grow(ctx, device.Path, want.path)
	if err != nil {
		return fmt.Errorf("volume %s at %s: %w: %w", want.device.Volume, want.path, errStaysStaged, err)
	}
	if grown.Changed() {
		logr.FromContextOrDiscard(ctx).Info("NodeStageVolume: filesystem grown", "fromBytes", grown.FromBytes, "toBytes", grown.ToBytes)
	}
	return nil
}

// NodeUnstageVolume unmounts the staging path.
func (s *NodeService) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, nodeError(err)
	}
	if err := s.unmount(ctx, req.GetStagingTargetPath(), "NodeUnstageVolume: unmounted", "NodeUnstageVolume: nothing mounted"); err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume shows a staged volume at the target path.
func (s *NodeService) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	want, err := parseNodePublish(req)
	if err != nil {
		return nil, nodeError(err)
	}
	publish := s.publishFilesystem
	if want.access.block {
		publish = s.publishBlock
	}
	if err := publish(ctx, want); err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publishFilesystem binds the staged filesystem to the target.
func (s *NodeService) publishFilesystem(ctx context.Context, want publishRequest) error {
	staged, ok, err := s.mounts.At(want.staging)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("volume %s at %s: %w", want.device.Volume, want.staging, errNotStaged)
	}
	if err := s.checkOwner(staged, want); err != nil {
		return err
	}
	readOnly := want.access.readOnly
	log := logr.FromContextOrDiscard(ctx).WithValues("path", want.target, "readOnly", readOnly)
	published, ok, err := s.mounts.At(want.target)
	if err != nil {
		return err
	}
	if ok {
		if err := samePublication(published, staged, readOnly); err != nil {
			return err
		}
		log.Info("NodePublishVolume: already published")
		return nil
	}
	if !readOnly {
		// A Pod that is to write learns it here, not at its first write. One that
		// has the volume already keeps it (above): kubelet asks again and again.
		if err := s.mounts.CheckWritable(staged); err != nil {
			return fmt.Errorf("volume %s: %w", want.device.Volume, err)
		}
	}
	if err := s.checkWriters(staged.Major, staged.Minor, want); err != nil {
		return err
	}
	if err := s.mounts.Bind(want.staging, want.target, readOnly); err != nil {
		return err
	}
	log.Info("NodePublishVolume: published", "fsType", staged.Type)
	return nil
}

// checkOwner makes sure that what is staged is the volume that is asked for.
func (s *NodeService) checkOwner(staged fs.Point, want publishRequest) error {
	owner, known, err := s.devices.Owner(staged.Major, staged.Minor)
	if err != nil {
		return fmt.Errorf("device %d:%d of %s: %w", staged.Major, staged.Minor, want.staging, err)
	}
	if known && owner != want.device.Volume {
		return fmt.Errorf("volume %s: at %s volume %s is mounted: %w", want.device.Volume, want.staging, owner, errNotStaged)
	}
	return nil
}

// checkWriters refuses a second target path to a volume of one writer. The mode
// SINGLE_NODE_WRITER takes as many as ever: a CO that knows no finer one, such as
// Kubernetes before ReadWriteOncePod, means "one node" by it (CSI specification,
// SINGLE_NODE_MULTI_WRITER: "in order to permit older COs to continue working").
func (s *NodeService) checkWriters(major, minor uint32, want publishRequest) error {
	if !want.access.singleWriter {
		return nil
	}
	path, found, err := s.mounts.OtherMount(major, minor, want.staging, want.target)
	if err != nil {
		return err
	}
	if found {
		return fmt.Errorf("volume %s is published at %s, and its access mode SINGLE_NODE_SINGLE_WRITER allows no other place (wanted is %s): %w",
			want.device.Volume, path, want.target, errSecondWriter)
	}
	return nil
}

// publishBlock binds the volume's device node to the target.
func (s *NodeService) publishBlock(ctx context.Context, want publishRequest) error {
	device, err := s.devices.Wait(ctx, want.device)
	if err != nil {
		return err
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("path", want.target, "devicePath", device.Path)
	point, mounted, err := s.mounts.At(want.target)
	if err != nil {
		return err
	}
	if mounted {
		if err := sameBlockPublication(want, point, device); err != nil {
			return err
		}
		log.Info("NodePublishVolume: already published")
		return nil
	}
	if err := s.checkWriters(device.Major, device.Minor, want); err != nil {
		return err
	}
	if err := s.mounts.Bind(device.Path, want.target, want.access.readOnly); err != nil {
		return err
	}
	log.Info("NodePublishVolume: block device published")
	return nil
}

// NodeUnpublishVolume unmounts the target path and removes it.
func (s *NodeService) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId(), "target_path", req.GetTargetPath()); err != nil {
		return nil, nodeError(err)
	}
	if err := s.unmount(ctx, req.GetTargetPath(), "NodeUnpublishVolume: unmounted", "NodeUnpublishVolume: nothing mounted"); err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// unmount unmounts and removes a path, and logs which of the two was needed.
func (s *NodeService) unmount(ctx context.Context, path, done, nothing string) error {
	_, mounted, err := s.mounts.At(path)
	if err != nil {
		return err
	}
	if err := s.mounts.Unmount(path); err != nil {
		return err
	}
	message := nothing
	if mounted {
		message = done
	}
	logr.FromContextOrDiscard(ctx).Info(message, "path", path)
	return nil
}
