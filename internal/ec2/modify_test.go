package ec2_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// grow grows by another process.
func (r *region) grow(id ebs.VolumeID, atLeast ebs.GiB) (ebs.Volume, error) {
	return r.client().Modify(r.t.Context(), id, ebs.Modification{Size: atLeast})
}

// DRIVER rule 10, as far as growth goes: one ModifyVolume, none for no-ops.
func TestGrow(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	for _, step := range []struct {
		why             string
		atLeast, expect ebs.GiB
		calls           int
	}{
		{"large enough already", 10, 10, 0},
		{"larger than asked for", 5, 10, 0},
		{"growth", 20, 20, 1},
		{"a repeat", 20, 20, 1},
	} {
		got, err := r.grow(vol.ID, step.atLeast)
		if err != nil || got.Size != step.expect {
			t.Fatalf("%s: %d GiB, %v; want %d", step.why, got.Size, err, step.expect)
		}
		if n := len(r.callsOf("ModifyVolume")); n != step.calls {
			t.Errorf("%s: %d ModifyVolume calls so far, want %d", step.why, n, step.calls)
		}
	}
	if v, _ := r.Volume(string(vol.ID)); v.SizeGiB != 20 {
		t.Errorf("EC2 shows %d GiB", v.SizeGiB)
	}
}

// EC2 shows the new size while the change is still "modifying": not usable yet.
func TestGrowWaitsForAChangeOfAnEarlierCall(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.SetDelays(ec2sim.Delays{Modify: ec2sim.Duration(30 * time.Second), Optimize: ec2sim.Duration(time.Hour)})
	begun := make(chan error, 1)
	go func() {
		_, err := r.grow(vol.ID, 20)
		begun <- err
	}()
	for v, _ := r.Volume(string(vol.ID)); len(v.Modifications) == 0; v, _ = r.Volume(string(vol.ID)) {
		<-time.After(time.Millisecond)
	}
	got, err := r.grow(vol.ID, 20)
	if err != nil || got.Size != 20 {
		t.Errorf("%d GiB, %v; want 20", got.Size, err)
	}
	if v, _ := r.Volume(string(vol.ID)); v.Modifications[len(v.Modifications)-1].State != "optimizing" {
		t.Errorf("answered while the change is %s", v.Modifications[len(v.Modifications)-1].State)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1", n)
	}
	if _, err := r.grow(vol.ID, 30); !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), "optimizing") {
		t.Errorf("a further change while the last is optimizing: %v, want that it is not ready and why", err)
	}
}

func TestGrowAfterALostAnswer(t *testing.T) {
	for _, lost := range []int{1, 2} {
		r := newRegion(t)
		vol := r.volume("pvc-1")
		if err := r.Inject(ec2sim.Fault{Action: "ModifyVolume", LostAnswer: ec2sim.LostAfter, Count: lost}); err != nil {
			t.Fatal(err)
		}
		got, err := r.grow(vol.ID, 20)
		if err != nil || got.Size != 20 {
			t.Errorf("%d answers lost: %d GiB, %v; want 20", lost, got.Size, err)
		}
		if v, _ := r.Volume(string(vol.ID)); len(v.Modifications) != 1 {
			t.Errorf("%d answers lost: %d changes, want 1", lost, len(v.Modifications))
		}
	}
}

// DRIVER rule 10: the 5th change in 24 h.
func TestGrowTooOften(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	vol := r.volume("pvc-1")
	for i := range 4 {
		if _, err := r.grow(vol.ID, ebs.GiB(11+i)); err != nil {
			t.Fatal(err)
		}
	}
	before := len(r.callsOf("ModifyVolume"))
	_, err := r.grow(vol.ID, 20)
	if !errors.Is(err, ebs.ErrModificationRate) || !strings.Contains(err.Error(), "2026-06-02") {
		t.Errorf("%v, want EC2's refusal with the next allowed time", err)
	}
	if n := len(r.callsOf("ModifyVolume")) - before; n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1: no hot loop", n)
	}
}

