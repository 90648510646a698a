package driver_test

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// conditions are a volume's, one a line.
func conditions(h *csi.VolumeHealth) []string {
	var out []string
	for _, s := range h.GetHealthStatuses() {
		out = append(out, s.GetStatus().String()+" "+s.GetReason())
	}
	return out
}

// unwell lists as a CO does.
func (c *cluster) unwell(entries int32) map[string][]string {
	c.t.Helper()
	found := map[string][]string{}
	req := &csi.ControllerListVolumeHealthRequest{MaxEntries: entries}
	for {
		page, err := c.ControllerListVolumeHealth(c.t.Context(), req)
		if err != nil {
			c.t.Fatal(err)
		}
		if entries > 0 && len(page.GetEntries()) > int(entries) {
			c.t.Errorf("%d entries, at most %d were asked for", len(page.GetEntries()), entries)
		}
		for _, h := range page.GetEntries() {
			found[h.GetVolumeId()] = append(found[h.GetVolumeId()], conditions(h)...)
		}
		if req.StartingToken = page.GetNextToken(); req.StartingToken == "" {
			return found
		}
	}
}

func TestVolumeHealth(t *testing.T) {
	c := newCluster(t)
	want := map[string][]string{}
	for i, tc := range []struct {
		trouble ec2sim.Trouble
		want    []string
	}{
		{ec2sim.Trouble{}, nil},
		{ec2sim.Trouble{IODisabled: true, Inconsistent: true}, []string{"INACCESSIBLE IODisabled"}},
		{ec2sim.Trouble{Performance: "stalled"}, []string{"INACCESSIBLE IOStalled"}},
		{ec2sim.Trouble{Performance: "degraded"}, []string{"DEGRADED IODegraded"}},
		{ec2sim.Trouble{Performance: "severely-degraded"}, []string{"DEGRADED IOSeverelyDegraded"}},
		{ec2sim.Trouble{IODisabled: true, Performance: "stalled"}, []string{"INACCESSIBLE IODisabled", "INACCESSIBLE IOStalled"}},
		{ec2sim.Trouble{Failed: true}, []string{"DATA_LOSS VolumeFailed"}},
		{ec2sim.Trouble{Failed: true}, []string{"DATA_LOSS VolumeFailed"}},
	} {
		id := c.volume(fmt.Sprint("pvc-", i)).GetVolumeId()
		if err := c.sim.SetTrouble(id, tc.trouble); err != nil {
			t.Fatal(err)
		}
		answer, err := c.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		if err != nil || answer.GetVolumeHealth().GetVolumeId() != id {
			t.Fatalf("%+v: %v, %v", tc.trouble, answer, err)
		}
		if diff := cmp.Diff(tc.want, conditions(answer.GetVolumeHealth())); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", tc.trouble, diff)
		}
		for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
			if s.GetMessage() == "" {
				t.Errorf("%+v: %s says nothing to people", tc.trouble, s.GetReason())
			}
		}
		if len(tc.want) > 0 {
			want[id] = tc.want
		}
	}
	for _, entries := range []int32{0, 1, 2, 3, 100} {
		if diff := cmp.Diff(want, c.unwell(entries)); diff != "" {
			t.Errorf("pages of %d list those that are not well, each once (-want +got)\n%s", entries, diff)
		}
	}
	// what is over is told no longer
	for id := range want {
		if v, _ := c.sim.Volume(id); v.State == "available" {
			if err := c.sim.SetTrouble(id, ec2sim.Trouble{}); err != nil {
				t.Fatal(err)
			}
			delete(want, id)
		}
	}
	if diff := cmp.Diff(want, c.unwell(0)); diff != "" {
		t.Errorf("afterwards (-want +got)\n%s", diff)
	}
}

func TestVolumeHealthRefusals(t *testing.T) {
	c := newCluster(t)
	going := c.volume("pvc-1").GetVolumeId()
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: going}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{going, "vol-0123456789abcdef0", "my-volume"} {
		_, err := c.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		wantCode(t, "there is none", err, codes.NotFound, id)
	}
	_, err := c.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{StartingToken: "not ours"})
	wantCode(t, "the specification asks for ABORTED", err, codes.Aborted)
	c.sim.FailNext("DescribeVolumeStatus", "RequestLimitExceeded", 10)
	_, err = c.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	wantCode(t, "EC2 is throttling", err, codes.Unavailable, "list the health")
}
