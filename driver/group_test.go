package driver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// attached makes a volume and attaches it.
func (c *cluster) attached(name, node string) string {
	c.t.Helper()
	id := c.volume(name).GetVolumeId()
	if _, err := c.publish(id, node); err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *cluster) group(name string, parameters map[string]string, volumes ...string) (*csi.VolumeGroupSnapshot, error) {
	answer, err := c.groups.CreateVolumeGroupSnapshot(c.t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: volumes, Parameters: parameters})
	return answer.GetGroupSnapshot(), err
}

// A group's whole life, with the process restarted between any two steps.
func TestAGroupsLifeOverRestarts(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	a, b := c.attached("pvc-1", nodeA), c.attached("pvc-2", nodeA)
	parameters := map[string]string{
		"tagSpecification_1": "of={{ .VolumeGroupSnapshotNamespace }}/{{ .VolumeGroupSnapshotName }}", "csi.storage.k8s.io/volumegroupsnapshot/name": "nightly",
		"csi.storage.k8s.io/volumegroupsnapshot/namespace": "db", "csi.storage.k8s.io/volumegroupsnapshotcontent/name": "content",
	}
	group, err := c.group("groupsnapshot-1", parameters, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if group.GetReadyToUse() || len(group.GetSnapshots()) != 2 || group.GetCreationTime().AsTime().IsZero() || group.GetGroupSnapshotId() == "" {
		t.Errorf("a new group is %v, want two snapshots that are not ready", group)
	}
	for _, s := range group.GetSnapshots() {
		if s.GetGroupSnapshotId() != group.GetGroupSnapshotId() || s.GetReadyToUse() || s.GetSizeBytes() != 10*gib {
			t.Errorf("snapshot %v, want it of the group and not ready", s)
		}
		known, _ := c.sim.Snapshot(s.GetSnapshotId())
		for key, want := range map[string]string{"ebs.csi.aws.com/cluster": "true", "ebs.csi.aws.com/group-snapshot-name": "groupsnapshot-1", "of": "db/nightly", "env": "test"} {
			if known.Tags[key] != want {
				t.Errorf("tag %s of %s is %q, want %q", key, known.ID, known.Tags[key], want)
			}
		}
	}
	c.restart()
	c.clock.Step(time.Minute)
	again, err := c.group("groupsnapshot-1", parameters, b, a)
	if err != nil || !again.GetReadyToUse() || again.GetGroupSnapshotId() != group.GetGroupSnapshotId() {
		t.Fatalf("a repeat gave %v, %v; want the same group, ready", again, err)
	}
	c.restart()
	ids := []string{again.GetSnapshots()[0].GetSnapshotId(), again.GetSnapshots()[1].GetSnapshotId()}
	got, err := c.groups.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	if diff := cmp.Diff(again, got.GetGroupSnapshot(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("looked up: %v (-want +got)\n%s", err, diff)
	}
	_, err = c.groups.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids[:1]})
	wantCode(t, "other snapshots than the group's", err, codes.InvalidArgument, ids[1])
	one, err := c.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: ids[0]})
	if diff := cmp.Diff(again.GetSnapshots()[0], one.GetSnapshot(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("one of the group: %v (-want +got)\n%s", err, diff)
	}
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: ids[0]}}}
	c.volume("pvc-3", func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = source })
	for range 2 {
		c.restart()
		if _, err := c.groups.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids}); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if n := len(c.sim.Snapshots()); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
	_, err = c.groups.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId()})
	wantCode(t, "a group that is gone", err, codes.NotFound)
	_, err = c.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: ids[0]})
	wantCode(t, "a snapshot that is gone", err, codes.NotFound)
}

