package driver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// The whole life, with the process restarted between any two steps and each step done twice.
func TestAVolumesLifeOverRestarts(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	var vol *csi.Volume
	twice := func(step string, do func() error) {
		t.Helper()
		for i := range 2 {
			if err := do(); err != nil {
				t.Fatalf("%s, try %d: %v", step, i+1, err)
			}
			c.restart()
		}
	}
	twice("create", func() error {
		answer, err := c.CreateVolume(ctx, wanted("pvc-1"))
		if err != nil {
			return err
		}
		want := &csi.Volume{VolumeId: answer.GetVolume().GetVolumeId(), CapacityBytes: 10 * gib,
			AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zoneA}}}}
		if diff := cmp.Diff(want, answer.GetVolume(), protocmp.Transform()); diff != "" {
			t.Errorf("new and found volumes are answered alike (-want +got)\n%s", diff)
		}
		if vol != nil && vol.GetVolumeId() != answer.GetVolume().GetVolumeId() {
			t.Errorf("a repeat gave another volume")
		}
		vol = answer.GetVolume()
		return nil
	})
	known, _ := c.sim.Volume(vol.GetVolumeId())
	tags := map[string]string{
		"CSIVolumeName": "pvc-1", "ebs.csi.aws.com/cluster": "true", "env": "test", "kubernetes.io/created-for/pvc/name": "data-0",
		"kubernetes.io/created-for/pvc/namespace": "db", "kubernetes.io/created-for/pv/name": "pvc-1",
	}
	if diff := cmp.Diff(tags, known.Tags); diff != "" {
		t.Errorf("tags (-want +got)\n%s", diff)
	}
	twice("publish", func() error {
		answer, err := c.publish(vol.GetVolumeId(), nodeA)
		if diff := cmp.Diff(map[string]string{"devicePath": "/dev/xvdaa"}, answer.GetPublishContext()); err == nil && diff != "" {
			t.Errorf("publish context (-want +got)\n%s", diff)
		}
		return err
	})
	twice("expand", func() error {
		answer, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: vol.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 12*gib - 1}, VolumeCapability: singleWriter()})
		if err == nil && (answer.GetCapacityBytes() != 12*gib || !answer.GetNodeExpansionRequired()) {
			t.Errorf("expand answered %v", answer)
		}
		return err
	})
	var snap *csi.Snapshot
	twice("snapshot", func() error {
		answer, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: vol.GetVolumeId()})
		snap = answer.GetSnapshot()
		if err == nil && (snap.GetSizeBytes() != 12*gib || snap.GetSourceVolumeId() != vol.GetVolumeId() || snap.GetCreationTime().AsTime().IsZero()) {
			t.Errorf("snapshot %v", snap)
		}
		return err
	})
	c.clock.Step(time.Minute)
	list, err := c.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SnapshotId: snap.GetSnapshotId()})
	if err != nil || len(list.GetEntries()) != 1 || !list.GetEntries()[0].GetSnapshot().GetReadyToUse() {
		t.Errorf("the snapshot is listed as %v, %v", list, err)
	}
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snap.GetSnapshotId()}}}
	restored := c.volume("pvc-2", func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource, r.CapacityRange.RequiredBytes = source, 12*gib
	})
	if diff := cmp.Diff(source, restored.GetContentSource(), protocmp.Transform()); diff != "" {
		t.Errorf("the source of a restore is answered (-want +got)\n%s", diff)
	}
	twice("unpublish", func() error { return c.unpublish(vol.GetVolumeId(), nodeA) })
	twice("publish elsewhere", func() error {
		_, err := c.publish(vol.GetVolumeId(), nodeA2)
		return err
	})
	twice("unpublish from all", func() error { return c.unpublish(vol.GetVolumeId(), "") })
	twice("delete", func() error {
		for _, id := range []string{vol.GetVolumeId(), restored.GetVolumeId()} {
			if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				return err
			}
		}
		_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
		return err
	})
	c.clock.Step(time.Minute)
	if v, s := c.sim.Volumes(), c.sim.Snapshots(); len(v)+len(s) != 0 {
		t.Errorf("left in EC2: %v %v", v, s)
	}
}

