package driver

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Topology keys. CreateVolume accepts each of the three; a volume carries the
// first only, as Kubernetes knows it; see docs/faq.md of AWS's driver for the
// way from the second to the first.
const (
	topologyZone    = "topology.kubernetes.io/zone"
	topologyOwnZone = "topology.ebs.csi.aws.com/zone"
	topologyZoneID  = "topology.k8s.aws/zone-id"
)

// defaultSize is the size of a volume for which none is asked, as in AWS's driver.
const defaultSize ebs.GiB = 100

func isNotFound(err error) bool { return errors.Is(err, ebs.ErrNotFound) }

// invalid is an error of a request that no repeat can heal.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ebs.ErrInvalid, fmt.Errorf(format, args...))
}

func volumeID(id string) (ebs.VolumeID, error) {
	if id == "" {
		return "", invalid("the request names no volume id")
	}
	return ebs.VolumeID(id), nil
}

// parseCreateVolume reads and judges the whole request before anything is done
// in EC2. The volume context is what the node will have to know.
func parseCreateVolume(req *csi.CreateVolumeRequest, tagging Tagging) (want ebs.VolumeRequest, volumeContext map[string]string, err error) {
	if err := checkName(req.GetName()); err != nil {
		return want, nil, err
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return want, nil, err
	}
	params, err := parseVolumeParameters(req.GetParameters())
	if err != nil {
		return want, nil, err
	}
	mutable, err := parseMutableParameters(req.GetMutableParameters())
	if err != nil {
		return want, nil, fmt.Errorf("VolumeAttributesClass: %w", err)
	}
	params = params.overriddenBy(mutable)
	snapshot, source, err := parseSource(req.GetVolumeContentSource())
	if err != nil {
		return want, nil, err
	}
	size, err := parseSize(req.GetCapacityRange(), params.volumeType, req.GetVolumeContentSource() != nil)
	if err != nil {
		return want, nil, err
	}
	fresh := size
	if req.GetVolumeContentSource() != nil {
		fresh = 0 // the content brings its filesystem: how many inodes would fit is no matter
	}
	if err := checkFormat(params.format, req.GetVolumeCapabilities(), fresh); err != nil {
		return want, nil, err
	}
	iops, err := params.iopsFor(size)
	if err != nil {
		return want, nil, err
	}
	zone, allowed, err := parseTopology(req.GetAccessibilityRequirements())
	if err != nil {
		return want, nil, err
	}
	tags, err := tagging.volumeTags(req.GetName(), params, mutable)
	if err != nil {
		return want, nil, err
	}
	want = ebs.VolumeRequest{
		Name: req.GetName(), Size: size, Type: params.volumeType, IOPS: iops, ThroughputMiBps: params.throughputMiBps,
		Encrypted: params.encrypted, KMSKeyID: params.kmsKeyID, Zone: zone, AllowedZones: allowed, Snapshot: snapshot, Source: source,
		InitializationMiBps: params.initializationMiBps, Tags: tags,
		MultiAttach: forSeveralNodes(req.GetVolumeCapabilities()...),
	}
	return want, params.volumeContext(req.GetVolumeContentSource() != nil), want.Check()
}

// checkName judges a CSI name: it becomes the value of a tag.
func checkName(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case n == 0:
		return invalid("the request has no name")
	case n > maxTagValue:
		return invalid("the name has %d characters: at most %d fit into a tag", n, maxTagValue)
	}
	return nil
}

// parseSource is the snapshot or the volume of a content source, none for an empty volume.
func parseSource(source *csi.VolumeContentSource) (ebs.SnapshotID, ebs.VolumeID, error) {
	snapshot, volume := source.GetSnapshot(), source.GetVolume()
	switch {
	case source == nil:
		return "", "", nil
	case snapshot.GetSnapshotId() != "":
		return ebs.SnapshotID(snapshot.GetSnapshotId()), "", nil
	case volume.GetVolumeId() != "":
		return "", ebs.VolumeID(volume.GetVolumeId()), nil
	case snapshot != nil:
		return "", "", invalid("the content source names no snapshot id")
	case volume != nil:
		return "", "", invalid("the content source names no volume id")
	}
	return "", "", invalid("content source: a volume can be made from a snapshot or from another volume, it is neither")
}