// What cannot be is refused in the specification's codes, before anything is taken.
func TestGroupsThatAreRefused(t *testing.T) {
	c := newCluster(t)
	a, elsewhere, free := c.attached("pvc-1", nodeA), c.attached("pvc-2", nodeA2), c.volume("pvc-3").GetVolumeId()
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprintf("tagSpecification_%d", i)] = fmt.Sprintf("k%d=v", i)
	}
	for name, tc := range map[string]struct {
		why        string
		name       string
		parameters map[string]string
		volumes    []string
		code       codes.Code
		texts      []string
	}{
		"no name":        {"identity is the name", "", nil, []string{a}, codes.InvalidArgument, []string{"name"}},
		"long name":      {"it becomes a tag", strings.Repeat("x", 257), nil, []string{a}, codes.InvalidArgument, []string{"257"}},
		"no volumes":     {"nothing to take", "g", nil, nil, codes.InvalidArgument, []string{"source volume ids"}},
		"empty volume":   {"a slip", "g", nil, []string{a, ""}, codes.InvalidArgument, []string{"empty"}},
		"twice":          {"a slip", "g", nil, []string{a, a}, codes.InvalidArgument, []string{"twice", a}},
		"unknown key":    {"as in other classes", "g", map[string]string{"lockMod": "governance"}, []string{a}, codes.InvalidArgument, []string{"lockMod", "lockMode"}},
		"51 tags":        {"the group's own tags count", "g", many, []string{a}, codes.InvalidArgument, []string{"50"}},
		"several nodes":  {"the specification's code, with the reason", "g", nil, []string{a, elsewhere}, codes.FailedPrecondition, []string{a + " to " + nodeA, elsewhere + " to " + nodeA2}},
		"not attached":   {"the specification's code, with the reason", "g", nil, []string{a, free}, codes.FailedPrecondition, []string{free, "no instance"}},
		"no such volume": {"it is named", "g", nil, []string{a, "vol-0123456789abcdef0"}, codes.NotFound, []string{"vol-0123456789abcdef0"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.group(tc.name, tc.parameters, tc.volumes...)
			wantCode(t, tc.why, err, tc.code, tc.texts...)
		})
	}
	_, err := c.groups.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{})
	wantCode(t, "looked up without id", err, codes.InvalidArgument)
	_, err = c.groups.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{})
	wantCode(t, "deleted without id", err, codes.InvalidArgument)
	_, err = c.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{})
	wantCode(t, "a snapshot without id", err, codes.InvalidArgument)
	if n := c.calls("CreateSnapshots"); n != 0 {
		t.Errorf("%d CreateSnapshots calls, want none", n)
	}
}

// DRIVER rule 12a through CSI: what a class asks for beyond the content is added
// by a retry, by another process, to the one snapshot; meanwhile nothing final
// is answered. A lock keeps the snapshot with a code that says so.
func TestSnapshotClassOverARestart(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	vol := c.volume("pvc-1").GetVolumeId()
	request := &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: vol, Parameters: map[string]string{
		"fastSnapshotRestoreAvailabilityZones": zoneA, "lockMode": "governance", "lockDuration": "1",
	}}
	for _, action := range []string{"EnableFastSnapshotRestores", "LockSnapshot"} {
		if err := c.sim.Inject(ec2sim.Fault{Action: action, Code: "UnauthorizedOperation"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.CreateSnapshot(ctx, request)
	wantCode(t, "refused after the snapshot was taken", err, codes.Aborted, "lock snapshot", "fast restore")
	c.restart()
	answer, err := c.CreateSnapshot(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	id := answer.GetSnapshot().GetSnapshotId()
	if sn, _ := c.sim.Snapshot(id); len(c.sim.Snapshots()) != 1 || sn.Lock == nil || len(sn.FastRestores) != 1 {
		t.Errorf("%d snapshots, lock %v, fast restore %v; want one with both", len(c.sim.Snapshots()), sn.Lock, sn.FastRestores)
	}
	_, err = c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
	wantCode(t, "locked", err, codes.FailedPrecondition, id, "governance")
	c.clock.Step(25 * time.Hour)
	if _, err = c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil || len(c.sim.Snapshots()) != 0 {
		t.Errorf("after the lock's end: %v, %d left", err, len(c.sim.Snapshots()))
	}
	request.Name, request.Parameters["fastSnapshotRestoreAvailabilityZones"] = "snapshot-2", "us-east-1z"
	_, err = c.CreateSnapshot(ctx, request)
	wantCode(t, "a zone that is none", err, codes.InvalidArgument, "us-east-1z", zoneA)
}

// Every capability that is advertised is there.
func TestGroupCapabilities(t *testing.T) {
	c := newCluster(t)
	answer, err := c.groups.GroupControllerGetCapabilities(t.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
	if err != nil || len(answer.GetCapabilities()) != 1 ||
		answer.GetCapabilities()[0].GetRpc().GetType() != csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT {
		t.Fatalf("%v, %v", answer, err)
	}
	_, err = c.group("", nil)
	wantCode(t, "create", err, codes.InvalidArgument)
	_, err = c.groups.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "none"})
	wantCode(t, "get", err, codes.NotFound)
	if _, err := c.groups.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "none"}); err != nil {
		t.Errorf("delete: %v", err)
	}
}
