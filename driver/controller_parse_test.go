package driver

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

const gib = int64(1) << 30

func TestParseSize(t *testing.T) {
	for name, tc := range map[string]struct {
		why             string
		required, limit int64
		kind            ebs.VolumeType
		restore         bool
		want            ebs.GiB
		wrong           error
	}{
		"nothing asked for":   {"100 GiB is AWS's driver's default", 0, 0, ebs.GP3, false, 100, nil},
		"type's least":        {"an st1 volume begins at 125 GiB", 0, 0, ebs.ST1, false, 125, nil},
		"restore, no size":    {"as the snapshot", 0, 0, ebs.GP3, true, 0, nil},
		"whole":               {"as asked for", 10 * gib, 0, ebs.GP3, false, 10, nil},
		"one byte more":       {"rounded up to EC2's unit", 10*gib + 1, 0, ebs.GP3, false, 11, nil},
		"below one":           {"a restore of a claim under 1 GiB", 1, 0, ebs.GP3, true, 1, nil},
		"limit reached":       {"the limit is compared after rounding", 10 * gib, 10 * gib, ebs.GP3, false, 10, nil},
		"limit below rounded": {"the limit is compared after rounding", 10*gib - 1, 10*gib - 1, ebs.GP3, false, 0, ebs.ErrOutOfRange},
		"limit alone":         {"the default does not exceed the limit", 0, 50*gib + 5, ebs.GP3, false, 50, nil},
		"small limit alone":   {"nothing fits", 0, gib / 2, ebs.GP3, false, 0, ebs.ErrOutOfRange},
		"beyond everything":   {"no overflow", math.MaxInt64, 0, ebs.GP3, false, 0, ebs.ErrOutOfRange},
		"negative":            {"no size", -1, 0, ebs.GP3, false, 0, ebs.ErrInvalid},
		"contradiction":       {"required beyond the limit", 2 * gib, gib, ebs.GP3, false, 0, ebs.ErrInvalid},
		"restore, limit only": {"the snapshot may be larger", 0, gib, ebs.GP3, true, 0, ebs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseSize(&csi.CapacityRange{RequiredBytes: tc.required, LimitBytes: tc.limit}, tc.kind, tc.restore)
			if got != tc.want || !errors.Is(err, tc.wrong) {
				t.Errorf("%s: %d, %v; want %d, %v", tc.why, got, err, tc.want, tc.wrong)
			}
		})
	}
}

func TestParseTopology(t *testing.T) {
	segments := func(pairs ...string) *csi.Topology {
		s := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			s[pairs[i]] = pairs[i+1]
		}
		return &csi.Topology{Segments: s}
	}
	a, b := ebs.Zone{Name: "us-east-1a"}, ebs.Zone{Name: "us-east-1b"}
	for name, tc := range map[string]struct {
		why     string
		in      *csi.TopologyRequirement
		want    ebs.Zone
		allowed []ebs.Zone
		wrong   bool
	}{
		"none":       {"any zone", nil, ebs.Zone{}, nil, false},
		"kubernetes": {"the well-known key", &csi.TopologyRequirement{Requisite: []*csi.Topology{segments("topology.kubernetes.io/zone", "us-east-1a")}}, a, []ebs.Zone{a}, false},
		"own key":    {"AWS's driver's key", &csi.TopologyRequirement{Requisite: []*csi.Topology{segments("topology.ebs.csi.aws.com/zone", "us-east-1a")}}, a, []ebs.Zone{a}, false},
		"zone id":    {"the zone's id", &csi.TopologyRequirement{Requisite: []*csi.Topology{segments("topology.k8s.aws/zone-id", "use1-az1")}}, ebs.Zone{ID: "use1-az1"}, []ebs.Zone{{ID: "use1-az1"}}, false},
		"as nodes report it": {"both keys and the system", &csi.TopologyRequirement{Requisite: []*csi.Topology{
			segments("topology.kubernetes.io/zone", "us-east-1a", "topology.ebs.csi.aws.com/zone", "us-east-1a", "kubernetes.io/os", "linux")}}, a, []ebs.Zone{a}, false},
		"preferred first": {"the scheduler's choice", &csi.TopologyRequirement{
			Requisite: []*csi.Topology{segments(topologyZone, "us-east-1a"), segments(topologyZone, "us-east-1b")},
			Preferred: []*csi.Topology{segments(topologyZone, "us-east-1b"), segments(topologyZone, "us-east-1a")},
		}, b, []ebs.Zone{a, b}, false},
		"preferred alone": {"what is preferred is allowed", &csi.TopologyRequirement{Preferred: []*csi.Topology{segments(topologyZone, "us-east-1b")}}, b, []ebs.Zone{b}, false},
		"without a zone":  {"other keys do not bind EBS", &csi.TopologyRequirement{Requisite: []*csi.Topology{segments("kubernetes.io/os", "linux")}}, ebs.Zone{}, nil, false},
		"contradiction":   {"no guess", &csi.TopologyRequirement{Requisite: []*csi.Topology{segments(topologyZone, "us-east-1a", topologyOwnZone, "us-east-1b")}}, ebs.Zone{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			zone, allowed, err := parseTopology(tc.in)
			if tc.wrong != errors.Is(err, ebs.ErrInvalid) || zone != tc.want || !cmp.Equal(allowed, tc.allowed) {
				t.Errorf("%s: %v, %v, %v; want %v, %v", tc.why, zone, allowed, err, tc.want, tc.allowed)
			}
		})
	}
}

func TestCheckCapability(t *testing.T) {
	mount := func(mode csi.VolumeCapability_AccessMode_Mode, fsType string) *csi.VolumeCapability {
		return &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		}
	}
	block := mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "")
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	bare := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	for name, tc := range map[string]struct {
		why   string
		cap   *csi.VolumeCapability
		wrong string
	}{
		"RWO":             {"the usual claim", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "ext4"), ""},
		"reader only":     {"a claim that only reads", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, ""), ""},
		"block":           {"a raw block claim", block, ""},
		"XFS":             {"the node normalises", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "XFS"), ""},
		"RWX":             {"a filesystem on two nodes would be destroyed", mount(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "ext4"), "one node at a time"},
		"ROX":             {"not offered", mount(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, "ext4"), "one node at a time"},
		"unknown":         {"no guess", mount(csi.VolumeCapability_AccessMode_UNKNOWN, "ext4"), "UNKNOWN"},
		"ntfs":            {"the node makes no ntfs", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "ntfs"), `(parameter csi.storage.k8s.io/fstype) "ntfs": allowed is ext4, ext3 or xfs`},
		"no access type":  {"neither block nor mount", bare, "block and mount"},
		"nothing at all":  {"nil is no capability", nil, "UNKNOWN"},
		"RWO, exact":      {"RWO, from sidecars that know the exact modes", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, ""), ""},
		"RWOP, exact":     {"RWOP, from sidecars that know the exact modes", mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, ""), ""},
		"RWX, multi node": {"not offered", mount(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, ""), "one node at a time"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkCapability(tc.cap)
			if tc.wrong == "" && err != nil || tc.wrong != "" && (!errors.Is(err, ebs.ErrInvalid) || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("%s: %v, want %q", tc.why, err, tc.wrong)
			}
		})
	}
}