// parseSize rounds the required bytes up to GiB, and answers the default size
// where none are required, or 0, "as the source", for a restore or a clone.
func parseSize(r *csi.CapacityRange, t ebs.VolumeType, restore bool) (ebs.GiB, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0 || limit < 0:
		return 0, invalid("capacity range: required %d and limit %d bytes: none can be negative", required, limit)
	case limit > 0 && required > limit:
		return 0, invalid("capacity range: the required %d bytes are more than the limit of %d", required, limit)
	case required > 0:
		return roundUp(required, limit)
	case restore && limit == 0:
		return 0, nil
	case restore:
		return 0, invalid("capacity range: a restore or clone with a limit of %d bytes needs required bytes too", limit)
	}
	l, _ := ebs.LimitsOf(t)
	size := max(defaultSize, l.MinSize)
	if limit > 0 {
		size = min(size, ebs.GiB(min(limit>>30, math.MaxInt32)))
	}
	if size < l.MinSize {
		return 0, fmt.Errorf("%w: a limit of %d bytes: the smallest %s volume has %d GiB", ebs.ErrOutOfRange, limit, t, l.MinSize)
	}
	return size, nil
}

// roundUp rounds bytes up to GiB and compares with the limit, 0 for none, afterwards.
func roundUp(required, limit int64) (ebs.GiB, error) {
	gib := required >> 30
	if required&(1<<30-1) != 0 {
		gib++
	}
	if gib > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %d bytes are more than any volume holds", ebs.ErrOutOfRange, required)
	}
	if limit > 0 && gib<<30 > limit {
		return 0, fmt.Errorf("%w: EBS knows whole GiB: the required %d bytes become %d GiB, more than the limit of %d bytes", ebs.ErrOutOfRange, required, gib, limit)
	}
	return ebs.GiB(gib), nil
}

// parseTopology is the zone for a new volume, the most preferred, and the zones
// in which a volume that exists is as good. Without requirements it is none and any.
func parseTopology(r *csi.TopologyRequirement) (ebs.Zone, []ebs.Zone, error) {
	preferred, err := zonesOf(r.GetPreferred())
	if err != nil {
		return ebs.Zone{}, nil, err
	}
	requisite, err := zonesOf(r.GetRequisite())
	if err != nil {
		return ebs.Zone{}, nil, err
	}
	allowed := requisite
	if len(allowed) == 0 {
		allowed = preferred
	}
	for _, z := range append(preferred, requisite...) {
		return z, allowed, nil
	}
	return ebs.Zone{}, nil, nil
}

func zonesOf(topologies []*csi.Topology) ([]ebs.Zone, error) {
	var zones []ebs.Zone
	for _, t := range topologies {
		s := t.GetSegments()
		name, own := s[topologyZone], s[topologyOwnZone]
		if name != "" && own != "" && name != own {
			return nil, invalid("topology: %s=%q and %s=%q contradict each other", topologyZone, name, topologyOwnZone, own)
		}
		if name == "" {
			name = own
		}
		if z := (ebs.Zone{Name: name, ID: s[topologyZoneID]}); z != (ebs.Zone{}) {
			zones = append(zones, z)
		}
	}
	return zones, nil
}

// checkCapabilities refuses what no EBS volume of this driver offers.
func checkCapabilities(caps []*csi.VolumeCapability) error {
	if len(caps) == 0 {
		return invalid("the request names no volume capability")
	}
	for _, c := range caps {
		if err := checkCapability(c); err != nil {
			return err
		}
	}
	return nil
}

