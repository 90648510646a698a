package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// TestRun: the whole measurement, of a few volumes at an EC2 that takes no
// time. What it measures is for a reader to judge; that it measures is held here.
func TestRun(t *testing.T) {
	o := options{
		ec2Listen: "127.0.0.1:0", workers: 4, volumes: 3, throttled: 3, instances: 3, seed: 1, limit: time.Minute, log: t.TempDir() + "/log", node: true,
		delays: ec2sim.Delays{Create: ec2sim.Duration(50 * time.Millisecond), Attach: ec2sim.Duration(50 * time.Millisecond), Detach: ec2sim.Duration(50 * time.Millisecond), Modify: ec2sim.Duration(50 * time.Millisecond)},
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for why, want := range map[string]string{
		"both runs create all volumes with one change each, and leak none": `(?s)created +3 .* 1\.00 .* CreateVolume 3.*created +3 .* 1\.00 .* CreateVolume 3`,
		"volumes are attached":    `attached +3 .*AttachVolume 3`,
		"volumes are grown":       `modified +3 .*ModifyVolume 3`,
		"volumes are copied":      `snapshotted +3 .*CreateSnapshot 3`,
		"volumes are detached":    `detached +3 .*DetachVolume 3`,
		"snapshots are deleted":   `unsnapshotted +3 .*DeleteSnapshot 3`,
		"volumes are deleted":     `deleted +3 .*DeleteVolume 3`,
		"what each side works":    `processor time: simulator and clients [0-9.]+ s, driver [0-9.]+ s`,
		"each is compared":        `driver adds at the median: modified +[-0-9.]+ %`,
		"nothing fails":           `client errors +0 +0 +met`,
		"nothing is left":         `leaked volumes, snapshots, attachments +0 +0 +met`,
		"memory of the driver":    `controller's peak memory +[1-9]`,
		"memory of the node":      `node process's memory at rest\*? +[1-9]`,
		"the buckets' share told": `(?s)beyond it s\ncreated +[0-9]`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%s: nothing matches %s", why, want)
		}
	}
	if bytes.Contains(out.Bytes(), []byte("does not model")) || t.Failed() {
		t.Errorf("printed:\n%s", &out)
	}
}

// TestCrewRepeats: what fails, and what is not settled yet, is asked for again,
// and counted.
func TestCrewRepeats(t *testing.T) {
	var mu sync.Mutex
	asked := map[int]int{}
	out := work(t.Context(), 2, 3, func(_ context.Context, i int) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[i]++
		switch {
		case i == 0 && asked[0] == 1:
			return true, status.Error(codes.Aborted, "come again")
		case i == 1 && asked[1] == 1:
			return false, nil
		}
		return true, nil
	})
	if diff := cmp.Diff(map[int]int{0: 2, 1: 2, 2: 1}, asked); diff != "" {
		t.Errorf("how often each volume was asked for (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[codes.Code]int{codes.Aborted: 1}, out.errors); diff != "" {
		t.Errorf("errors by code (-want +got)\n%s", diff)
	}
	if out.settled != 3 || len(out.answered) != 3 || out.failures() != 1 {
		t.Errorf("settled %d, answered %d, failures %d; want 3, 3, 1", out.settled, len(out.answered), out.failures())
	}
	if slowest := max(out.answered[0], out.answered[1]); slowest < backoffFirst {
		t.Errorf("the slowest answer took %v: a volume's time begins with its first request, so the pause of %v counts", slowest, backoffFirst)
	}
}

// TestCrewGivesUp: a phase that does not settle ends with its context and says how far it came.
func TestCrewGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	out := work(ctx, 2, 2, func(_ context.Context, i int) (bool, error) {
		if i == 0 {
			return true, nil
		}
		return false, errors.New("never")
	})
	if out.settled != 1 || out.failures() != 1 {
		t.Errorf("settled %d, failures %d; want 1 and 1", out.settled, out.failures())
	}
}

func TestBackoff(t *testing.T) {
	for before, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 9: 5 * time.Minute, 100: 5 * time.Minute} {
		if got := backoff(before); got != want {
			t.Errorf("backoff after %d tries is %v, want %v", before, got, want)
		}
	}
}

