package ec2_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// restored makes a volume from a snapshot whose content takes a time to arrive.
func (r *region) restored(name string, arrives time.Duration, change ...func(*ebs.VolumeRequest)) ebs.Volume {
	r.t.Helper()
	source := r.volume(name + "-source")
	snap, err := r.client().EnsureSnapshot(r.t.Context(), ebs.SnapshotRequest{Name: name, Volume: source.ID, Tags: map[string]string{ebs.TagSnapshotName: name}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Hour)
	r.SetDelays(ec2sim.Delays{Initialize: ec2sim.Duration(arrives)})
	change = append(change, func(w *ebs.VolumeRequest) { w.Snapshot = snap.ID })
	vol, err := r.client().EnsureVolume(r.t.Context(), request(name, change...))
	if err != nil {
		r.t.Fatal(err)
	}
	return vol
}

func TestInitializationRate(t *testing.T) {
	r := newRegion(t)
	rate := func(w *ebs.VolumeRequest) { w.InitializationMiBps = 200 }
	r.restored("restored", time.Minute, rate)
	// The same class serves empty volumes: EC2 refuses a rate for them.
	if _, err := r.client().EnsureVolume(t.Context(), request("empty", rate)); err != nil {
		t.Error(err)
	}
	var rates []string
	for _, c := range r.callsOf("CreateVolume") {
		if c.form.Get("SnapshotId") != "" {
			rates = append(rates, c.form.Get("VolumeInitializationRate"))
		}
	}
	if len(rates) != 1 || rates[0] != "200" {
		t.Errorf("EC2 was asked for the rates %v, want 200", rates)
	}
}

func TestWaitInitialized(t *testing.T) {
	r := newRegion(t)
	vol := r.restored("short", 30*time.Second)
	start := r.clock.Now()
	if err := r.client().WaitInitialized(t.Context(), vol.ID); err != nil {
		t.Error(err)
	}
	if waited := r.clock.Since(start); waited < 25*time.Second {
		t.Errorf("EC2 says that it is initialized after 30 s, the wait took %v", waited)
	}
	before := len(r.callsOf("DescribeVolumeStatus"))
	if err := r.client().WaitInitialized(t.Context(), vol.ID); err != nil {
		t.Error(err)
	}
	if n := len(r.callsOf("DescribeVolumeStatus")) - before; n != 1 {
		t.Errorf("%d looks at a volume that is initialized, want 1", n)
	}
	long := r.restored("long", time.Hour, func(w *ebs.VolumeRequest) { w.InitializationMiBps = 100 })
	start = r.clock.Now()
	err := r.client().WaitInitialized(t.Context(), long.ID)
	if !errors.Is(err, ebs.ErrNotReady) {
		t.Errorf("a long initialization: %v, want that it is not ready", err)
	}
	for _, text := range []string{string(long.ID), "initializing", "% of the content", "to go"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: want that it tells %q", err, text)
		}
	}
	if waited := r.clock.Since(start); waited > time.Minute {
		t.Errorf("it waited %v: sidecars give up after a minute", waited)
	}
}

// What EC2 does not tell yet is waited for; an empty volume has nothing to wait for.
func TestWaitInitializedWithoutAState(t *testing.T) {
	r := newRegion(t)
	vol, empty := r.restored("restored", 0), r.volume("empty")
	silent := first(2)
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumeStatus" && (c.form.Get("VolumeId.1") == string(empty.ID) || silent()) {
			return &reply{200, `<DescribeVolumeStatusResponse><volumeStatusSet><item><volumeId>` + c.form.Get("VolumeId.1") +
				`</volumeId><volumeStatus><status>insufficient-data</status><details/></volumeStatus></item></volumeStatusSet></DescribeVolumeStatusResponse>`}
		}
		return nil
	})
	start := r.clock.Now()
	if err := r.client().WaitInitialized(t.Context(), vol.ID); err != nil || r.clock.Since(start) < 5*time.Second {
		t.Errorf("%v after %v, want the third look's answer", err, r.clock.Since(start))
	}
	if err := r.client().WaitInitialized(t.Context(), empty.ID); err != nil {
		t.Error(err)
	}
}

// DRIVER rule 6, for the one look-up that goes by ids; and rule 17.
func TestWaitInitializedTogether(t *testing.T) {
	r := newRegion(t)
	one, two := r.volume("one").ID, r.volume("two").ID
	client, all := r.client(), []ebs.VolumeID{one, "vol-0123456789abcdef0", two, "vol-*"}
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, id := range all {
		group.Go(func() { errs[i] = client.WaitInitialized(t.Context(), id) })
	}
	group.Wait()
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("beside volumes that do not exist: %v, %v", errs[0], errs[2])
	}
	for _, i := range []int{1, 3} {
		if !errors.Is(errs[i], ebs.ErrNotFound) {
			t.Errorf("%s: %v, want that it is not found", all[i], errs[i])
		}
	}
	vol := r.restored("long", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumeStatus" {
			cancel()
		}
		return nil
	})
	if err := client.WaitInitialized(ctx, vol.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the wait ends with its caller", err)
	}
}