// DRIVER rules 1, 8, 10 and 12: every answer of EC2 to a change is lost, then
// the process is restarted and asked again. Nothing is made twice, nothing final
// is answered on the way.
func TestLostAnswersAndARestart(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	var vol, snap string
	for _, step := range []struct {
		action string
		do     func() error
	}{
		{"CreateVolume", func() error {
			answer, err := c.CreateVolume(ctx, wanted("pvc-1"))
			vol = answer.GetVolume().GetVolumeId()
			return err
		}},
		{"AttachVolume", func() error { _, err := c.publish(vol, nodeA); return err }},
		{"ModifyVolume", func() error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}})
			return err
		}},
		{"CreateSnapshot", func() error {
			answer, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: vol})
			snap = answer.GetSnapshot().GetSnapshotId()
			return err
		}},
		{"DetachVolume", func() error { return c.unpublish(vol, nodeA) }},
		{"DeleteSnapshot", func() error {
			_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snap})
			return err
		}},
		{"DeleteVolume", func() error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol})
			return err
		}},
	} {
		if err := c.sim.Inject(ec2sim.Fault{Action: step.action, LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
			t.Fatal(err)
		}
		if code := status.Code(step.do()); code != codes.OK && code != codes.Aborted {
			t.Errorf("%s: %s while the outcome is not known, want OK or ABORTED", step.action, code)
		}
		c.sim.ClearFaults()
		c.restart()
		if err := step.do(); err != nil {
			t.Fatalf("%s after the restart: %v", step.action, err)
		}
		c.clock.Step(20 * time.Second)
		if v, s := len(c.sim.Volumes()), len(c.sim.Snapshots()); v > 1 || s > 1 {
			t.Fatalf("%s: %d volumes and %d snapshots, want one at most", step.action, v, s)
		}
	}
	c.clock.Step(time.Minute)
	if v, s := c.sim.Volumes(), c.sim.Snapshots(); len(v)+len(s) != 0 {
		t.Errorf("left in EC2: %v %v", v, s)
	}
}

// DRIVER rule 17: the caller gives up, and the next one is not held up by it.
func TestACallerThatGivesUp(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	if err := c.sim.Inject(ec2sim.Fault{Action: "DescribeInstances", LatencyMs: 3_600_000}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: vol, NodeId: nodeA, VolumeCapability: singleWriter()})
		given <- err
	}()
	for len(c.sim.Faults()) > 0 { // until the call has arrived
		<-time.After(time.Millisecond)
	}
	_, err := c.publish(vol, nodeA)
	wantCode(t, "while the first is under way", err, codes.Aborted, "ControllerPublishVolume")
	cancel()
	wantCode(t, "the first", <-given, codes.Canceled)
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err = c.publish(vol, nodeA); status.Code(err) != codes.Aborted || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("after the first has given up: %v", err)
	}
}

// Every capability that is advertised is there, and what is not advertised is not.
func TestControllerCapabilities(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	calls := map[csi.ControllerServiceCapability_RPC_Type]func() error{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME: func() error {
			_, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME: func() error { _, err := c.publish("", ""); return err },
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT: func() error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS: func() error {
			_, err := c.ListSnapshots(ctx, &csi.ListSnapshotsRequest{MaxEntries: -1})
			return err
		},
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME: func() error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES: func() error {
			_, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: -1})
			return err
		},
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES: func() error {
			_, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: -1})
			return err
		},
		csi.ControllerServiceCapability_RPC_GET_CAPACITY: func() error { _, err := c.GetCapacity(ctx, &csi.GetCapacityRequest{}); return err },
		csi.ControllerServiceCapability_RPC_GET_VOLUME: func() error {
			_, err := c.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: func() error {
			capability := singleWriter()
			capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
			_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeCapability: capability})
			return err
		},
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH: func() error {
			_, err := c.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH: func() error {
			_, err := c.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{MaxEntries: -1})
			return err
		},
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME: func() error {
			_, err := c.CreateVolume(ctx, wanted("clone", cloneOf("")))
			return err
		},
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME: func() error {
			_, err := c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{})
			return err
		},
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT: func() error { _, err := c.GetSnapshot(ctx, &csi.GetSnapshotRequest{}); return err },
	}
	answer, err := c.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	advertised := map[csi.ControllerServiceCapability_RPC_Type]bool{}
	for _, capability := range answer.GetCapabilities() {
		kind := capability.GetRpc().GetType()
		advertised[kind] = true
		if calls[kind] == nil {
			t.Errorf("%s is advertised and this test does not call it", kind)
		}
	}
	for kind, call := range calls {
		want := codes.Unimplemented
		if advertised[kind] {
			want = codes.InvalidArgument // the call exists and judges its empty request
		}
		wantCode(t, kind.String(), call(), want)
	}
}