// TestTraffic: calls are sorted into what the figures are made of.
func TestTraffic(t *testing.T) {
	r, err := newRegion(options{ec2Listen: "127.0.0.1:0", instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	client := ec2.NewFromConfig(ec2sim.ClientConfig(r.url), func(o *ec2.Options) { o.Retryer = aws.NopRetryer{} })
	r.FailNext("DescribeVolumes", "RequestLimitExceeded", 1)
	r.FailNext("CreateVolume", "InternalError", 1)
	for range 2 {
		_, _ = client.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{}) // the first of each fails
		_, _ = client.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: &zones[0], Size: aws.Int32(1)})
	}
	want := traffic{
		calls:    []actionCount{{"CreateVolume", 2}, {"DescribeVolumes", 2}},
		mutating: 1, describes: 2, throttled: 1, refused: 1, accepted: map[string]int{"CreateVolume": 1},
	}
	if diff := cmp.Diff(want, r.traffic(), cmp.AllowUnexported(traffic{}, actionCount{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r.reset()
	if n := r.traffic().total(); n != 0 {
		t.Errorf("%d calls after a new beginning", n)
	}
}

// TestLateness: each volume is compared with what EC2 drew for that very volume.
func TestLateness(t *testing.T) {
	const second = time.Second
	r := &region{drawn: map[string]map[string]time.Duration{}}
	f := newFleet(nil, r, "x", 5)
	copy(f.volumes, []string{"vol-0", "vol-1", "vol-2", "vol-3", "vol-4"})
	// The volume that takes longest is late by least: the difference between the
	// two medians would be 0.
	for i, own := range []time.Duration{second, 2 * second, 4 * second} {
		r.note("AttachVolume", f.volumes[i], own)
	}
	r.note("AttachVolume", "vol-0", 5*second) // a driver that calls twice is not forgiven
	r.note("AttachVolume", "vol-3", second)   // not answered
	r.note("AttachVolume", "vol-9", second)   // not ours
	r.note("DetachVolume", "vol-4", second)   // another action
	answered := map[int]time.Duration{0: 2 * second, 1: 5 * second, 2: 4 * second, 4: second}
	for why, tc := range map[string]struct {
		phase phase
		adds  []time.Duration
		share float64
	}{
		"later than EC2":     {phase{waitsFor: "AttachVolume"}, []time.Duration{0, second, 3 * second}, 50},
		"beyond a gathering": {phase{waitsFor: "AttachVolume", gathers: second}, []time.Duration{-second, 0, 2 * second}, 0},
	} {
		got := f.lateness(tc.phase, answered)
		if is := got.share(); is != tc.share {
			t.Errorf("%s: %v %% of EC2's median, want %v", why, is, tc.share)
		}
		want := lateness{own: []time.Duration{second, 2 * second, 4 * second}, adds: tc.adds, absent: 1}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(lateness{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", why, diff)
		}
	}
	if got := f.lateness(phase{name: "deleted"}, answered); got.own != nil || got.absent != 0 {
		t.Errorf("a request that does not wait is compared with something: %+v", got)
	}
}

// TestAddedBy: a phase that no volume got through has no figure, rather than a good one.
func TestAddedBy(t *testing.T) {
	if got := addedBy(result{phase: phase{name: "created"}}); got.skipped == "" {
		t.Errorf("%+v", got)
	}
	late := result{phase: phase{name: "modified", gathers: gathering}, lateness: lateness{own: []time.Duration{4}, adds: []time.Duration{1}}}
	if got := addedBy(late); got.is != 25 || got.skipped != "" || !strings.Contains(got.note, "2s") {
		t.Errorf("%+v, want 25 %% and beyond what", got)
	}
}

// TestBucketTime: the least time that EC2's buckets allow is that of the action
// with the most calls beyond its bucket.
func TestBucketTime(t *testing.T) {
	r, err := newRegion(options{ec2Listen: "127.0.0.1:0", instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	if got := r.bucketTime(traffic{accepted: map[string]int{"CreateVolume": 200, "AttachVolume": 60}}); got != 20*time.Second {
		t.Errorf("200 creations need %v, want (200 - 100) / 5 a second = 20 s; 60 attachments need (60 - 50) / 5 = 2 s", got)
	}
}

// TestLeaks: what is in EC2 and was not asked for is counted.
func TestLeaks(t *testing.T) {
	f := newFleet(nil, &region{instances: []string{"i-1", "i-2"}}, "x", 2)
	f.volumes[0], f.volumes[1], f.snapshots[0] = "vol-1", "vol-2", "snap-1"
	at := func(id, instance string) ec2sim.Volume {
		return ec2sim.Volume{ID: id, State: "in-use", Attachments: []ec2sim.Attachment{{InstanceID: instance}}}
	}
	state := ec2sim.State{
		Volumes:   []ec2sim.Volume{at("vol-1", "i-1"), at("vol-2", "i-1"), {ID: "vol-3", State: "deleting"}},
		Snapshots: []ec2sim.Snapshot{{ID: "snap-1"}, {ID: "snap-2"}},
	}
	for why, tc := range map[string]struct{ got, want int }{
		"a third volume":                          {f.extraVolumes(state), 1},
		"a second snapshot":                       {f.extraSnapshots(state), 1},
		"a volume at another's, and a third one":  {f.extraAttachments(state), 2},
		"attachments after all were detached":     {f.attachments(state), 2},
		"volumes left, but one is on its way out": {f.remaining(state), 2},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d leaked, want %d", why, tc.got, tc.want)
		}
	}
}

func TestTicksOf(t *testing.T) {
	if _, err := ticksOf(os.Getpid()); err != nil {
		t.Error(err)
	}
	if _, err := ticksOf(1 << 30); err == nil {
		t.Error("a process that cannot be has used processor time")
	}
}

func TestQuantile(t *testing.T) {
	sample := []time.Duration{4, 1, 3, 2}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(sample, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("the median of nothing is not 0")
	}
}
