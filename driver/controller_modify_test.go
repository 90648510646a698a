package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func (c *cluster) modify(id string, params map[string]string) error {
	_, err := c.ControllerModifyVolume(c.t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: params})
	return err
}

// A class's life over restarts, each step done twice: one ModifyVolume for each
// change of the shape, none for a repeat, none for tags.
func TestModifyOverRestarts(t *testing.T) {
	c := newCluster(t)
	c.sim.SetDelays(ec2sim.Delays{})
	vol := c.volume("pvc-1", func(r *csi.CreateVolumeRequest) {
		r.MutableParameters = map[string]string{"iops": "4000", "tagSpecification_1": "tier=gold"}
	}).GetVolumeId()
	if v, _ := c.sim.Volume(vol); v.IOPS != 4000 || v.Tags["tier"] != "gold" {
		t.Errorf("made with its class: %+v", v)
	}
	for i, step := range []struct {
		params map[string]string
		calls  int
	}{
		{map[string]string{"iops": "5000", "throughput": "300"}, 1},
		{map[string]string{"tagSpecification_1": "tier=silver", "tagSpecification_2": "claim={{ .PVCName }}", "csi.storage.k8s.io/pvc/name": "data-0"}, 1},
		{map[string]string{"type": "io2", "iopsPerGB": "100", "allowAutoIOPSIncreaseOnModify": "true", "tagDeletion_1": "tier"}, 2},
	} {
		for range 2 {
			if err := c.modify(vol, step.params); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			c.restart()
		}
		if n := c.calls("ModifyVolume"); n != step.calls {
			t.Errorf("step %d: %d ModifyVolume calls so far, want %d", i, n, step.calls)
		}
	}
	v, _ := c.sim.Volume(vol)
	if _, tier := v.Tags["tier"]; v.Type != "io2" || v.IOPS != 1000 || v.Tags["claim"] != "data-0" || tier {
		t.Errorf("EC2 shows %+v", v)
	}
	_, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}})
	if v, _ := c.sim.Volume(vol); err != nil || v.SizeGiB != 20 || v.IOPS != 2000 {
		t.Errorf("grown: %d GiB, %d IOPS, %v; want IOPS by size", v.SizeGiB, v.IOPS, err)
	}
}

// DRIVER rule 11: nothing is changed where anything is infeasible, whatever is
// feasible beside it; and csi-resizer is told so only where it is true.
func TestInfeasibleClasses(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	for name, tc := range map[string]struct {
		params map[string]string
		texts  []string
	}{
		"unknown key":            {map[string]string{"iops": "4000", "size": "20"}, []string{"size"}},
		"beyond the type":        {map[string]string{"iops": "90000", "tagSpecification_1": "a=b"}, []string{"90000", "80000"}},
		"beyond the size":        {map[string]string{"iops": "6000", "tagSpecification_1": "a=b"}, []string{"6000", "10 GiB", "5000"}},
		"throughput for iops":    {map[string]string{"throughput": "1000", "tagSpecification_1": "a=b"}, []string{"1000", "3000 IOPS"}},
		"type for the size":      {map[string]string{"type": "st1", "tagSpecification_1": "a=b"}, []string{"st1", "125"}},
		"to standard":            {map[string]string{"type": "standard"}, []string{"standard"}},
		"reserved tag":           {map[string]string{"iops": "4000", "tagSpecification_1": "CSIVolumeName=x"}, []string{"reserved"}},
		"deletion of the driver": {map[string]string{"iops": "4000", "tagDeletion_1": "ebs.csi.aws.com/cluster"}, []string{"reserved"}},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, name, c.modify(vol, tc.params), codes.InvalidArgument, tc.texts...) })
	}
	if n := c.calls("ModifyVolume") + c.calls("CreateTags") + c.calls("DeleteTags"); n != 0 {
		t.Errorf("%d calls that change something, want none", n)
	}
	wantCode(t, "no such volume", c.modify("vol-0123456789abcdef0", map[string]string{"iops": "4000"}), codes.NotFound)
	for code, want := range map[string]codes.Code{
		"UnsupportedOperation": codes.InvalidArgument, "RequestLimitExceeded": codes.Unavailable, "InternalError": codes.Aborted,
		"VolumeModificationRateExceeded": codes.ResourceExhausted, "InvalidVolume.NotFound": codes.Aborted, "IncorrectModificationState": codes.Aborted,
	} {
		c.sim.FailNext("ModifyVolume", code, -1)
		wantCode(t, code, c.modify(vol, map[string]string{"iops": "4000", "tagSpecification_1": "a=b"}), want)
		c.sim.ClearFaults()
		c.restart()
	}
	if v, _ := c.sim.Volume(vol); v.Tags["a"] != "" || v.IOPS != 3000 {
		t.Errorf("EC2 shows %+v after refusals", v)
	}
}

// Each answer of EC2 is lost, then the process dies, at each point of a change
// of shape and tags: the repeat does what is left, once.
func TestModifyKilledAtEachPoint(t *testing.T) {
	for _, action := range []string{"ModifyVolume", "DeleteTags", "CreateTags"} {
		t.Run(action, func(t *testing.T) {
			c := newCluster(t)
			vol := c.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.Parameters["tagSpecification_1"] = "old=x" }).GetVolumeId()
			if err := c.sim.Inject(ec2sim.Fault{Action: action, LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
				t.Fatal(err)
			}
			class := map[string]string{"iops": "4000", "tagSpecification_1": "team=db", "tagDeletion_1": "old"}
			if err := c.modify(vol, class); err != nil {
				wantCode(t, "the outcome is not known", err, codes.Aborted)
			}
			c.sim.ClearFaults()
			c.restart()
			if err := c.modify(vol, class); err != nil {
				t.Fatal(err)
			}
			v, _ := c.sim.Volume(vol)
			if _, old := v.Tags["old"]; v.IOPS != 4000 || v.Tags["team"] != "db" || old || len(v.Modifications) != 1 {
				t.Errorf("EC2 shows %+v, want all of it by one change", v)
			}
		})
	}
}

// A request for the volume's size and one for its attributes do not shut each
// other out, and one that gives up leaves the other alone.
func TestExpandAndModifyAtOnce(t *testing.T) {
	c := newCluster(t)
	vol := c.volume("pvc-1").GetVolumeId()
	if err := c.sim.Inject(ec2sim.Fault{Action: "ModifyVolume", LatencyMs: 3_600_000}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	modified := make(chan error, 1)
	go func() {
		_, err := c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: vol, MutableParameters: map[string]string{"iops": "4000"}})
		modified <- err
	}()
	for len(c.sim.Faults()) > 0 { // until the call has arrived
		<-time.After(time.Millisecond)
	}
	wantCode(t, "the same volume, the same kind of request", c.modify(vol, map[string]string{"iops": "4000"}), codes.Aborted, "ControllerModifyVolume")
	_, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}})
	wantCode(t, "to something else while a change is sent", err, codes.Aborted, "20 GiB", "4000 IOPS")
	cancel()
	wantCode(t, "the one that gives up", <-modified, codes.Canceled)
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		_, err = c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: vol, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}})
		if err == nil || time.Now().After(deadline) {
			break
		}
	}
	if v, _ := c.sim.Volume(vol); err != nil || v.SizeGiB != 20 {
		t.Errorf("afterwards: %d GiB, %v", v.SizeGiB, err)
	}
}
