package driver_test

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// device is a raw block capability of a mode.
func device(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

const (
	manyNodes = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	oneNode   = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
)

// shared asks for a volume for several nodes.
func shared(r *csi.CreateVolumeRequest) {
	r.Parameters["type"], r.Parameters["iops"] = "io2", "500"
	r.VolumeCapabilities = []*csi.VolumeCapability{device(manyNodes)}
}

// share publishes a volume for several nodes.
func (c *cluster) share(id, node string) error {
	_, err := c.ControllerPublishVolume(c.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: device(manyNodes)})
	return err
}

func TestMultiAttach(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1", shared).GetVolumeId()
	if v, _ := c.sim.Volume(vol); !v.MultiAttach || v.Type != "io2" {
		t.Fatalf("EC2 made %+v, want io2 with Multi-Attach", v)
	}
	for range 2 { // each step twice
		for _, node := range []string{nodeA, nodeA2} {
			if err := c.share(vol, node); err != nil {
				t.Fatalf("publish to %s: %v", node, err)
			}
			c.restart()
		}
	}
	both := []string{nodeA, nodeA2}
	for what, nodes := range map[string][]string{"ControllerGetVolume": c.get(vol), "ListVolumes": c.published(0)[vol]} {
		if slices.Sort(nodes); !slices.Equal(nodes, both) {
			t.Errorf("%s says %v, want %v", what, nodes, both)
		}
	}
	wantCode(t, "another zone", c.share(vol, nodeB), codes.InvalidArgument, "InvalidVolume.ZoneMismatch")
	answer, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 12 * gib}, VolumeCapability: device(manyNodes)})
	if err != nil || answer.GetCapacityBytes() != 12*gib || answer.GetNodeExpansionRequired() {
		t.Errorf("it grows under both: %v, %v", answer, err)
	}
	for range 2 {
		if err := c.unpublish(vol, nodeA); err != nil {
			t.Fatal(err)
		}
		if got := c.get(vol); !slices.Equal(got, []string{nodeA2}) {
			t.Errorf("after %s let go it is on %v, want %s untouched", nodeA, got, nodeA2)
		}
	}
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: vol})
	wantCode(t, "it is still in use", err, codes.FailedPrecondition, nodeA2)
	if err := c.share(vol, nodeA); err != nil {
		t.Fatal(err)
	}
	if err := c.unpublish(vol, ""); err != nil || len(c.get(vol)) != 0 {
		t.Errorf("unpublish from all nodes: %v, left on %v", err, c.get(vol))
	}
}

