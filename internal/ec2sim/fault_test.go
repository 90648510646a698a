package ec2sim_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func serve(t *testing.T, sim *ec2sim.Sim) string {
	t.Helper()
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (r *region) createOnce() error {
	_, err := r.CreateVolume(r.t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	return err
}

func TestFailNext(t *testing.T) {
	r := newRegion(t)
	r.FailNext("CreateVolume", "InsufficientVolumeCapacity", 2)
	wantCode(t, r.attach(absentVolume, instanceA, "/dev/xvdaa"), "InvalidVolume.NotFound") // other actions are not hit
	wantCode(t, r.createOnce(), "InsufficientVolumeCapacity")
	wantCode(t, r.createOnce(), "InsufficientVolumeCapacity")
	wantCode(t, r.createOnce(), "")
	if n := len(r.Volumes()); n != 1 {
		t.Errorf("%d volumes, want the one of the call without fault", n)
	}
}

func TestFaultsHitInOrderAndByPrincipal(t *testing.T) {
	r := newRegion(t)
	other := client(r.url, "AKIAOTHER")
	for _, f := range []ec2sim.Fault{
		{Action: "DescribeVolumes", Principal: "AKIAOTHER", Code: "First"},
		{Action: "*", Code: "Second", Message: "said so", HTTPStatus: 409, Count: -1},
	} {
		if err := r.Inject(f); err != nil {
			t.Fatal(err)
		}
	}
	_, err := other.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{})
	wantCode(t, err, "First")
	for range 3 {
		wantCode(t, r.createOnce(), "Second")
	}
	if n := len(r.Faults()); n != 1 {
		t.Errorf("%d faults left, want the one without end", n)
	}
	r.ClearFaults()
	wantCode(t, r.createOnce(), "")
}

// TestFaultEvery: only each so-many-th call is hit, of the calls that the fault
// is for, and as many as its count says.
func TestFaultEvery(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", Code: "Third", Every: 3, Count: 2}); err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"", "", "Third", "", "", "Third", "", "", ""} {
		wantCode(t, r.attach(absentVolume, instanceA, "/dev/xvdaa"), "InvalidVolume.NotFound") // other actions do not count
		t.Logf("call %d", n+1)
		wantCode(t, r.createOnce(), want)
	}
	if left := r.Faults(); len(left) != 0 {
		t.Errorf("%+v is left after its two hits", left)
	}
}

func TestFaultsThatDoNothingAreRefused(t *testing.T) {
	r := newRegion(t)
	for why, f := range map[string]ec2sim.Fault{
		"the action exists":          {Action: "CreateVolumes", Code: "X"},
		"it does something":          {Action: "CreateVolume"},
		"every is a number of calls": {Action: "CreateVolume", Code: "X", Every: -1},
		"an answer is lost one way":  {Action: "CreateVolume", LostAnswer: "sometimes"},
	} {
		if err := r.Inject(f); err == nil {
			t.Errorf("%s, yet %+v was taken", why, f)
		}
	}
}

// TestHeldAnswer: the call has acted and counts, and its caller waits until it
// gives up.
func TestHeldAnswer(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostHeld}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
		ended <- err
	}()
	for tick := time.Tick(time.Millisecond); len(r.Calls()) == 0; {
		<-tick
	}
	if n := len(r.Volumes()); n != 1 {
		t.Errorf("%d volumes while the answer is held, want 1", n)
	}
	select {
	case err := <-ended:
		t.Fatalf("the call ended with %v before its caller gave up", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v, want its caller's end", err)
	}
	if n := len(r.Calls()); n != 1 {
		t.Errorf("%d kinds of calls, want the one that was held", n)
	}
}

// TestLostAnswer: the connection closes without a byte, before or after the
// call has acted.
func TestLostAnswer(t *testing.T) {
	for when, made := range map[string]int{ec2sim.LostBefore: 0, ec2sim.LostAfter: 1} {
		r := newRegion(t)
		if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: when}); err != nil {
			t.Fatal(err)
		}
		if err := r.createOnce(); err == nil {
			t.Errorf("%s: the answer arrived", when)
		}
		if n := len(r.Volumes()); n != made {
			t.Errorf("%s: %d volumes, want %d", when, n, made)
		}
	}
}

// TestLostAnswerAndToken: the SDK's own repeat carries the same token, so one
// volume is made and found.
func TestLostAnswerAndToken(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostAfter}); err != nil {
		t.Fatal(err)
	}
	patient := ec2.NewFromConfig(ec2sim.ClientConfig(r.url))
	out, err := patient.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Volumes(); len(v) != 1 || v[0].ID != *out.VolumeId {
		t.Errorf("%v, want the one volume %s", v, *out.VolumeId)
	}
}

// TestLatency: the call waits by the simulator's clock, and no longer than its
// caller does.
func TestLatency(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LatencyMs: 60_000, Count: 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who gave up got %v", err)
	}
	for r.clock.HasWaiters() { // until the simulator has noticed that its caller is gone
		<-time.After(time.Millisecond)
	}
	done := make(chan error, 1)
	go func() { done <- r.createOnce() }()
	for waited := false; ; {
		select {
		case err := <-done:
			if err != nil || !waited {
				t.Errorf("waited %t: %v", waited, err)
			}
			return
		case <-time.After(time.Millisecond):
			if r.clock.HasWaiters() {
				waited = true
				r.pass(time.Minute)
			}
		}
	}
}

func TestThrottle(t *testing.T) {
	r := newRegion(t, func(c *ec2sim.Config) { c.Throttle = true })
	burst := func(form string) int {
		t.Helper()
		for n := 0; ; n++ {
			status, code := raw(t, r.url, form)
			if code == "RequestLimitExceeded" && status == 503 {
				return n
			}
			if n > 200 {
				t.Fatalf("%s was never throttled", form)
			}
		}
	}
	rows := []struct {
		why, form     string
		size, refills int
	}{
		{"making things", form("CreateVolume", "AvailabilityZone="+zoneA, "Size=1", "DryRun=true"), 100, 5},
		{"other changes", form("AttachVolume", "VolumeId="+absentVolume, "InstanceId="+instanceA, "Device=/dev/sdb"), 50, 5},
		{"tags", form("CreateTags", "ResourceId.1="+absentVolume, "Tag.1.Key=a", "Tag.1.Value=b"), 100, 10},
		{"looking at some", form("DescribeVolumes", "MaxResults=5"), 100, 20},
		{"looking at all", form("DescribeVolumes"), 50, 10},
		{"looking at small things", form("DescribeAvailabilityZones"), 100, 20},
	}
	for _, row := range rows {
		if n := burst(row.form); n != row.size {
			t.Errorf("%s: %d calls at once, want %d", row.why, n, row.size)
		}
	}
	r.pass(time.Second)
	for _, row := range rows {
		if n := burst(row.form); n != row.refills {
			t.Errorf("%s: %d calls after a second, want %d", row.why, n, row.refills)
		}
	}
	r.SetThrottle(false)
	if _, code := raw(t, r.url, form("DescribeVolumes")); code != "" {
		t.Errorf("switched off: %s", code)
	}
}
