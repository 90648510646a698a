package ec2_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// throttledCalls is how many calls of an action EC2 throttled.
func (r *region) throttledCalls(action string) (n int) {
	for _, c := range r.Calls() {
		if c.Action == action && c.Code == "RequestLimitExceeded" {
			n += c.Count
		}
	}
	return n
}

// More changes at once than EC2's bucket holds: all are made, at EC2's pace, and
// other actions are none the slower for it.
func TestChangesBeyondEC2sBucket(t *testing.T) {
	r := newRegion(t)
	r.SetThrottle(true)
	cfg := ec2sim.ClientConfig(r.url)
	cfg.RetryMaxAttempts = 5
	client := ec2.New(cfg, r.clock)
	begun := r.clock.Now()
	var group sync.WaitGroup
	for _, id := range ids(160) { // what does not exist is deleted at once, and takes a token all the same
		group.Go(func() {
			if err := client.DeleteVolume(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	took := r.clock.Since(begun)
	if n := r.throttledCalls("DeleteVolume"); n == 0 || n > 100 {
		t.Errorf("EC2 throttled %d calls, want some, and few beyond those 60 that were under way", n)
	}
	if took > 90*time.Second {
		t.Errorf("60 calls beyond the bucket took %v, want about the 12 s that EC2 needs for as many tokens", took)
	}
	asked := r.clock.Now()
	if _, err := client.EnsureSnapshot(t.Context(), snapshotRequest("snap-1", ids(1)[0])); !errors.Is(err, ebs.ErrNotFound) {
		t.Error(err)
	}
	if took := r.clock.Since(asked); took > 5*time.Second {
		t.Errorf("another action took %v, want it not to be paced", took)
	}
}

// One action that is out of retries leaves others theirs.
func TestRetriesOfActionsAreApart(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "DeleteVolume", Code: "InternalError", Count: -1}); err != nil {
		t.Fatal(err)
	}
	client := r.client()
	for _, id := range ids(60) { // the SDK's quota is good for 35 retries
		if err := client.DeleteVolume(t.Context(), id); !errors.Is(err, ebs.ErrMaybeAccepted) {
			t.Fatal(err)
		}
	}
	if n := len(r.callsOf("DeleteVolume")); n >= 120 {
		t.Errorf("%d calls: want the retries of the action to have come to an end", n)
	}
	r.FailNext("DeleteSnapshot", "InternalError", 1)
	if err := client.DeleteSnapshot(t.Context(), "snap-0123456789abcdef0"); err != nil {
		t.Errorf("another action: %v, want it tried again", err)
	}
}

// EC2 has no client token for snapshots: only what it certainly did not accept is sent again.
func TestEnsureSnapshotIsRepeatedOnlyWhenThrottled(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		code  string
		calls int
		want  error
	}{
		"throttled": {"EC2 did not do it", "RequestLimitExceeded", 2, nil},
		"fault":     {"EC2 may have done it", "InternalError", 1, ebs.ErrMaybeAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			vol := r.volume("pvc-1")
			r.FailNext("CreateSnapshot", tc.code, 1)
			_, err := r.client().EnsureSnapshot(t.Context(), snapshotRequest("snap-1", vol.ID))
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.why, err, tc.want)
			}
			if n := len(r.callsOf("CreateSnapshot")); n != tc.calls {
				t.Errorf("%s: %d calls, want %d", tc.why, n, tc.calls)
			}
		})
	}
}

func TestEnsureGroupIsRepeatedWhenThrottled(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	r.FailNext("CreateSnapshots", "RequestLimitExceeded", 1)
	r.wantGroup(r.group("group-1", a, b), a, b)
}

// The SDK's own settings say how often it tries, in each of its modes.
func TestSettingsOfTheSDKCount(t *testing.T) {
	for name, tc := range map[string]struct {
		attempts, mode string
		calls          int
	}{
		"none":     {"", "", 3},
		"attempts": {"2", "", 2},
		"standard": {"4", "standard", 4},
		"adaptive": {"2", "adaptive", 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			t.Setenv("AWS_REGION", "us-east-1")
			t.Setenv("AWS_ACCESS_KEY_ID", ec2sim.AdminKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", "not-checked")
			t.Setenv("AWS_CONFIG_FILE", "/dev/null")
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
			t.Setenv(ec2.EndpointVariable, r.url)
			t.Setenv("AWS_MAX_ATTEMPTS", tc.attempts)
			t.Setenv("AWS_RETRY_MODE", tc.mode)
			cfg, err := ec2.LoadConfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Inject(ec2sim.Fault{Action: "DeleteVolume", Code: "InternalError", Count: -1}); err != nil {
				t.Fatal(err)
			}
			if err := ec2.New(cfg, r.clock).DeleteVolume(t.Context(), ids(1)[0]); err == nil {
				t.Error("no error although EC2 has failed each time")
			}
			if n := len(r.callsOf("DeleteVolume")); n != tc.calls {
				t.Errorf("%d tries, want %d", n, tc.calls)
			}
		})
	}
}