// DRIVER rules 9, 11 and 15: the code of each refusal, and that nothing was changed.
func TestCreateVolumeRefusals(t *testing.T) {
	c := newCluster(t)
	param := func(k, v string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { r.Parameters[k] = v }
	}
	for name, tc := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
		texts  []string
	}{
		"unknown parameter":   {param("encrypt", "true"), codes.InvalidArgument, []string{"encrypt", "allowed are"}},
		"bad value":           {param("encrypted", "yes"), codes.InvalidArgument, []string{"encrypted", "yes", "true or false"}},
		"iops for gp3":        {param("iops", "90000"), codes.InvalidArgument, []string{"90000", "3000 to 80000"}},
		"iops for the size":   {param("iops", "6000"), codes.InvalidArgument, []string{"6000", "10 GiB", "5000"}},
		"throughput for iops": {param("throughput", "1000"), codes.InvalidArgument, []string{"1000", "750"}},
		"throughput for gp2": {func(r *csi.CreateVolumeRequest) {
			r.Parameters["type"], r.Parameters["throughput"] = "gp2", "200"
		}, codes.InvalidArgument, []string{"throughput", "gp2"}},
		"iops for gp2": {func(r *csi.CreateVolumeRequest) {
			r.Parameters["type"], r.Parameters["iops"] = "gp2", "3000"
		}, codes.InvalidArgument, []string{"gp2", "3000"}},
		"attributes class, throughput for gp2": {func(r *csi.CreateVolumeRequest) {
			r.Parameters["type"], r.MutableParameters = "gp2", map[string]string{"throughput": "200"}
		}, codes.InvalidArgument, []string{"throughput", "gp2"}},
		"io2 without iops":  {param("type", "io2"), codes.InvalidArgument, []string{"io2", "iops or iopsPerGB"}},
		"size for the type": {param("type", "st1"), codes.OutOfRange, []string{"10 GiB", "125 to 16384"}},
		"reserved tag":      {param("tagSpecification_1", "aws:x=y"), codes.InvalidArgument, []string{"aws:"}},
		"broken template":   {param("tagSpecification_1", "a={{"), codes.InvalidArgument, []string{"template"}},
		"filesystem":        {param("fsType", "ntfs"), codes.InvalidArgument, []string{"ntfs", "ext4"}},
		"good and bad": {func(r *csi.CreateVolumeRequest) {
			r.Parameters["iops"], r.Parameters["tagSpecification_1"] = "4000", "CSIVolumeName=x"
		}, codes.InvalidArgument, []string{"reserved"}},
		"attributes class":               {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"encrypted": "false"} }, codes.InvalidArgument, []string{"VolumeAttributesClass", "encrypted"}},
		"attributes class, for the size": {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "6000"} }, codes.InvalidArgument, []string{"6000", "5000"}},
		"no name":                        {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, []string{"name"}},
		"long name":                      {func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 257) }, codes.InvalidArgument, []string{"257"}},
		"no capability":                  {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, []string{"capability"}},
		"RWX on a filesystem": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument, []string{"one node at a time"}},
		"limit below rounded": {func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 10*gib + 1, LimitBytes: 10*gib + 2}
		}, codes.OutOfRange, []string{"11 GiB"}},
		"clone of nothing":  {cloneOf(""), codes.InvalidArgument, []string{"no volume id"}},
		"source of no kind": {func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument, []string{"content source"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.CreateVolume(t.Context(), wanted("pvc-1", tc.change))
			wantCode(t, name, err, tc.want, tc.texts...)
		})
	}
	if n := c.calls("CreateVolume") + c.calls("DescribeVolumes"); n != 0 {
		t.Errorf("%d calls of EC2 for requests that cannot work, want none", n)
	}
	missing := wanted("pvc-1", func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "snap-0123456789abcdef0"}}}
	})
	_, err := c.CreateVolume(t.Context(), missing)
	wantCode(t, "a missing snapshot", err, codes.NotFound, "snap-0123456789abcdef0")
}