// A death of one node takes nothing from the other.
func TestMultiAttachOutlivesANode(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1", shared).GetVolumeId()
	for _, node := range []string{nodeA, nodeA2} {
		if err := c.share(vol, node); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.sim.TerminateInstance(nodeA); err != nil {
		t.Fatal(err)
	}
	if err := c.unpublish(vol, nodeA); err != nil {
		t.Errorf("unpublish from a dead node: %v, want OK at the first call", err)
	}
	if v, _ := c.sim.Volume(vol); !slices.ContainsFunc(v.Attachments, func(a ec2sim.Attachment) bool { return a.InstanceID == nodeA2 && a.State == "attached" }) {
		t.Errorf("attachments %+v: %s lost its own", v.Attachments, nodeA2)
	}
}

// Which requests ask for several nodes, and which of them can be had.
func TestMultiAttachRequests(t *testing.T) {
	c := newCluster(t)
	c.volume("single", func(r *csi.CreateVolumeRequest) {
		shared(r)
		r.VolumeCapabilities = []*csi.VolumeCapability{device(oneNode)}
	})
	c.volume("shared", shared)
	typed := func(kind string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { shared(r); r.Parameters["type"] = kind }
	}
	modes := func(caps ...*csi.VolumeCapability) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { shared(r); r.VolumeCapabilities = caps }
	}
	mounted := singleWriter()
	mounted.AccessMode.Mode = manyNodes
	for name, tc := range map[string]struct {
		why, volume string
		change      func(*csi.CreateVolumeRequest)
		code        codes.Code
		texts       []string
		multi       bool
	}{
		"one of the modes":      {"a claim of RWO and RWX", "new-1", modes(device(oneNode), device(manyNodes)), codes.OK, nil, true},
		"one node":              {"io2 alone shares nothing", "new-2", modes(device(oneNode)), codes.OK, nil, false},
		"filesystem":            {"two nodes would destroy it", "new-3", modes(mounted), codes.InvalidArgument, []string{"one node at a time", "volumeMode Block", "io2"}, false},
		"filesystem among them": {"one bad mode is enough", "new-4", modes(device(manyNodes), mounted), codes.InvalidArgument, []string{"one node at a time"}, false},
		"read by many":          {"EBS does not attach read-only", "new-5", modes(device(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)), codes.InvalidArgument, []string{"MULTI_NODE_READER_ONLY", "io2"}, false},
		"gp3": {"EC2 knows it for io2", "new-6", func(r *csi.CreateVolumeRequest) {
			shared(r)
			delete(r.Parameters, "iops")
			r.Parameters["type"] = "gp3"
		}, codes.InvalidArgument, []string{"gp3", "io2"}, false},
		"io1":                 {"which cannot be changed or grown with it", "new-7", typed("io1"), codes.InvalidArgument, []string{"io1", "io2"}, false},
		"exists for one node": {"the same name", "single", shared, codes.AlreadyExists, []string{"Multi-Attach"}, false},
		"exists for several":  {"the same name", "shared", modes(device(oneNode)), codes.AlreadyExists, []string{"Multi-Attach"}, true},
		"again":               {"the same name and the same wish", "shared", shared, codes.OK, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.calls("CreateVolume")
			answer, err := c.CreateVolume(t.Context(), wanted(tc.volume, tc.change))
			wantCode(t, tc.why, err, tc.code, tc.texts...)
			if v, ok := c.sim.Volume(answer.GetVolume().GetVolumeId()); ok && v.MultiAttach != tc.multi {
				t.Errorf("%s: Multi-Attach is %v", tc.why, v.MultiAttach)
			}
			if tc.code != codes.OK && c.calls("CreateVolume") != before {
				t.Errorf("%s: CreateVolume was called", tc.why)
			}
		})
	}
}

// A volume of several nodes under a claim for one: EC2 keeps no second node
// away, so the driver does.
func TestMultiAttachVolumeForOneNode(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1", shared).GetVolumeId()
	if _, err := c.publish(vol, nodeA); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := c.publish(vol, nodeA2)
		wantCode(t, "a filesystem that another node has mounted", err, codes.FailedPrecondition, nodeA, "SINGLE_NODE_WRITER")
	}
	if got := c.get(vol); !slices.Contains(got, nodeA) {
		t.Errorf("on %v: the first node's was taken away", got)
	}
	if err := c.unpublish(vol, nodeA); err != nil {
		t.Fatal(err)
	}
	if _, err := c.publish(vol, nodeA2); err != nil {
		t.Errorf("once the first node has let go: %v", err)
	}
}

func TestMultiAttachIsConfirmedWhereItIs(t *testing.T) {
	c := newCluster(t)
	several, one := c.volume("pvc-1", shared).GetVolumeId(), c.volume("pvc-2").GetVolumeId()
	for _, tc := range []struct {
		volume string
		want   bool
	}{{several, true}, {one, false}} {
		answer, err := c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: tc.volume, VolumeCapabilities: []*csi.VolumeCapability{device(manyNodes)}})
		if err != nil || (answer.GetConfirmed() != nil) != tc.want || tc.want == (answer.GetMessage() != "") {
			t.Errorf("several nodes for %s: %v, %v, want confirmed %t", tc.volume, answer, err, tc.want)
		}
	}
}

// The seventeenth instance is EC2's to refuse.
func TestMultiAttachIsFull(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1", shared).GetVolumeId()
	c.sim.FailNext("AttachVolume", "AttachmentLimitExceeded", 1)
	wantCode(t, "all places taken", c.share(vol, nodeA), codes.ResourceExhausted, "AttachmentLimitExceeded")
}
