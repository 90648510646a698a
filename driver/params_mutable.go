package driver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// mutableParameters is what a VolumeAttributesClass asks for. What it does not
// name has its zero value and stays as it is.
type mutableParameters struct {
	volumeType      ebs.VolumeType
	iops            int32
	iopsPerGB       int32
	iopsFollowSize  *bool // allowAutoIOPSIncreaseOnModify
	throughputMiBps int32
	tags            map[string]string // key=value by parameter, values are templates
	deletions       map[string]string // key by parameter
	claim           map[string]string // what templates may name: PVCName, PVCNamespace, PVName
}

// mutableTable holds the parameters of a VolumeAttributesClass, see
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/modify-volume.md
// and, for the keys that begin with csi.storage.k8s.io/, csi-resizer's flag
// --extra-modify-metadata.
var mutableTable = []parameter[mutableParameters]{
	{"type", "one of " + volumeTypeNames(), parseMutableType},
	{"volumeType", "one of " + volumeTypeNames(), parseMutableType},
	{"iops", "a whole number above 0", func(p *mutableParameters, _, v string) (err error) {
		p.iops, err = parseCount(v)
		return err
	}},
	{"iopsPerGB", "a whole number above 0", func(p *mutableParameters, _, v string) (err error) {
		p.iopsPerGB, err = parseCount(v)
		return err
	}},
	{"throughput", "a whole number above 0, in MiB/s", func(p *mutableParameters, _, v string) (err error) {
		p.throughputMiBps, err = parseCount(v)
		return err
	}},
	{"allowAutoIOPSIncreaseOnModify", boolValues, func(p *mutableParameters, _, v string) error {
		follow, err := parseBool(v)
		p.iopsFollowSize = &follow
		return err
	}},
	{"tagSpecification_", "key=value", func(p *mutableParameters, key, v string) error {
		p.tags = withTag(p.tags, key, v)
		return nil
	}},
	{"tagDeletion_", "the key of a tag that is not the driver's own", func(p *mutableParameters, key, v string) error {
		p.deletions = withTag(p.deletions, key, v)
		return checkUserTag(v, "")
	}},
	{sidecarPrefix + "pvc/name", "any", mutableClaimName("PVCName")},
	{sidecarPrefix + "pvc/namespace", "any", mutableClaimName("PVCNamespace")},
	{sidecarPrefix + "pv/name", "any", mutableClaimName("PVName")},
}

// parseMutableType reads the type under either of its names.
func parseMutableType(p *mutableParameters, _, v string) error {
	t, err := parseVolumeType(v)
	if err != nil || t == "" {
		return err
	}
	if p.volumeType != "" && p.volumeType != t {
		return fmt.Errorf("type and volumeType are two names of one thing, the other one is %s", p.volumeType)
	}
	p.volumeType = t
	return nil
}

func mutableClaimName(field string) func(p *mutableParameters, _, v string) error {
	return func(p *mutableParameters, _, v string) error {
		p.claim[field] = v
		return nil
	}
}

// parseMutableParameters reads the parameters of a VolumeAttributesClass.
func parseMutableParameters(params map[string]string) (mutableParameters, error) {
	p := mutableParameters{claim: map[string]string{}}
	if err := parseParameters(mutableTable, params, &p); err != nil {
		return mutableParameters{}, err
	}
	if p.iops != 0 && p.iopsPerGB != 0 {
		return mutableParameters{}, invalid("parameters iops (%d) and iopsPerGB (%d): only one of them may be given", p.iops, p.iopsPerGB)
	}
	return p, nil
}