// What EC2 refuses, through all layers.
func TestCodesOfEC2Refusals(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	vol := c.volume("pvc-1")
	create := func() error { _, err := c.CreateVolume(ctx, wanted("pvc-new")); return err }
	remove := func() error {
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
		return err
	}
	attach := func() error { _, err := c.publish(vol.GetVolumeId(), nodeA); return err }
	detach := func() error { return c.unpublish(vol.GetVolumeId(), nodeA) }
	grow := func() error {
		_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: vol.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}})
		return err
	}
	snapshot := func() error {
		_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: vol.GetVolumeId()})
		return err
	}
	for _, tc := range []struct {
		why, action, code string
		do                func() error
		want              codes.Code
	}{
		{"throttling is no verdict", "CreateVolume", "RequestLimitExceeded", create, codes.Unavailable},
		{"a quota is final for a new name", "CreateVolume", "VolumeLimitExceeded", create, codes.ResourceExhausted},
		{"no capacity in the zone", "CreateVolume", "InsufficientVolumeCapacity", create, codes.ResourceExhausted},
		{"another zone may have the type", "CreateVolume", "VolumeTypeNotAvailableInZone", create, codes.ResourceExhausted},
		{"EC2's own fault leaves it open", "CreateVolume", "InternalError", create, codes.Aborted},
		{"the missing permission is named", "CreateVolume", "UnauthorizedOperation", create, codes.PermissionDenied},
		{"a look-up that fails leaves it open", "DescribeVolumes", "UnauthorizedOperation", create, codes.Aborted},
		{"an attached volume is not deleted", "DeleteVolume", "VolumeInUse", remove, codes.FailedPrecondition},
		{"throttling is no verdict", "DeleteVolume", "RequestLimitExceeded", remove, codes.Unavailable},
		{"the node is full", "AttachVolume", "AttachmentLimitExceeded", attach, codes.ResourceExhausted},
		{"throttling is no verdict", "AttachVolume", "RequestLimitExceeded", attach, codes.Unavailable},
		{"the permission to detach is missing", "DetachVolume", "UnauthorizedOperation", detach, codes.PermissionDenied},
		{"changed too often", "ModifyVolume", "VolumeModificationRateExceeded", grow, codes.ResourceExhausted},
		{"infeasible for csi-resizer", "ModifyVolume", "InvalidParameterValue", grow, codes.InvalidArgument},
		{"a stale read is never NOT_FOUND", "DescribeVolumesModifications", "InternalError", grow, codes.Unavailable},
		{"too many snapshots pending", "CreateSnapshot", "ConcurrentSnapshotLimitExceeded", snapshot, codes.ResourceExhausted},
		{"throttling is no verdict", "CreateSnapshot", "RequestLimitExceeded", snapshot, codes.Unavailable},
		{"a code nobody knows", "CreateSnapshot", "SomethingNew", snapshot, codes.Internal},
	} {
		t.Run(tc.action+" "+tc.code, func(t *testing.T) {
			defer c.restart() // what a process remembers of a refusal is another test's matter
			defer c.sim.ClearFaults()
			c.sim.FailNext(tc.action, tc.code, -1)
			wantCode(t, tc.why, tc.do(), tc.want, tc.code)
		})
	}
}

