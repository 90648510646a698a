package driver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// contextPartition is the key of the volume context that holds the partition
// number, set by the in-tree translation of awsElasticBlockStore volumes
// (k8s.io/csi-translation-lib).
const contextPartition = "partition"

// volumeAccess is a volume capability, read.
type volumeAccess struct {
	block      bool
	fsType     fs.Type // filesystems only
	mountFlags []string
	readOnly   bool
	// singleWriter: at one target path at a time (ReadWriteOncePod).
	singleWriter bool
}

// stageRequest is NodeStageVolumeRequest, read.
type stageRequest struct {
	device blockdev.Want
	path   string
	access volumeAccess
	format fs.FormatOptions // filesystems only
}

// publishRequest is NodePublishVolumeRequest, read.
type publishRequest struct {
	device          blockdev.Want
	staging, target string
	access          volumeAccess
}

// expandRequest is NodeExpandVolumeRequest, read.
type expandRequest struct {
	volume        ebs.VolumeID
	path, staging string
	requiredBytes int64
	block         bool
}

func parseNodeStage(req *csi.NodeStageVolumeRequest) (stageRequest, error) {
	if err := required("volume_id", req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath()); err != nil {
		return stageRequest{}, err
	}
	access, err := parseAccess(req.GetVolumeCapability())
	if err != nil {
		return stageRequest{}, err
	}
	device, err := parseWant(req.GetVolumeId(), req.GetPublishContext(), req.GetVolumeContext())
	if err != nil {
		return stageRequest{}, err
	}
	want := stageRequest{device: device, path: req.GetStagingTargetPath(), access: access}
	if access.block {
		return want, nil
	}
	want.format, err = parseFormatContext(req.GetVolumeContext(), access.fsType)
	if err != nil {
		return stageRequest{}, fmt.Errorf("volume %s: %w", req.GetVolumeId(), err)
	}
	return want, nil
}

func parseNodePublish(req *csi.NodePublishVolumeRequest) (publishRequest, error) {
	if err := required("volume_id", req.GetVolumeId(), "target_path", req.GetTargetPath()); err != nil {
		return publishRequest{}, err
	}
	access, err := parseAccess(req.GetVolumeCapability())
	if err != nil {
		return publishRequest{}, err
	}
	access.readOnly = access.readOnly || req.GetReadonly()
	if !access.block && req.GetStagingTargetPath() == "" {
		// The CSI specification: FAILED_PRECONDITION for a plugin that stages.
		return publishRequest{}, fmt.Errorf("volume %s: staging_target_path is empty: %w", req.GetVolumeId(), errNotStaged)
	}
	device, err := parseWant(req.GetVolumeId(), req.GetPublishContext(), req.GetVolumeContext())
	if err != nil {
		return publishRequest{}, err
	}
	return publishRequest{device: device, staging: req.GetStagingTargetPath(), target: req.GetTargetPath(), access: access}, nil
}

func parseNodeExpand(req *csi.NodeExpandVolumeRequest) (expandRequest, error) {
	if err := required("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return expandRequest{}, err
	}
	r := req.GetCapacityRange()
	if r.GetLimitBytes() > 0 && r.GetRequiredBytes() > r.GetLimitBytes() {
		return expandRequest{}, fmt.Errorf("required_bytes %d is above limit_bytes %d: %w", r.GetRequiredBytes(), r.GetLimitBytes(), ebs.ErrOutOfRange)
	}
	out := expandRequest{
		volume: ebs.VolumeID(req.GetVolumeId()), path: req.GetVolumePath(), staging: req.GetStagingTargetPath(),
		requiredBytes: r.GetRequiredBytes(),
	}
	if c := req.GetVolumeCapability(); c != nil {
		access, err := parseAccess(c)
		if err != nil {
			return expandRequest{}, err
		}
		out.block = access.block
	}
	return out, nil
}

// required checks fields, given as name and value in turn.
func required(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return invalid("%s is empty", pairs[i])
		}
	}
	return nil
}

// parseWant reads which device is meant.
func parseWant(volume string, publish, volumeContext map[string]string) (blockdev.Want, error) {
	want := blockdev.Want{Volume: ebs.VolumeID(volume), AttachedAs: publish[publishDevicePath]}
	value := volumeContext[contextPartition]
	if value == "" {
		return want, nil
	}
	partition, err := strconv.Atoi(value)
	if err != nil || partition < 0 {
		return want, invalid("volume %s: volume context %s is %q, it must be a partition number or 0 for the whole disk", volume, contextPartition, value)
	}
	want.Partition = partition
	return want, nil
}