// DRIVER rule 10: no hot loop. A process that has been refused asks EC2 no more
// until the time has come; what needs no change is done meanwhile.
func TestModifyTooOften(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	vol, c := r.volume("pvc-1"), r.client()
	modify := func(want ebs.Modification) error {
		_, err := c.Modify(t.Context(), vol.ID, want)
		return err
	}
	for i := range 4 {
		if err := modify(ebs.Modification{Size: ebs.GiB(11 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := modify(ebs.Modification{IOPS: 4000}); !errors.Is(err, ebs.ErrModificationRate) || !strings.Contains(err.Error(), "possible at 2026-06-02T12:") {
			t.Errorf("%v, want the refusal with the next allowed time", err)
		}
		r.pass(time.Minute)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 5 {
		t.Errorf("%d ModifyVolume calls, want 5: the refusal holds", n)
	}
	if err := modify(ebs.Modification{Size: 12, SetTags: map[string]string{"team": "db"}}); err != nil {
		t.Errorf("tags: %v, want OK", err)
	}
	if err := modify(ebs.Modification{IOPS: 90000}); !errors.Is(err, ebs.ErrInvalid) {
		t.Errorf("what is impossible: %v, want that it is invalid", err)
	}
	r.pass(24 * time.Hour)
	if err := modify(ebs.Modification{IOPS: 4000}); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// DRIVER rule 10: expand and modify close together are one ModifyVolume.
func TestModifyTogether(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	r := newRegionWith(t, clk)
	r.SetDelays(ec2sim.Delays{})
	run := func(step time.Duration) (stop func()) {
		stopped := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case <-time.After(time.Millisecond):
					clk.Step(step)
				}
			}
		})
		return func() { close(stopped); running.Wait() }
	}
	stop := run(time.Second)
	vol, c := r.volume("pvc-1"), r.client()
	stop()
	stop = run(time.Millisecond) // two seconds are long until both have arrived
	ended := make(chan error, 2)
	for _, want := range []ebs.Modification{{Size: 20}, {IOPS: 8000, ThroughputMiBps: 500, SetTags: map[string]string{"team": "db"}}} {
		go func() {
			_, err := c.Modify(t.Context(), vol.ID, want)
			ended <- err
		}()
	}
	for c.Gathering(vol.ID) < 2 && len(r.callsOf("ModifyVolume")) == 0 {
		<-time.After(time.Millisecond)
	}
	stop()
	defer run(100 * time.Millisecond)()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	calls := r.callsOf("ModifyVolume")
	if len(calls) != 1 {
		t.Fatalf("%d ModifyVolume calls, want 1", len(calls))
	}
	for key, want := range map[string]string{"Size": "20", "Iops": "8000", "Throughput": "500", "VolumeType": ""} {
		if got := calls[0].form.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if v, _ := r.Volume(string(vol.ID)); v.SizeGiB != 20 || v.IOPS != 8000 || v.ThroughputMiBs != 500 || v.Tags["team"] != "db" {
		t.Errorf("EC2 shows %+v", v)
	}
}

// What is as wanted, or becoming so, costs no change and no waiting for others.
func TestModifyNothing(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{Modify: ec2sim.Duration(5 * time.Second), Optimize: ec2sim.Duration(time.Hour)})
	vol := r.volume("pvc-1")
	start := r.clock.Now()
	if _, err := r.client().Modify(t.Context(), vol.ID, ebs.Modification{Type: ebs.GP3, IOPS: 3000, SetTags: map[string]string{ebs.TagVolumeName: "pvc-1"}, DeleteTags: []string{"none"}}); err != nil {
		t.Error(err)
	}
	if took := r.clock.Since(start); took >= 2*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, action := range []string{"ModifyVolume", "CreateTags", "DeleteTags"} {
		if n := len(r.callsOf(action)); n != 0 {
			t.Errorf("%d %s calls, want none", n, action)
		}
	}
	if got, err := r.client().Modify(t.Context(), vol.ID, ebs.Modification{Type: ebs.IO2, IOPS: 5000}); err != nil || got.Type != ebs.IO2 || got.IOPS != 5000 {
		t.Fatalf("%+v, %v", got.Shape(), err)
	}
	form := r.callsOf("ModifyVolume")[0].form
	if form.Get("VolumeType") != "io2" || form.Get("Iops") != "5000" || form.Has("Size") || form.Has("Throughput") {
		t.Errorf("sent %v, want type and IOPS", form)
	}
}

// A change of the type keeps what the class does not name.
func TestModifyType(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	vol := r.volume("pvc-1")
	for _, step := range []struct {
		want ebs.Modification
		is   ebs.Shape
	}{
		{ebs.Modification{IOPS: 4500, ThroughputMiBps: 200}, ebs.Shape{Size: 10, Type: ebs.GP3, IOPS: 4500, ThroughputMiBps: 200}},
		{ebs.Modification{Type: ebs.IO2}, ebs.Shape{Size: 10, Type: ebs.IO2, IOPS: 4500}},
		{ebs.Modification{Type: ebs.IO1}, ebs.Shape{Size: 10, Type: ebs.IO1, IOPS: 500}},
		{ebs.Modification{Type: ebs.GP3}, ebs.Shape{Size: 10, Type: ebs.GP3, IOPS: 3000, ThroughputMiBps: 125}},
	} {
		got, err := r.client().Modify(t.Context(), vol.ID, step.want)
		v, _ := r.Volume(string(vol.ID))
		if is := ebs.NewShape(ebs.GiB(v.SizeGiB), ebs.VolumeType(v.Type), v.IOPS, v.ThroughputMiBs); err != nil || got.Shape() != step.is || is != step.is {
			t.Errorf("%+v: %s, EC2 shows %s, %v; want %s", step.want, got.Shape(), is, err, step.is)
		}
	}
}

func TestModifyTags(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	modify := func(want ebs.Modification) error {
		_, err := r.client().Modify(t.Context(), vol.ID, want)
		return err
	}
	tags := func() map[string]string { v, _ := r.Volume(string(vol.ID)); return v.Tags }
	base := map[string]string{ebs.TagVolumeName: "pvc-1", ebs.TagManaged: "true"}
	for i := range 46 {
		base[fmt.Sprint("k", i)] = "v"
	}
	if err := modify(ebs.Modification{SetTags: base}); err != nil {
		t.Fatal(err)
	}
	full := map[string]string{"a": "1", "b": "2", "c": "3"}
	if err := modify(ebs.Modification{SetTags: full, IOPS: 4000}); !errors.Is(err, ebs.ErrInvalid) || !strings.Contains(err.Error(), "51") {
		t.Errorf("51 tags: %v, want that it is invalid", err)
	}
	if diff := cmp.Diff(base, tags()); diff != "" {
		t.Errorf("the refusal has changed tags (-want +got)\n%s", diff)
	}
	if err := modify(ebs.Modification{SetTags: full, DeleteTags: []string{"k0"}}); err != nil {
		t.Errorf("51 tags less one: %v", err)
	}
	delete(base, "k0")
	maps.Copy(base, full)
	if diff := cmp.Diff(base, tags()); diff != "" {
		t.Errorf("tags (-want +got)\n%s", diff)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 0 {
		t.Errorf("%d ModifyVolume calls, want none for tags, and none for what is refused", n)
	}
}

// What EC2 alone knows may be refused after our own judgement: nothing has been
// changed then, no tag either. And a repeat after a lost step does what is left.
func TestModifyStepByStep(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	want := ebs.Modification{IOPS: 4000, SetTags: map[string]string{"team": "db"}, DeleteTags: []string{"old"}}
	if _, err := r.client().Modify(t.Context(), vol.ID, ebs.Modification{SetTags: map[string]string{"old": "x"}}); err != nil {
		t.Fatal(err)
	}
	modify := func() error { _, err := r.client().Modify(t.Context(), vol.ID, want); return err }
	r.FailNext("ModifyVolume", "UnsupportedOperation", 1)
	if err := modify(); !errors.Is(err, ebs.ErrInvalid) {
		t.Errorf("EC2's own rule: %v, want that it is invalid", err)
	}
	if v, _ := r.Volume(string(vol.ID)); v.Tags["team"] != "" || v.Tags["old"] != "x" {
		t.Errorf("tags are %v after a refusal", v.Tags)
	}
	for _, action := range []string{"DeleteTags", "CreateTags"} {
		r.FailNext(action, "UnauthorizedOperation", 1)
		err := modify()
		if infeasible(err) || err == nil {
			t.Errorf("%s fails: %v", action, err)
		}
	}
	if err := modify(); err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Volume(string(vol.ID)); v.Tags["team"] != "db" || v.Tags["old"] != "" || v.IOPS != 4000 || len(v.Modifications) != 1 {
		t.Errorf("EC2 shows %+v, want it as asked for with one change", v)
	}
}

func infeasible(err error) bool {
	return errors.Is(err, ebs.ErrInvalid) || errors.Is(err, ebs.ErrOutOfRange) || errors.Is(err, ebs.ErrNotFound)
}

// A volume that EC2 has shown is not infeasible because a server behind does not know it yet.
func TestModifyAVolumeThatIsHardlyKnown(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	for action, want := range map[string]ebs.Modification{"ModifyVolume": {Size: 20}, "CreateTags": {SetTags: map[string]string{"a": "b"}}} {
		r.FailNext(action, "InvalidVolume.NotFound", 1)
		if _, err := r.client().Modify(t.Context(), vol.ID, want); !errors.Is(err, ebs.ErrNotReady) || infeasible(err) {
			t.Errorf("%s: %v, want that it is not ready", action, err)
		}
	}
}

// DRIVER: a stale read in Expand is never NOT_FOUND, a size beyond the type is OUT_OF_RANGE.
func TestGrowOfOddVolumes(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	hidden := first(3)
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumes" && hidden() {
			return noVolumes()
		}
		return nil
	})
	if got, err := r.grow(vol.ID, 12); err != nil || got.Size != 12 {
		t.Errorf("hidden for a while: %d GiB, %v; want 12", got.Size, err)
	}
	if _, err := r.grow("vol-0123456789abcdef0", 12); !errors.Is(err, ebs.ErrNotFound) {
		t.Errorf("no such volume: %v, want that it is not found", err)
	}
	if _, err := r.grow(vol.ID, 65537); !errors.Is(err, ebs.ErrOutOfRange) {
		t.Errorf("beyond gp3: %v, want that it is out of range", err)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1: what cannot work is not sent", n)
	}
}