// DRIVER rules 7, 9 and 16 over the socket.
func TestPublishAndUnpublish(t *testing.T) {
	c := newCluster(t)
	vol, other := c.volume("pvc-1").GetVolumeId(), c.volume("pvc-2").GetVolumeId()
	if _, err := c.publish(vol, nodeA); err != nil {
		t.Fatal(err)
	}
	_, err := c.publish(vol, nodeA2)
	wantCode(t, "attached elsewhere", err, codes.FailedPrecondition, nodeA)
	_, err = c.publish(other, nodeB)
	wantCode(t, "another zone", err, codes.InvalidArgument, "InvalidVolume.ZoneMismatch", zoneA, zoneB)
	_, err = c.publish("vol-0123456789abcdef0", nodeA)
	wantCode(t, "no such volume", err, codes.NotFound)
	_, err = c.publish(other, "i-0123456789abcdef0")
	wantCode(t, "no such node", err, codes.NotFound)
	rwx := singleWriter()
	rwx.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	_, err = c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: other, NodeId: nodeA, VolumeCapability: rwx})
	wantCode(t, "RWX on a filesystem", err, codes.InvalidArgument, "one node at a time")
	_, err = c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: other, NodeId: nodeA, VolumeCapability: singleWriter(), Readonly: true})
	wantCode(t, "read-only attachment", err, codes.InvalidArgument, "read-only")

	if err := c.unpublish(vol, nodeA2); err != nil {
		t.Errorf("attached elsewhere: %v, want OK", err)
	}
	if v, _ := c.sim.Volume(vol); len(v.Attachments) != 1 || v.Attachments[0].InstanceID != nodeA {
		t.Errorf("attachments %v: somebody else's was detached", v.Attachments)
	}
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: vol})
	wantCode(t, "deletion while attached", err, codes.FailedPrecondition, nodeA)
	if err := c.sim.TerminateInstance(nodeA); err != nil {
		t.Fatal(err)
	}
	if err := c.unpublish(vol, nodeA); err != nil {
		t.Errorf("a dead node: %v, want OK at the first call", err)
	}
	if _, err := c.publish(vol, nodeA2); err != nil {
		t.Errorf("the next node: %v", err)
	}
}

// Parallel claims of one StatefulSet: no request hinders another.
func TestManyVolumesAtOnce(t *testing.T) {
	c := newCluster(t)
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			answer, err := c.CreateVolume(t.Context(), wanted(fmt.Sprint("pvc-", i)))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.publish(answer.GetVolume().GetVolumeId(), nodeA); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := len(c.sim.Volumes()); n != 10 {
		t.Errorf("%d volumes, want 10", n)
	}
}

func TestValidateVolumeCapabilities(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	ask := func(id string, mode csi.VolumeCapability_AccessMode_Mode, params map[string]string) (*csi.ValidateVolumeCapabilitiesResponse, error) {
		capability := singleWriter()
		capability.AccessMode.Mode = mode
		return c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{capability}, Parameters: params})
	}
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	} {
		if answer, err := ask(vol, mode, nil); err != nil || answer.GetConfirmed() == nil {
			t.Errorf("%s: %v, %v", mode, answer, err)
		}
	}
	if answer, err := ask(vol, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, nil); err != nil || answer.GetConfirmed() != nil || answer.GetMessage() == "" {
		t.Errorf("RWX: %v, %v, want it not confirmed, and why", answer, err)
	}
	if answer, err := ask(vol, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, map[string]string{"x": "y"}); err != nil || answer.GetConfirmed() != nil {
		t.Errorf("unknown parameter: %v, %v, want it not confirmed", answer, err)
	}
	_, err := ask("vol-0123456789abcdef0", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil)
	wantCode(t, "no such volume", err, codes.NotFound)
}

// A block volume needs no growing on the node.
func TestExpandBlockVolume(t *testing.T) {
	c := newCluster(t)
	block := singleWriter()
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	answer, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: c.volume("pvc-1").GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 11 * gib}, VolumeCapability: block})
	if err != nil || answer.GetNodeExpansionRequired() || answer.GetCapacityBytes() != 11*gib {
		t.Errorf("%v, %v", answer, err)
	}
	_, err = c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: "vol-0123456789abcdef0", CapacityRange: &csi.CapacityRange{RequiredBytes: 11 * gib}})
	wantCode(t, "no such volume", err, codes.NotFound)
}
