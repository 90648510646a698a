package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// NodeGetVolumeHealth answers what this node sees to be wrong with a volume: at
// its paths, where something is mounted there, or else whether its device is there.
func (s *NodeService) NodeGetVolumeHealth(_ context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, nodeError(err)
	}
	health, err := s.healthOf(ebs.VolumeID(req.GetVolumeId()), req.GetStagingTargetPath(), req.GetVolumePublishPath())
	if err != nil {
		return nil, nodeError(err)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: csiHealth(health)}, nil
}

// healthOf looks at each path that is named. The first condition is told: a
// filesystem that is shut off is so at all its paths.
func (s *NodeService) healthOf(volume ebs.VolumeID, paths ...string) (ebs.Health, error) {
	health, seen := ebs.Health{Volume: volume}, false
	for _, path := range paths {
		if path == "" {
			continue
		}
		condition, here, err := s.conditionAt(volume, path)
		switch {
		case err != nil:
			return health, fmt.Errorf("volume %s at %s: %w", volume, path, err)
		case condition != nil:
			health.Conditions = append(health.Conditions, *condition)
			return health, nil
		}
		seen = seen || here
	}
	if seen {
		return health, nil
	}
	_, err := s.devices.Find(blockdev.Want{Volume: volume})
	return health, err
}

// conditionAt is what is wrong with a volume at a path, nil for nothing; here is
// false where something else is mounted, or nothing.
func (s *NodeService) conditionAt(volume ebs.VolumeID, path string) (condition *ebs.Condition, here bool, err error) {
	point, mounted, err := s.mounts.At(path)
	if err != nil || !mounted {
		return nil, false, err
	}
	major, minor, isNode, statErr := fs.NodeNumber(path)
	if !isNode {
		major, minor = point.Major, point.Minor
	}
	if major == 0 { // no block device's: a filesystem of the kernel's own
		return nil, false, nil
	}
	switch _, err := s.ownDevice(volume, major, minor); {
	case errors.Is(err, fs.ErrNotMounted):
		return nil, false, nil
	case errors.Is(err, blockdev.ErrNoDevice):
		return &ebs.Condition{Severity: ebs.Inaccessible, Reason: "DeviceGone",
			Message: fmt.Sprintf("the volume is at %s, and its device %d:%d is not there any more", path, major, minor)}, true, nil
	case err != nil:
		return nil, true, err
	case isNode:
		return nil, true, nil
	}
	if point.Failed == "" && !errors.Is(statErr, unix.EIO) && (point.ReadOnly || !errors.Is(s.mounts.CheckWritable(point), fs.ErrNotWritable)) {
		return nil, true, nil
	}
	return &ebs.Condition{Severity: ebs.Inaccessible, Reason: "FilesystemShutOff",
		Message: fmt.Sprintf("the kernel has shut off the filesystem at %s after an error; it is checked at its next mount, for which all Pods of the volume on this node have to end first", path)}, true, nil
}