// The creation of a volume that was modified since is repeated: it is found, as
// long as it is the same in what cannot be modified. One that never was stays refused.
func TestACreateOfAModifiedVolume(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	other := func(name string) error {
		_, err := r.client().EnsureVolume(t.Context(), request(name, func(want *ebs.VolumeRequest) { want.IOPS = 4000 }))
		return err
	}
	if err := other("pvc-1"); !errors.Is(err, ebs.ErrAlreadyExists) {
		t.Fatalf("never modified: %v, want that it differs", err)
	}
	if _, err := r.client().Modify(t.Context(), vol.ID, ebs.Modification{Size: 20, IOPS: 5000}); err != nil {
		t.Fatal(err)
	}
	got, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if err != nil || got.ID != vol.ID || got.Size != 20 {
		t.Errorf("%s of %d GiB, %v, want %s as it is now", got.ID, got.Size, err, vol.ID)
	}
	for what, change := range map[string]func(*ebs.VolumeRequest){
		"larger":     func(want *ebs.VolumeRequest) { want.Size = 21 },
		"encrypted":  func(want *ebs.VolumeRequest) { want.Encrypted = true },
		"other zone": func(want *ebs.VolumeRequest) { want.Zone.Name, want.AllowedZones = zoneB, []ebs.Zone{{Name: zoneB}} },
	} {
		if _, err := r.client().EnsureVolume(t.Context(), request("pvc-1", change)); !errors.Is(err, ebs.ErrAlreadyExists) {
			t.Errorf("%s: %v, want that it differs", what, err)
		}
	}
	if n := len(r.Volumes()); n != 1 {
		t.Errorf("%d volumes, want 1", n)
	}
}
