package driver

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// NodeExpandVolume waits until the kernel sees the volume's new size and grows
// its filesystem while it is mounted. A raw block volume needs only the wait.
func (s *NodeService) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	want, err := parseNodeExpand(req)
	if err != nil {
		return nil, nodeError(err)
	}
	expand := s.expandFilesystem
	if want.block {
		expand = s.expandBlock
	}
	sizeBytes, err := expand(ctx, want)
	if err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: sizeBytes}, nil
}

// expandBlock waits for the new size of a raw block volume. kubelet passes a
// path of its own making (a loop device on top), so that the device is looked
// for by the volume's identity.
func (s *NodeService) expandBlock(ctx context.Context, want expandRequest) (sizeBytes int64, err error) {
	device, err := s.devices.Wait(ctx, blockdev.Want{Volume: want.volume})
	if errors.Is(err, blockdev.ErrUnprovable) {
		// A Xen disk is known by its attachment's name alone, which this call
		// does not carry. Its new size needs nobody's help.
		return want.requiredBytes, nil
	}
	if err == nil {
		device, err = s.devices.WaitForSize(ctx, device, want.requiredBytes)
	}
	if err != nil {
		return 0, fmt.Errorf("volume %s: %w", want.volume, err)
	}
	logr.FromContextOrDiscard(ctx).Info("NodeExpandVolume: block device has its size", "devicePath", device.Path, "sizeBytes", device.SizeBytes)
	return device.SizeBytes, nil
}

// expandFilesystem waits for the new size and grows what is at the path: a
// filesystem, or (if kubelet told no capability) a published block device.
func (s *NodeService) expandFilesystem(ctx context.Context, want expandRequest) (sizeBytes int64, err error) {
	at, err := s.locate(want.volume, want.path)
	if err != nil {
		return 0, err
	}
	device, err := s.devices.WaitForSize(ctx, at.device, want.requiredBytes)
	if err != nil {
		return 0, fmt.Errorf("volume %s: %w", want.volume, err)
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("devicePath", device.Path, "sizeBytes", device.SizeBytes)
	if at.block {
		log.Info("NodeExpandVolume: block device has its size")
		return device.SizeBytes, nil
	}
	path, err := s.writablePath(want, device)
	if err != nil {
		return 0, err
	}
	grown, err := s.mounts.Grow(ctx, device.Path, path)
	if err != nil {
		return 0, err
	}
	log.Info("NodeExpandVolume: filesystem has its size", "path", path, "fromBytes", grown.FromBytes, "toBytes", grown.ToBytes)
	return device.SizeBytes, nil
}

// writablePath is where a filesystem is grown: its staging path if it is
// mounted there, since the Pod's mount may be read-only, which xfs_growfs
// does not accept.
func (s *NodeService) writablePath(want expandRequest, device blockdev.Device) (string, error) {
	if want.staging == "" {
		return want.path, nil
	}
	staged, mounted, err := s.mounts.At(want.staging)
	if err != nil || !mounted || !device.SameNumber(staged.Major, staged.Minor) {
		return want.path, err
	}
	return want.staging, nil
}

// NodeGetVolumeStats tells how full a volume is.
func (s *NodeService) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, path := req.GetVolumeId(), req.GetVolumePath()
	if err := required("volume_id", volume, "volume_path", path); err != nil {
		return nil, nodeError(err)
	}
	at, err := s.locate(ebs.VolumeID(volume), path)
	if err != nil {
		return nil, nodeError(err)
	}
	if at.block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: at.device.SizeBytes},
		}}, nil
	}
	usage, err := fs.UsageOf(path)
	if err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: usage.TotalBytes, Used: usage.UsedBytes, Available: usage.AvailableBytes},
		{Unit: csi.VolumeUsage_INODES, Total: usage.TotalInodes, Used: usage.UsedInodes, Available: usage.FreeInodes},
	}}, nil
}

// location is where a volume is on this node.
type location struct {
	device blockdev.Device
	block  bool // a device node, not a mounted filesystem
}

// locate finds out what of the volume is at path: its filesystem (a staging or
// target path) or its device node.
func (s *NodeService) locate(volume ebs.VolumeID, path string) (location, error) {
	major, minor, isNode, err := fs.NodeNumber(path)
	if err != nil {
		return location{}, err
	}
	if !isNode {
		point, mounted, err := s.mounts.At(path)
		if err != nil {
			return location{}, err
		}
		if !mounted {
			return location{}, fmt.Errorf("volume %s is not at %s: %w", volume, path, fs.ErrNotMounted)
		}
		major, minor = point.Major, point.Minor
	}
	device, err := s.ownDevice(volume, major, minor)
	if err != nil {
		return location{}, fmt.Errorf("volume %s at %s: %w", volume, path, err)
	}
	return location{device: device, block: isNode}, nil
}

// ownDevice reads the device with this number, and refuses another volume's.
func (s *NodeService) ownDevice(volume ebs.VolumeID, major, minor uint32) (blockdev.Device, error) {
	owner, known, err := s.devices.Owner(major, minor)
	if err == nil && known && owner != volume {
		return blockdev.Device{}, fmt.Errorf("it is volume %s that is there: %w", owner, fs.ErrNotMounted)
	}
	var device blockdev.Device
	if err == nil {
		device, err = s.devices.ByNumber(major, minor)
	}
	if errors.Is(err, iofs.ErrNotExist) {
		return device, fmt.Errorf("its device %d:%d is gone: %w", major, minor, blockdev.ErrNoDevice)
	}
	return device, err
}
