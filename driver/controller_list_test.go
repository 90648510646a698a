package driver_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// published lists as csi-attacher does: which nodes have which volume.
func (c *cluster) published(entries int32) map[string][]string {
	c.t.Helper()
	nodes := map[string][]string{}
	req := &csi.ListVolumesRequest{MaxEntries: entries}
	for {
		page, err := c.ListVolumes(c.t.Context(), req)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			if e.GetStatus() == nil {
				c.t.Fatalf("csi-attacher skips an entry without a status: %v", e)
			}
			nodes[e.GetVolume().GetVolumeId()] = e.GetStatus().GetPublishedNodeIds()
		}
		if req.StartingToken = page.GetNextToken(); req.StartingToken == "" {
			return nodes
		}
	}
}

// get is what ControllerGetVolume says about the nodes that have a volume.
func (c *cluster) get(id string) []string {
	c.t.Helper()
	answer, err := c.ControllerGetVolume(c.t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.GetStatus().GetPublishedNodeIds()
}

// slow makes attaching and detaching take until the clock is moved by hand.
func (c *cluster) slow() {
	d := c.sim.Delays()
	d.Attach, d.Detach = ec2sim.Duration(time.Hour), ec2sim.Duration(time.Hour)
	c.sim.SetDelays(d)
}

func TestListVolumesTellsTheAttacherTheTruth(t *testing.T) {
	c := newCluster(t)
	ec2 := sdk.NewFromConfig(ec2sim.ClientConfig(c.url))
	made, err := ec2.CreateVolume(t.Context(), &sdk.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	if err != nil {
		t.Fatal(err)
	}
	c.clock.Step(time.Minute)
	static, ours, idle := aws.ToString(made.VolumeId), c.volume("pvc-1").GetVolumeId(), c.volume("pvc-2").GetVolumeId()
	want := c.published(0)
	for id, nodes := range want { // the volumes that the instances were launched with, and ours
		if len(nodes) != 1 && id != ours && id != idle {
			t.Errorf("%s is listed on %v", id, nodes)
		}
	}
	want[idle], want[ours], want[static] = nil, []string{nodeA}, []string{nodeA2}
	for _, id := range []string{ours, static} {
		if _, err := c.publish(id, want[id][0]); err != nil {
			t.Fatal(err)
		}
	}
	for _, entries := range []int32{0, 1, 3, 5} {
		if diff := cmp.Diff(want, c.published(entries)); diff != "" {
			t.Errorf("pages of %d: (-want +got)\n%s", entries, diff)
		}
	}
	if err := c.unpublish(static, nodeA2); err != nil {
		t.Fatal(err)
	}
	if _, listed := c.published(0)[static]; listed {
		t.Error("a static volume that nothing has attached is nobody's: csi-attacher takes it for detached")
	}
	// DRIVER rule 16: the instance dies, EC2 lets its volumes go.
	if err := c.sim.TerminateInstance(nodeA); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(time.Hour)
	if nodes, listed := c.published(0)[ours]; !listed || len(nodes) > 0 {
		t.Errorf("after its instance is gone the volume is listed %t, on %v", listed, nodes)
	}
}

// While a volume is attached or detached the answer agrees with what the caller
// of these RPCs knows, so that csi-attacher does not repeat them.
func TestPublishedNodesInBetween(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	ec2 := sdk.NewFromConfig(ec2sim.ClientConfig(c.url))
	check := func(why, state string, want []string) {
		t.Helper()
		if v, _ := c.sim.Volume(vol); len(v.Attachments) != 1 || v.Attachments[0].State != state {
			t.Fatalf("%s: the attachment must be %s: %+v", why, state, v.Attachments)
		}
		if diff := cmp.Diff(want, c.published(0)[vol]); diff != "" {
			t.Errorf("%s: ListVolumes (-want +got)\n%s", why, diff)
		}
		if diff := cmp.Diff(want, c.get(vol)); diff != "" {
			t.Errorf("%s: ControllerGetVolume (-want +got)\n%s", why, diff)
		}
	}
	c.slow()
	if _, err := ec2.AttachVolume(t.Context(), &sdk.AttachVolumeInput{VolumeId: &vol, InstanceId: aws.String(nodeA), Device: aws.String("/dev/xvdba")}); err != nil {
		t.Fatal(err)
	}
	check("ControllerPublishVolume has not ended", "attaching", nil)
	c.clock.Step(2 * time.Hour)
	check("it has ended", "attached", []string{nodeA})
	if _, err := ec2.DetachVolume(t.Context(), &sdk.DetachVolumeInput{VolumeId: &vol}); err != nil {
		t.Fatal(err)
	}
	check("ControllerUnpublishVolume has not ended", "detaching", []string{nodeA})
}

func TestListVolumesRefusals(t *testing.T) {
	c := newCluster(t)
	_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "not ours"})
	wantCode(t, "the specification asks for ABORTED for a token that is not valid", err, codes.Aborted)
	_, err = c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, "a negative number of entries", err, codes.InvalidArgument, "-1")
	c.sim.FailNext("DescribeVolumes", "RequestLimitExceeded", 10)
	_, err = c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	wantCode(t, "EC2 is throttling", err, codes.Unavailable, "list volumes")
}

func TestControllerGetVolume(t *testing.T) {
	c := newCluster(t)
	made := c.volume("pvc-1")
	if _, err := c.publish(made.GetVolumeId(), nodeA); err != nil {
		t.Fatal(err)
	}
	got, err := c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: made.GetVolumeId()})
	want := &csi.ControllerGetVolumeResponse{Volume: made, Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: []string{nodeA}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v; what CreateVolume said, and the node (-want +got)\n%s", err, diff)
	}
	for _, id := range []string{"vol-0123456789abcdef0", "my-volume"} {
		_, err := c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
		wantCode(t, "there is none", err, codes.NotFound, id)
	}
	going := c.volume("pvc-2").GetVolumeId()
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: going}); err != nil {
		t.Fatal(err)
	}
	if v, _ := c.sim.Volume(going); v.State != "deleting" {
		t.Fatalf("the volume must be seen while it is deleted, it is %q", v.State)
	}
	_, err = c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: going})
	wantCode(t, "a volume that is being deleted", err, codes.NotFound, going, "deleting")
	if ids := slices.Collect(maps.Keys(c.published(0))); slices.Contains(ids, going) {
		t.Errorf("a volume that is being deleted is listed: %v", ids)
	}
}
