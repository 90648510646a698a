package ec2sim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func (r *region) lagging(lag map[string]ec2sim.Duration) {
	r.t.Helper()
	if err := r.SetReadLag(lag); err != nil {
		r.t.Fatal(err)
	}
}

// mapped tells whether DescribeInstances shows the volume at instance a.
func (r *region) mapped(volumeID string) bool {
	r.t.Helper()
	out, err := r.DescribeInstances(r.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{instanceA}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range out.Reservations[0].Instances[0].BlockDeviceMappings {
		if *m.Ebs.VolumeId == volumeID {
			return true
		}
	}
	return false
}

// TestStaleReads: a read that lags sees what was there that long ago, changes
// and the other reads see the present.
func TestStaleReads(t *testing.T) {
	const lag = 5 * time.Second
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	old := r.newVolume()
	r.lagging(map[string]ec2sim.Duration{"DescribeVolumes": ec2sim.Duration(lag)})
	wantSame(t, []string{"available"}, r.states(old))

	out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	if err != nil {
		t.Fatal(err)
	}
	fresh := *out.VolumeId
	wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(fresh))
	wantCode(t, r.attach(fresh, instanceA, "/dev/xvdaa"), "")
	if !r.mapped(fresh) {
		t.Error("DescribeInstances, which does not lag, does not show the volume")
	}
	r.pass(lag - time.Millisecond)
	wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(fresh))
	r.pass(time.Millisecond)
	wantSame(t, []string{"in-use", "attached"}, r.states(fresh))

	wantCode(t, r.detach(fresh, instanceA), "")
	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &fresh})
	wantCode(t, err, "")
	r.pass(lag - time.Millisecond)
	wantSame(t, []string{"in-use", "attached"}, r.states(fresh))
	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &fresh})
	wantCode(t, err, "InvalidVolume.NotFound")
	r.pass(time.Millisecond)
	wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(fresh))
}

// TestStaleReadsOfAll: "*" is every describing action that is not named, and
// without a lag everything is seen at once.
func TestStaleReadsOfAll(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	r.lagging(map[string]ec2sim.Duration{"*": ec2sim.Duration(time.Minute), "DescribeVolumes": 0})
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	wantSame(t, []string{"in-use", "attached"}, r.states(vol))
	r.pass(30 * time.Second)
	if r.mapped(vol) {
		t.Error("DescribeInstances shows what was done 30 s ago, want a minute")
	}
	if v, ok := r.Volume(vol); !ok || len(v.Attachments) != 1 {
		t.Errorf("the Go methods lag: %v %+v", ok, v)
	}
	r.lagging(nil)
	if !r.mapped(vol) {
		t.Error("DescribeInstances lags still")
	}
	r.lagging(map[string]ec2sim.Duration{"*": ec2sim.Duration(time.Minute)})
	if !r.mapped(vol) {
		t.Error("what was there before the lag began is not seen")
	}
}

func TestLagByControl(t *testing.T) {
	r := newRegion(t)
	r.do(http.MethodPut, "lag", `{"DescribeSnapshots": "2s"}`)
	wantSame(t, map[string]ec2sim.Duration{"DescribeSnapshots": ec2sim.Duration(2 * time.Second)}, get[map[string]ec2sim.Duration](r, "lag"))
	r.do(http.MethodPut, "lag", `{}`)
	wantSame(t, map[string]ec2sim.Duration{}, r.ReadLag())
	for body, says := range map[string]string{
		`{"CreateVolume": "2s"}`:     "CreateVolume",
		`{"DescribeNothing": "2s"}`:  "DescribeNothing",
		`{"DescribeVolumes": "-2s"}`: "not negative",
	} {
		if status, answer := r.sim(http.MethodPut, "lag", body); status != http.StatusBadRequest || !strings.Contains(answer, says) {
			t.Errorf("%s: %d %s, want 400 and %q", body, status, answer, says)
		}
	}
	if err := r.SetReadLag(map[string]ec2sim.Duration{"*": -1}); err == nil {
		t.Error("a lag below 0 was taken")
	}
}
