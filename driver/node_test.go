package driver

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

// nodeCapability builds a capability with a filesystem.
func nodeCapability(mode csi.VolumeCapability_AccessMode_Mode, fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
}

const (
	writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	reader = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	// The exact modes of "one node": one Pod, or as many as are there.
	oneWriter   = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	multiWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
)

func TestParseNodeStage(t *testing.T) {
	base := func(change func(r *csi.NodeStageVolumeRequest)) *csi.NodeStageVolumeRequest {
		r := &csi.NodeStageVolumeRequest{
			VolumeId: "vol-1", StagingTargetPath: "/stage", VolumeCapability: nodeCapability(writer, ""),
			PublishContext: map[string]string{"devicePath": "/dev/xvdab"},
			VolumeContext:  map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "x"},
		}
		change(r)
		return r
	}
	want := func(change func(r *stageRequest)) stageRequest {
		r := stageRequest{
			device: blockdev.Want{Volume: "vol-1", AttachedAs: "/dev/xvdab"}, path: "/stage",
			access: volumeAccess{fsType: fs.Ext4},
		}
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		why  string
		req  *csi.NodeStageVolumeRequest
		want stageRequest
		code codes.Code
	}{
		"default": {"no filesystem named means ext4", base(func(*csi.NodeStageVolumeRequest) {}), want(func(*stageRequest) {}), codes.OK},
		"spelling": {
			"the filesystem is normalised",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(writer, "XFS", "noatime") }),
			want(func(r *stageRequest) { r.access = volumeAccess{fsType: fs.XFS, mountFlags: []string{"noatime"}} }), codes.OK,
		},
		"reader": {
			"the access mode makes it read-only",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(reader, "") }),
			want(func(r *stageRequest) { r.access.readOnly = true }), codes.OK,
		},
		"several writers": {
			"RWO, from a kubelet that knows the exact modes",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(multiWriter, "") }),
			want(func(*stageRequest) {}), codes.OK,
		},
		"one writer": {
			"RWOP, from a kubelet that knows the exact modes",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(oneWriter, "") }),
			want(func(r *stageRequest) { r.access.singleWriter = true }), codes.OK,
		},
		"ro flag": {
			"a mount option makes it read-only",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(writer, "", "ro") }),
			want(func(r *stageRequest) { r.access.readOnly = true; r.access.mountFlags = []string{"ro"} }), codes.OK,
		},
		"partition": {
			"the in-tree translation names partitions",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"partition": "2"} }),
			want(func(r *stageRequest) { r.device.Partition = 2 }), codes.OK,
		},
		"partition 0": {
			"0 is the whole disk",
			base(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"partition": "0"} }),
			want(func(*stageRequest) {}), codes.OK,
		},
		"block": {
			"a raw block volume has no filesystem",
			base(func(r *csi.NodeStageVolumeRequest) {
				r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
			}),
			want(func(r *stageRequest) { r.access = volumeAccess{block: true} }), codes.OK,
		},
		"mkfs options": {
			"as AWS's driver wrote them into its PVs",
			base(func(r *csi.NodeStageVolumeRequest) {
				r.VolumeContext = map[string]string{"blocksize": "4096", "inodesize": "512", "bytesperinode": "65536", "ext4bigalloc": "true", "ext4clustersize": "64k", "partition": ""}
			}),
			want(func(r *stageRequest) {
				r.format = fs.FormatOptions{BlockBytes: 4096, InodeBytes: 512, BytesPerInode: 65536, BigAlloc: true, ClusterBytes: 65536}
			}), codes.OK,
		},
		"mkfs options of a block volume": {
			"nothing is made there",
			base(func(r *csi.NodeStageVolumeRequest) {
				r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
				r.VolumeContext = map[string]string{"blocksize": "?"}
			}),
			want(func(r *stageRequest) { r.access = volumeAccess{block: true} }), codes.OK,
		},
		"mkfs option, flag": {"a PV is written by users too: no text of it is an argument", base(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext = map[string]string{"blocksize": "-Eroot_owner=0:0"}
		}), stageRequest{}, codes.InvalidArgument},
		"mkfs option, blank": {"one value is one argument", base(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext = map[string]string{"numberofinodes": "7 -n"}
		}), stageRequest{}, codes.InvalidArgument},
		"mkfs option of another": {"what mkfs would refuse is told before the device is touched", base(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeCapability = nodeCapability(writer, "xfs")
			r.VolumeContext = map[string]string{"ext4bigalloc": "true"}
		}), stageRequest{}, codes.InvalidArgument},
		"no volume":         {"required by the specification", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "" }), stageRequest{}, codes.InvalidArgument},
		"no path":           {"required by the specification", base(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "" }), stageRequest{}, codes.InvalidArgument},
		"no capability":     {"required by the specification", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil }), stageRequest{}, codes.InvalidArgument},
		"no access type":    {"neither mount nor block", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessType = nil }), stageRequest{}, codes.InvalidArgument},
		"unknown fs":        {"never something else than asked for", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nodeCapability(writer, "btrfs") }), stageRequest{}, codes.InvalidArgument},
		"group":             {"the group is kubelet's to set", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "7" }), stageRequest{}, codes.InvalidArgument},
		"broken partition":  {"a partition that is no number", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"partition": "p1"} }), stageRequest{}, codes.InvalidArgument},
		"partition below 0": {"there is none", base(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"partition": "-1"} }), stageRequest{}, codes.InvalidArgument},
		"several nodes, block": {
			"a raw device may be shared",
			base(func(r *csi.NodeStageVolumeRequest) {
				r.VolumeCapability = nodeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "")
				r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
			}),
			want(func(r *stageRequest) { r.access = volumeAccess{block: true} }), codes.OK,
		},
		"several nodes": {"one node uses a filesystem", base(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeCapability = nodeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "")
		}), stageRequest{}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseNodeStage(tc.req)
			if code := status.Code(nodeError(err)); code != tc.code {
				t.Fatalf("%s: want %s, got %v", tc.why, tc.code, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(stageRequest{}, volumeAccess{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestParseNodePublish(t *testing.T) {
	req := &csi.NodePublishVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: "/stage", TargetPath: "/target", VolumeCapability: nodeCapability(writer, ""), Readonly: true,
	}
	got, err := parseNodePublish(req)
	if err != nil || !got.access.readOnly || got.staging != "/stage" || got.target != "/target" {
		t.Errorf("got %+v, %v", got, err)
	}
	req.StagingTargetPath = ""
	if _, err := parseNodePublish(req); status.Code(nodeError(err)) != codes.FailedPrecondition {
		t.Errorf("the specification asks for FAILED_PRECONDITION without a staging path, got %v", err)
	}
	req.StagingTargetPath, req.TargetPath = "/stage", ""
	if _, err := parseNodePublish(req); status.Code(nodeError(err)) != codes.InvalidArgument {
		t.Errorf("want INVALID_ARGUMENT without a target path, got %v", err)
	}
}

func TestParseNodeExpand(t *testing.T) {
	req := &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: "/p", CapacityRange: &csi.CapacityRange{RequiredBytes: 5, LimitBytes: 4}}
	if _, err := parseNodeExpand(req); status.Code(nodeError(err)) != codes.OutOfRange {
		t.Errorf("a range without a value in it is OUT_OF_RANGE, got %v", err)
	}
	req.CapacityRange = nil
	if got, err := parseNodeExpand(req); err != nil || got.requiredBytes != 0 || got.block {
		t.Errorf("no range means the disk's size: %+v, %v", got, err)
	}
	req.VolumePath = ""
	if _, err := parseNodeExpand(req); status.Code(nodeError(err)) != codes.InvalidArgument {
		t.Errorf("want INVALID_ARGUMENT without a path, got %v", err)
	}
}

// TestSameStaging: what is mounted at the staging path already is accepted only
// if a mount made now would be the same.
func TestSameStaging(t *testing.T) {
	device := blockdev.Device{Path: "/dev/nvme1n1", Major: 259, Minor: 1}
	ext4 := stageRequest{path: "/stage", access: volumeAccess{fsType: fs.Ext4}}
	for name, tc := range map[string]struct {
		why   string
		point fs.Point
		want  error
	}{
		"same":      {"a repeat", fs.Point{Major: 259, Minor: 1, Type: "ext4"}, nil},
		"ext3":      {"an ext3 volume under an ext4 class", fs.Point{Major: 259, Minor: 1, Type: "ext3"}, nil},
		"device":    {"another disk", fs.Point{Major: 259, Minor: 2, Type: "ext4"}, fs.ErrConflict},
		"type":      {"another filesystem", fs.Point{Major: 259, Minor: 1, Type: "xfs"}, fs.ErrConflict},
		"read-only": {"another access", fs.Point{Major: 259, Minor: 1, Type: "ext4", ReadOnly: true}, fs.ErrConflict},
	} {
		if err := sameStaging(tc.point, device, ext4); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
}

func TestSamePublication(t *testing.T) {
	staged := fs.Point{Major: 259, Minor: 1, Root: "/"}
	for name, tc := range map[string]struct {
		why       string
		published fs.Point
		readOnly  bool
		want      error
	}{
		"same":      {"a repeat", fs.Point{Major: 259, Minor: 1, Root: "/"}, false, nil},
		"read-only": {"a repeat of a read-only one", fs.Point{Major: 259, Minor: 1, Root: "/", ReadOnly: true}, true, nil},
		"access":    {"another access", fs.Point{Major: 259, Minor: 1, Root: "/"}, true, fs.ErrConflict},
		"volume":    {"another volume", fs.Point{Major: 259, Minor: 2, Root: "/"}, false, fs.ErrConflict},
		"folder":    {"a folder of the volume is not the volume", fs.Point{Major: 259, Minor: 1, Root: "/sub"}, false, fs.ErrConflict},
	} {
		if err := samePublication(tc.published, staged, tc.readOnly); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
}

// TestNodeErrors walks the table, and the order in it: a caller whose time is
// over hears that first.
func TestNodeErrors(t *testing.T) {
	for _, row := range nodeErrorCodes {
		wrapped := fmt.Errorf("volume vol-1: %w", row.err)
		if got := status.Code(nodeError(wrapped)); got != row.code {
			t.Errorf("%v: want %s, got %s", row.err, row.code, got)
		}
		ended := fmt.Errorf("%w (%w)", wrapped, context.DeadlineExceeded)
		if got := status.Code(nodeError(ended)); got != codes.DeadlineExceeded {
			t.Errorf("%v after the deadline: got %s", row.err, got)
		}
	}
	if got := status.Code(nodeError(fmt.Errorf("x: %w", ebs.ErrInvalid))); got != codes.InvalidArgument {
		t.Errorf("rows of the common table hold here too, got %s", got)
	}
	if err := nodeError(nil); err != nil {
		t.Errorf("no error stays none, got %v", err)
	}
}

// metadata answers what a test says.
type metadata struct {
	instance     imds.Instance
	occupancy    ebs.Occupancy
	instanceErr  error
	occupancyErr error
}

func (m metadata) Instance(context.Context) (imds.Instance, error) { return m.instance, m.instanceErr }
func (m metadata) Occupancy(context.Context) (ebs.Occupancy, error) {
	return m.occupancy, m.occupancyErr
}

func TestNodeGetInfo(t *testing.T) {
	down := errors.New("no route to host")
	compute := VolumeLimits{Reserved: -1}
	m5 := metadata{
		instance:  imds.Instance{ID: "i-0abc", Type: "m5.large", Zone: "us-east-1a", Region: "us-east-1"},
		occupancy: ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 2},
	}
	answer := func(limit int64) *csi.NodeGetInfoResponse {
		return &csi.NodeGetInfoResponse{
			NodeId: "i-0abc", MaxVolumesPerNode: limit,
			AccessibleTopology: &csi.Topology{Segments: map[string]string{
				"topology.ebs.csi.aws.com/zone": "us-east-1a", "topology.kubernetes.io/zone": "us-east-1a", "kubernetes.io/os": "linux",
			}},
		}
	}
	changed := func(change func(m *metadata)) metadata {
		m := m5
		change(&m)
		return m
	}
	for name, tc := range map[string]struct {
		why    string
		says   metadata
		limits VolumeLimits
		want   *csi.NodeGetInfoResponse
		code   codes.Code
	}{
		"computed":         {"27 - root volume - second interface", m5, compute, answer(25), codes.OK},
		"reserved":         {"a flag replaces what the instance was launched with", m5, VolumeLimits{Reserved: 4}, answer(22), codes.OK},
		"reserved 0":       {"0 is a number, too", m5, VolumeLimits{Reserved: 0}, answer(26), codes.OK},
		"limit":            {"a flag replaces everything", m5, VolumeLimits{AttachLimit: 7, Reserved: -1}, answer(7), codes.OK},
		"limit, half down": {"with the flag the rest is not asked for", changed(func(m *metadata) { m.occupancyErr = down }), VolumeLimits{AttachLimit: 7, Reserved: -1}, answer(7), codes.OK},
		"down":             {"no answer without the instance's id", changed(func(m *metadata) { m.instanceErr = down }), compute, nil, codes.Unavailable},
		"half down":        {"never a guess that raises the limit", changed(func(m *metadata) { m.occupancyErr = down }), compute, nil, codes.Unavailable},
		"reserved, half down": {
			"the interfaces count even if the volumes are told", changed(func(m *metadata) { m.occupancyErr = down }), VolumeLimits{Reserved: 1}, nil, codes.Unavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewNodeService(nil, nil, tc.says, tc.limits).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			if status.Code(err) != tc.code {
				t.Fatalf("%s: want %s, got %v", tc.why, tc.code, err)
			}
			if diff := cmp.Diff(tc.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

// TestNodeCapabilities: each capability that is advertised has its method.
func TestNodeCapabilities(t *testing.T) {
	service := NewNodeService(nil, nil, metadata{}, VolumeLimits{})
	answer, err := service.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[csi.NodeServiceCapability_RPC_Type]func() error{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME: func() error {
			_, err := service.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{})
			return err
		},
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME: func() error {
			_, err := service.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{})
			return err
		},
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: func() error {
			_, err := service.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeCapability: nodeCapability(multiWriter, "")})
			return err
		},
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH: func() error {
			_, err := service.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{})
			return err
		},
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS: func() error {
			_, err := service.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{})
			return err
		},
	}
	for _, c := range answer.GetCapabilities() {
		call, ok := calls[c.GetRpc().GetType()]
		if !ok {
			t.Errorf("capability %s is advertised and not tested", c.GetRpc().GetType())
			continue
		}
		if code := status.Code(call()); code != codes.InvalidArgument {
			t.Errorf("%s: an empty request must be INVALID_ARGUMENT, got %s", c.GetRpc().GetType(), code)
		}
		delete(calls, c.GetRpc().GetType())
	}
	if len(calls) > 0 {
		t.Errorf("not advertised: %v", calls)
	}
}

// oneDevice is an instance with one disk.
type oneDevice struct {
	device blockdev.Device
	err    error
}

func (d oneDevice) Wait(context.Context, blockdev.Want) (blockdev.Device, error) {
	return d.device, d.err
}

func (d oneDevice) Find(blockdev.Want) (blockdev.Device, error) { return d.device, d.err }

func (d oneDevice) WaitForSize(context.Context, blockdev.Device, int64) (blockdev.Device, error) {
	return d.device, d.err
}
func (d oneDevice) ByNumber(uint32, uint32) (blockdev.Device, error) { return d.device, nil }
func (d oneDevice) Owner(uint32, uint32) (ebs.VolumeID, bool, error) { return "", false, nil }

// mountsThatDoNotGrow mounts everything and grows nothing.
type mountsThatDoNotGrow struct {
	Filesystems
	at map[string]fs.Point
}

func (m mountsThatDoNotGrow) At(path string) (fs.Point, bool, error) {
	p, ok := m.at[path]
	return p, ok, nil
}

func (m mountsThatDoNotGrow) Mount(_ context.Context, r fs.Request) (fs.Outcome, error) {
	m.at[r.Target] = fs.Point{Path: r.Target, Major: 259, Minor: 1, Type: string(r.Type)}
	return fs.Outcome{Type: r.Type}, nil
}

func (mountsThatDoNotGrow) CheckWritable(fs.Point) error { return nil }

func (mountsThatDoNotGrow) Grow(context.Context, string, string) (fs.Growth, error) {
	return fs.Growth{}, errors.New("resize2fs: Permission denied")
}

// TestStageThatCannotGrow: kubelet must learn that something stays mounted, the
// first time and when it asks again, or it will never unstage it.
func TestStageThatCannotGrow(t *testing.T) {
	mounts := mountsThatDoNotGrow{at: map[string]fs.Point{}}
	service := NewNodeService(oneDevice{device: blockdev.Device{Path: "/dev/nvme1n1", Major: 259, Minor: 1}}, mounts, metadata{}, VolumeLimits{})
	req := &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/stage", VolumeCapability: nodeCapability(writer, "")}
	for _, attempt := range []string{"first", "second"} {
		_, err := service.NodeStageVolume(t.Context(), req)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s attempt: want UNAVAILABLE, got %v", attempt, err)
		}
	}
	if len(mounts.at) != 1 {
		t.Errorf("want one mount, got %v", mounts.at)
	}
}