// overriddenBy are the parameters of a StorageClass where a
// VolumeAttributesClass says otherwise: CSI has its values go first. A type
// that the attributes change takes the numbers of the other type with it,
// as far as it has no such numbers.
func (p volumeParameters) overriddenBy(m mutableParameters) volumeParameters {
	if m.volumeType != "" {
		if m.volumeType != p.volumeType && m.iops == 0 && m.iopsPerGB == 0 {
			p = p.withIOPSOfType(p.volumeType)
		}
		p.volumeType = m.volumeType
		l, _ := ebs.LimitsOf(m.volumeType)
		if l.MaxIOPS == 0 {
			p.iops, p.iopsPerGB = 0, 0
		}
		if l.MaxThroughputMiBps == 0 {
			p.throughputMiBps = 0
		}
	}
	if m.iops != 0 || m.iopsPerGB != 0 {
		p.iops, p.iopsPerGB = m.iops, m.iopsPerGB
	}
	if m.throughputMiBps != 0 {
		p.throughputMiBps = m.throughputMiBps
	}
	if m.iopsFollowSize != nil {
		p.iopsFollowSize = *m.iopsFollowSize
		// As when a volume is modified, see ebs.Modification.
		p.raiseIOPS = p.raiseIOPS || *m.iopsFollowSize && m.iopsPerGB != 0
	}
	return p
}

// withIOPSOfType has the IOPS that a volume of a type would have stay, within
// the limits of the type that it gets instead: as when it is modified.
func (p volumeParameters) withIOPSOfType(t ebs.VolumeType) volumeParameters {
	p.iopsStay = true
	if l, _ := ebs.LimitsOf(t); p.iops == 0 && p.iopsPerGB == 0 {
		p.iops = cmp.Or(l.DefaultIOPS, ebs.DefaultIOPS)
	}
	return p
}

// tagChanges are the tags that a VolumeAttributesClass sets and the keys that it
// deletes.
func (m mutableParameters) tagChanges(claim map[string]string) (set map[string]string, remove []string, err error) {
	set, wrong := evaluateTags(m.tags, claim)
	for _, parameter := range slices.Sorted(maps.Keys(m.deletions)) {
		key := m.deletions[parameter]
		if _, both := set[key]; both {
			wrong = append(wrong, fmt.Sprintf("parameter %q: tag %q is set and deleted by the same class", parameter, key))
		}
		remove = append(remove, key)
	}
	if len(wrong) > 0 {
		return nil, nil, invalid("%s", strings.Join(wrong, "; "))
	}
	slices.Sort(remove)
	return set, slices.Compact(remove), nil
}

// rateTags are the tags that remember IOPS by size, see ebs.TagIOPSPerGiB.
func rateTags(perGiB int32, follow bool) map[string]string {
	tags := map[string]string{}
	if perGiB != 0 {
		tags[ebs.TagIOPSPerGiB] = strconv.Itoa(int(perGiB))
	}
	if follow {
		tags[ebs.TagAutoIOPS] = "true"
	}
	return tags
}

// modification is what the class wants of a volume.
func (m mutableParameters) modification() (ebs.Modification, error) {
	set, remove, err := m.tagChanges(m.claim)
	if err != nil {
		return ebs.Modification{}, err
	}
	follow := m.iopsFollowSize != nil && *m.iopsFollowSize
	maps.Copy(set, rateTags(m.iopsPerGB, follow))
	if m.iops != 0 { // a number of its own: no rate holds any more
		remove = append(remove, ebs.TagIOPSPerGiB)
	}
	if m.iopsFollowSize != nil && !follow {
		remove = append(remove, ebs.TagAutoIOPS)
	}
	return ebs.Modification{
		Type: m.volumeType, IOPS: m.iops, IOPSPerGiB: m.iopsPerGB, RaiseIOPS: follow, ThroughputMiBps: m.throughputMiBps,
		SetTags: set, DeleteTags: remove,
	}, nil
}

// parseModify reads and judges the whole request as far as the volume need not be known.
func parseModify(req *csi.ControllerModifyVolumeRequest) (ebs.VolumeID, ebs.Modification, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return "", ebs.Modification{}, err
	}
	params, err := parseMutableParameters(req.GetMutableParameters())
	if err != nil {
		return "", ebs.Modification{}, err
	}
	want, err := params.modification()
	return id, want, err
}