// parseAccess reads a volume capability.
func parseAccess(c *csi.VolumeCapability) (volumeAccess, error) {
	mode := c.GetAccessMode().GetMode()
	readOnly, err := parseAccessMode(mode, c.GetBlock() != nil)
	if err != nil {
		return volumeAccess{}, err
	}
	singleWriter := mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	switch {
	case c.GetBlock() != nil:
		return volumeAccess{block: true, readOnly: readOnly, singleWriter: singleWriter}, nil
	case c.GetMount() == nil:
		return volumeAccess{}, invalid("volume_capability has neither mount nor block")
	case c.GetMount().GetVolumeMountGroup() != "":
		return volumeAccess{}, invalid("volume_mount_group is not supported, the group is kubelet's to set")
	}
	fsType, err := fs.ParseType(c.GetMount().GetFsType())
	if err != nil {
		return volumeAccess{}, invalid("%w", err)
	}
	flags := c.GetMount().GetMountFlags()
	return volumeAccess{fsType: fsType, mountFlags: flags, readOnly: readOnly || asksReadOnly(flags), singleWriter: singleWriter}, nil
}

// asksReadOnly says whether mount options have "ro": a class may write several
// into one, as mount(8) takes them.
func asksReadOnly(flags []string) bool {
	return slices.Contains(strings.Split(strings.Join(flags, ","), ","), "ro")
}

// parseAccessMode reads an access mode: whether it is read-only, and an error
// for those that need a volume on several nodes. Those share raw devices only:
// what they do about each other's writes is theirs.
func parseAccessMode(mode csi.VolumeCapability_AccessMode_Mode, block bool) (readOnly bool, err error) {
	if block && mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
		return false, nil
	}
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return false, nil
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		return true, nil
	}
	return false, invalid("access mode %s is not supported: an EBS volume is used by one node (ReadWriteOnce, ReadWriteOncePod), or as a raw device by several (ReadWriteMany)", mode)
}

// sameStaging accepts a mount that is already at the staging path if it is the
// one that is asked for.
func sameStaging(point fs.Point, device blockdev.Device, want stageRequest) error {
	switch {
	case !device.SameNumber(point.Major, point.Minor):
		return fmt.Errorf("at %s device %d:%d is mounted, volume %s is %s (%d:%d): %w",
			want.path, point.Major, point.Minor, want.device.Volume, device.Path, device.Major, device.Minor, fs.ErrConflict)
	case !fs.MountsAs(point.Type, want.access.fsType):
		return fmt.Errorf("volume %s is staged at %s as %s, wanted is %s: %w",
			want.device.Volume, want.path, point.Type, want.access.fsType, fs.ErrConflict)
	case point.ReadOnly != want.access.readOnly:
		return fmt.Errorf("volume %s is staged at %s with read-only=%t, wanted is %t: %w",
			want.device.Volume, want.path, point.ReadOnly, want.access.readOnly, fs.ErrConflict)
	}
	return nil
}

// samePublication accepts a mount that is already at the target if it shows
// the staged filesystem in the same way.
func samePublication(published, staged fs.Point, readOnly bool) error {
	switch {
	case published.Major != staged.Major || published.Minor != staged.Minor || published.Root != staged.Root:
		return fmt.Errorf("at %s device %d:%d is mounted, the volume is %d:%d: %w",
			published.Path, published.Major, published.Minor, staged.Major, staged.Minor, fs.ErrConflict)
	case published.ReadOnly != readOnly:
		return fmt.Errorf("%s is published with read-only=%t, wanted is %t: %w", published.Path, published.ReadOnly, readOnly, fs.ErrConflict)
	}
	return nil
}

// sameBlockPublication accepts a device node that is already at the target.
func sameBlockPublication(want publishRequest, point fs.Point, device blockdev.Device) error {
	major, minor, isNode, err := fs.NodeNumber(want.target)
	switch {
	case err != nil:
		return err
	case !isNode || !device.SameNumber(major, minor):
		return fmt.Errorf("at %s something other than volume %s (%s, %d:%d) is published: %w",
			want.target, want.device.Volume, device.Path, device.Major, device.Minor, fs.ErrConflict)
	case point.ReadOnly != want.access.readOnly:
		return fmt.Errorf("%s is published with read-only=%t, wanted is %t: %w", want.target, point.ReadOnly, want.access.readOnly, fs.ErrConflict)
	}
	return nil
}
