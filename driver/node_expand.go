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
	at, err := s.locate(ctx, want.volume, want.path, want.block)
	if err != nil {
		return nil, nodeError(err)
	}
	device, err := s.devices.WaitForSize(ctx, at.device, want.requiredBytes)
	if err != nil {
		return nil, nodeError(fmt.Errorf("volume %s: %w", want.volume, err))
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("devicePath", device.Path, "sizeBytes", device.SizeBytes)
	if at.block {
		log.Info("NodeExpandVolume: block device has its size")
		return &csi.NodeExpandVolumeResponse{CapacityBytes: device.SizeBytes}, nil
	}
	grown, err := s.mounts.Grow(ctx, device.Path, want.path)
	if err != nil {
		return nil, nodeError(err)
	}
	log.Info("NodeExpandVolume: filesystem has its size", "path", want.path, "fromBytes", grown.FromBytes, "toBytes", grown.ToBytes)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: device.SizeBytes}, nil
}

// NodeGetVolumeStats tells how full a volume is.
func (s *NodeService) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, path := req.GetVolumeId(), req.GetVolumePath()
	if err := required("volume_id", volume, "volume_path", path); err != nil {
		return nil, nodeError(err)
	}
	at, err := s.locate(ctx, ebs.VolumeID(volume), path, false)
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
// target path) or its device node. wantBlock says that the volume is known to
// be raw block: kubelet then passes paths of its own making, so that the
// device is looked for by the volume's identity first.
func (s *NodeService) locate(ctx context.Context, volume ebs.VolumeID, path string, wantBlock bool) (location, error) {
	major, minor, isNode, err := fs.NodeNumber(path)
	if err != nil {
		return location{}, err
	}
	if wantBlock {
		device, err := s.devices.Wait(ctx, blockdev.Want{Volume: volume})
		if err == nil || !isNode || !errors.Is(err, blockdev.ErrWrongDevice) {
			return location{device: device, block: true}, err
		}
		// A Xen disk cannot be proved without its attachment's name; the node
		// at the path was proved when it was published.
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
	owner, known, err := s.devices.Owner(major, minor)
	if err == nil && known && owner != volume {
		return location{}, fmt.Errorf("at %s is volume %s, not %s: %w", path, owner, volume, fs.ErrNotMounted)
	}
	var device blockdev.Device
	if err == nil {
		device, err = s.devices.ByNumber(major, minor)
	}
	if errors.Is(err, iofs.ErrNotExist) {
		return location{}, fmt.Errorf("volume %s: device %d:%d of %s is gone: %w", volume, major, minor, path, blockdev.ErrNoDevice)
	}
	return location{device: device, block: isNode}, err
}