// deviceIsBack is an instance whose disk was torn away, and has another number now.
type deviceIsBack struct{ oneDevice }

func (d deviceIsBack) ByNumber(major, minor uint32) (blockdev.Device, error) {
	if !d.device.SameNumber(major, minor) {
		return blockdev.Device{}, iofs.ErrNotExist
	}
	return d.device, nil
}

// mountsOfTheLost are what was left mounted, and what is since.
type mountsOfTheLost struct{ mountsThatDoNotGrow }

func (m mountsOfTheLost) Unmount(path string) error {
	delete(m.at, path)
	return nil
}

func (mountsOfTheLost) Grow(context.Context, string, string) (fs.Growth, error) {
	return fs.Growth{}, nil
}

// TestStageAfterForcedDetach: the mount of a device that is gone is in nobody's
// way; one of a device that is there, or of none, is left alone.
func TestStageAfterForcedDetach(t *testing.T) {
	for name, tc := range map[string]struct {
		left fs.Point
		want codes.Code
	}{
		"device gone":       {fs.Point{Major: 259, Minor: 7, Type: "ext4"}, codes.OK},
		"a tmpfs":           {fs.Point{Minor: 42, Type: "tmpfs"}, codes.AlreadyExists},
		"this device, live": {fs.Point{Major: 259, Minor: 1, Type: "ext4"}, codes.OK},
		"live, another way": {fs.Point{Major: 259, Minor: 1, Type: "xfs"}, codes.AlreadyExists},
	} {
		mounts := mountsOfTheLost{mountsThatDoNotGrow{at: map[string]fs.Point{"/stage": tc.left}}}
		devices := deviceIsBack{oneDevice{device: blockdev.Device{Path: "/dev/nvme2n1", Major: 259, Minor: 1}}}
		service := NewNodeService(devices, mounts, metadata{}, VolumeLimits{})
		_, err := service.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/stage", VolumeCapability: nodeCapability(writer, "")})
		if status.Code(err) != tc.want {
			t.Errorf("%s: want %s, got %v", name, tc.want, err)
		}
		staged := mounts.at["/stage"]
		if tc.want == codes.OK && (staged.Major != 259 || staged.Minor != 1) {
			t.Errorf("%s: at the staging path is %+v", name, staged)
		}
		if tc.want != codes.OK && staged != tc.left {
			t.Errorf("%s: what was mounted has become %+v", name, staged)
		}
	}
}

// TestExpandBlockOnXen: a Xen disk cannot be found without the name of its
// attachment, which an expansion does not carry, and needs no help to grow.
func TestExpandBlockOnXen(t *testing.T) {
	service := NewNodeService(oneDevice{err: blockdev.ErrUnprovable}, nil, metadata{}, VolumeLimits{})
	answer, err := service.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: "vol-1", VolumePath: "/dev/loop7", CapacityRange: &csi.CapacityRange{RequiredBytes: 5 << 30},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer},
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		},
	})
	if err != nil || answer.GetCapacityBytes() != 5<<30 {
		t.Errorf("got %v, %v", answer, err)
	}
}