func checkCapability(c *csi.VolumeCapability) error {
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		if c.GetBlock() == nil {
			return invalid("access mode %s (ReadWriteMany): a filesystem is mounted by one node at a time, two would destroy it; several nodes share only the raw device of an io2 volume (volumeMode Block, parameter type io2)", mode)
		}
	default:
		return invalid("access mode %s: an EBS volume is attached to one node at a time; allowed are SINGLE_NODE_WRITER, SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER and SINGLE_NODE_READER_ONLY (ReadWriteOnce and ReadWriteOncePod in Kubernetes), and MULTI_NODE_MULTI_WRITER (ReadWriteMany) for raw block volumes of type io2", mode)
	}
	if c.GetBlock() == nil && c.GetMount() == nil {
		return invalid("the volume capability has no access type: allowed are block and mount")
	}
	if m := c.GetMount(); m != nil {
		if err := checkFSType(m.GetFsType()); err != nil {
			return invalid("filesystem type (parameter csi.storage.k8s.io/fstype) %q: allowed is %s", m.GetFsType(), fsTypeNames)
		}
	}
	return nil
}

// forSeveralNodes says whether one of the capabilities asks for several nodes at once.
func forSeveralNodes(caps ...*csi.VolumeCapability) bool {
	return slices.ContainsFunc(caps, func(c *csi.VolumeCapability) bool {
		return c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	})
}

// checkAlone refuses a volume for one node that others have too, which Multi-Attach
// lets happen: EC2 itself does not keep a second node away from such a volume. The
// attachment stays; it is the caller's to end (CSI, ControllerUnpublishVolume).
func checkAlone(att ebs.Attachment, c *csi.VolumeCapability) error {
	if len(att.Others) == 0 || forSeveralNodes(c) {
		return nil
	}
	return fmt.Errorf("%w: volume %s, of Multi-Attach, is attached to %s too, and access mode %s is for one node",
		ebs.ErrAttachedElsewhere, att.Volume, att.Others[0], c.GetAccessMode().GetMode())
}

func parsePublish(req *csi.ControllerPublishVolumeRequest) (ebs.VolumeID, ebs.InstanceID, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return "", "", err
	}
	if req.GetNodeId() == "" {
		return "", "", invalid("the request names no node id")
	}
	if req.GetVolumeCapability() == nil {
		return "", "", invalid("the request names no volume capability")
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return "", "", err
	}
	if req.GetReadonly() {
		return "", "", invalid("readonly: EBS does not attach read-only; mount the volume read-only instead")
	}
	return id, ebs.InstanceID(req.GetNodeId()), nil
}

// mustBeInitialized reads whether a volume's class wants it attached only once
// all content of its source is there.
func mustBeInitialized(volumeContext map[string]string) (bool, error) {
	for key, value := range volumeContext {
		if !strings.EqualFold(key, attachInitializedKey) {
			continue
		}
		wait, err := parseBool(value)
		if err != nil {
			return false, invalid("volume context: %s", describeValue(key, value, boolValues, err))
		}
		return wait, nil
	}
	return false, nil
}

func parseExpand(req *csi.ControllerExpandVolumeRequest) (ebs.VolumeID, ebs.GiB, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return "", 0, err
	}
	if req.GetCapacityRange().GetRequiredBytes() <= 0 {
		return "", 0, invalid("capacity range: required bytes: want more than 0, got %d", req.GetCapacityRange().GetRequiredBytes())
	}
	size, err := roundUp(req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes())
	return id, size, err
}

func parseCreateSnapshot(req *csi.CreateSnapshotRequest, tagging Tagging) (ebs.SnapshotRequest, error) {
	if err := checkName(req.GetName()); err != nil {
		return ebs.SnapshotRequest{}, err
	}
	if req.GetSourceVolumeId() == "" {
		return ebs.SnapshotRequest{}, invalid("the request names no source volume id")
	}
	params, err := parseSnapshotParameters(req.GetParameters())
	if err != nil {
		return ebs.SnapshotRequest{}, err
	}
	tags, err := tagging.snapshotTags(req.GetName(), params)
	if err != nil {
		return ebs.SnapshotRequest{}, err
	}
	return ebs.SnapshotRequest{
		Name: req.GetName(), Volume: ebs.VolumeID(req.GetSourceVolumeId()), Tags: tags,
		FastRestoreZones: params.fastRestoreZones, Lock: params.lock,
	}, nil
}
