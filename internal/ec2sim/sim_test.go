package ec2sim_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

const (
	instanceA = "i-0000000000000a001"
	instanceB = "i-0000000000000b001"
	zoneA     = "us-east-1a"
	zoneB     = "us-east-1b"
)

// start is the time at which simulated regions of tests begin.
var start = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// region is a simulated region with a client, for one test.
type region struct {
	*ec2sim.Sim
	*ec2.Client
	url   string
	clock *clocktesting.FakeClock
	t     *testing.T
}

// newRegion starts a region with an instance in zone a and one in zone b, with
// a clock that stands still. At the end of the test nothing may have been
// asked for that is not modelled, unless the test cleared it.
func newRegion(t *testing.T, change ...func(*ec2sim.Config)) *region {
	t.Helper()
	clk := clocktesting.NewFakeClock(start)
	cfg := ec2sim.Config{Clock: clk}
	for _, c := range change {
		c(&cfg)
	}
	sim, err := ec2sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sim.FailOnUnmodelled(t)
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	for id, zone := range map[string]string{instanceA: zoneA, instanceB: zoneB} {
		if err := sim.AddInstance(ec2sim.Instance{ID: id, Zone: zone}); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	return &region{sim, client(srv.URL, ec2sim.AdminKey), srv.URL, clk, t}
}

// client is an SDK client that does not retry.
func client(url, key string) *ec2.Client {
	return ec2.NewFromConfig(ec2sim.ClientConfigAs(url, key), func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
}

// pass lets time pass.
func (r *region) pass(d time.Duration) { r.clock.Step(d) }

// newVolume makes a gp3 volume of 10 GiB in zone a and waits for it.
func (r *region) newVolume(change ...func(*ec2.CreateVolumeInput)) string {
	r.t.Helper()
	in := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3}
	for _, c := range change {
		c(in)
	}
	out, err := r.CreateVolume(r.t.Context(), in)
	if err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Minute)
	return *out.VolumeId
}

func (r *region) attach(volumeID, instanceID, device string) error {
	_, err := r.AttachVolume(r.t.Context(), &ec2.AttachVolumeInput{
		VolumeId: aws.String(volumeID), InstanceId: aws.String(instanceID), Device: aws.String(device)})
	return err
}

func (r *region) detach(volumeID, instanceID string) error {
	_, err := r.DetachVolume(r.t.Context(), &ec2.DetachVolumeInput{VolumeId: aws.String(volumeID), InstanceId: aws.String(instanceID)})
	return err
}

// states are the states of a volume and of its attachments as EC2 tells them.
func (r *region) states(volumeID string) []string {
	r.t.Helper()
	out, err := r.DescribeVolumes(r.t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volumeID}})
	if err != nil {
		return []string{code(err)}
	}
	states := []string{string(out.Volumes[0].State)}
	for _, a := range out.Volumes[0].Attachments {
		states = append(states, string(a.State))
	}
	return states
}

// code is the error code of an API error, "" for nil.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func wantCode(t *testing.T, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("error code %q (%v), want %q", got, err, want)
	}
}

func TestVolumeLife(t *testing.T) {
	r := newRegion(t)
	ctx := context.Background()
	out, err := r.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3})
	if err != nil {
		t.Fatal(err)
	}
	id := *out.VolumeId
	expect := func(why string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, r.states(id)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", why, diff)
		}
	}
	expect("creation takes time", "creating")
	wantCode(t, r.attach(id, instanceA, "/dev/xvdaa"), "IncorrectState")
	r.pass(1500 * time.Millisecond)
	expect("created", "available")

	wantCode(t, r.attach(id, instanceA, "/dev/xvdaa"), "")
	expect("a volume is in use from the call on", "in-use", "attaching")
	r.pass(1200 * time.Millisecond)
	expect("attached", "in-use", "attached")
	_, err = r.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	wantCode(t, err, "VolumeInUse")

	wantCode(t, r.detach(id, instanceA), "")
	expect("detaching takes time", "in-use", "detaching")
	wantCode(t, r.detach(id, instanceA), "")
	r.pass(1200 * time.Millisecond)
	expect("detached", "available")
	wantCode(t, r.detach(id, instanceA), "IncorrectState")

	_, err = r.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	wantCode(t, err, "")
	expect("deletion takes time", "deleting")
	r.pass(time.Minute)
	expect("gone", "InvalidVolume.NotFound")
}
