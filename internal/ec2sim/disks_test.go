package ec2sim_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// recorder is a machine's disks, which do what a test says.
type recorder struct {
	attached chan string // gets what is attached, if it is not nil
	busy     bool        // the instance uses its devices
	broken   error       // every method fails
	log      []string
}

func (d *recorder) note(what string) error {
	if d.broken == nil {
		d.log = append(d.log, what)
	}
	return d.broken
}

func (d *recorder) CreateVolume(v, s string, _ int64) error { return d.note("create " + v + s) }
func (d *recorder) CopyVolume(s, v string, _ int64) error   { return d.note("copy " + s + " " + v) }
func (d *recorder) Grow(v string, _ int64) error            { return d.note("grow " + v) }
func (d *recorder) DeleteVolume(v string) error             { return d.note("delete " + v) }

func (d *recorder) CreateSnapshots(volumeOf map[string]string) error {
	return d.note("snapshot " + strings.Join(slices.Sorted(maps.Values(volumeOf)), " "))
}

func (d *recorder) DeleteSnapshot(s string) error { return d.note("delete " + s) }

func (d *recorder) Vacant() error                                 { return nil }
func (d *recorder) Reconcile(map[string][]string, []string) error { return nil }

func (d *recorder) Attach(v, dev string) error {
	if d.attached != nil {
		d.attached <- v + " " + dev
	}
	return d.note("attach " + v)
}

func (d *recorder) Detach(v, _ string, force bool) (bool, error) {
	if d.busy && !force {
		return false, d.broken
	}
	return true, d.note("detach " + v)
}

func withDisks(d *recorder) func(*ec2sim.Config) {
	return func(c *ec2sim.Config) { c.Disks = d }
}

func regionWithDev(t *testing.T, d *recorder) *region {
	t.Helper()
	r := newRegion(t, withDisks(d))
	if err := r.AddInstance(ec2sim.Instance{ID: instanceA, Zone: zoneA, DevDir: "/somewhere"}); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBusyVolume: while the instance uses the device the attachment is busy,
// unless the detach is forced.
func TestBusyVolume(t *testing.T) {
	d := &recorder{busy: true}
	r := regionWithDev(t, d)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(time.Minute)
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	wantSame(t, []string{"in-use", "busy"}, r.states(vol))
	d.busy = false
	r.pass(time.Second)
	wantSame(t, []string{"available"}, r.states(vol))

	d.busy = true
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(time.Minute)
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	force := true
	_, err := r.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &vol, Force: &force})
	wantCode(t, err, "")
	r.pass(time.Minute)
	wantSame(t, []string{"available"}, r.states(vol))
}

// TestDiskActsAtTheEdge: the disk is attached before the attachment shows
// attached, and everything is tried again until the machine does it.
func TestDiskActsAtTheEdge(t *testing.T) {
	d := &recorder{}
	r := regionWithDev(t, d)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	wantSame(t, []string{"create " + vol}, d.log)
	d.broken = errors.New("no loop device is free")
	r.pass(time.Minute)
	wantSame(t, []string{"in-use", "attaching"}, r.states(vol))
	if v, _ := r.Volume(vol); v.Attachments[0].Trouble != "no loop device is free" {
		t.Errorf("trouble %q", v.Attachments[0].Trouble)
	}
	d.broken = nil
	r.pass(time.Second)
	wantSame(t, []string{"in-use", "attached"}, r.states(vol))

	wantCode(t, r.grow(vol, 20), "")
	d.broken = errors.New("disk full")
	r.pass(time.Minute)
	if m := r.modification(vol); m[0] != types.VolumeModificationStateModifying || m[2] != int32(10) {
		t.Errorf("a disk that did not grow shows as %v", m)
	}
	d.broken = nil
	r.pass(time.Minute)
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	_, err := r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &vol})
	wantCode(t, err, "")
	d.broken = errors.New("read-only")
	r.pass(time.Minute)
	wantSame(t, []string{"deleting"}, r.states(vol))
	d.broken = nil
	r.pass(time.Second)
	wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(vol))
	wantSame(t, []string{"create " + vol, "attach " + vol, "grow " + vol, "detach " + vol, "delete " + vol}, d.log)
}

// TestDiskThatCannotBeMade leaves nothing: no volume, no snapshot, no token.
func TestDiskThatCannotBeMade(t *testing.T) {
	d := &recorder{}
	r := regionWithDev(t, d)
	vol := r.newVolume()
	d.broken = errors.New("disk full")
	again := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1), ClientToken: aws.String("again")}
	_, err := r.CreateVolume(t.Context(), again)
	wantCode(t, err, "InsufficientVolumeCapacity")
	_, err = r.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol})
	wantCode(t, err, "InternalError")
	if len(r.Volumes()) != 1 || len(r.Snapshots()) != 0 {
		t.Errorf("left: %v %v", r.Volumes(), r.Snapshots())
	}
	d.broken = nil
	_, err = r.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol})
	wantCode(t, err, "") // the failed one does not count against the rate
	_, err = r.CreateVolume(t.Context(), again)
	wantCode(t, err, "") // nor does it use up the token
}

// TestBootShowsDisksAgain: an instance that starts, or is added again with a
// new dev folder, sees its volumes.
func TestBootShowsDisksAgain(t *testing.T) {
	d := &recorder{}
	r := regionWithDev(t, d)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(time.Minute)
	wantSame(t, []string{"in-use", "attached"}, r.states(vol))
	d.log = nil
	if err := errors.Join(r.StopInstance(instanceA), r.StartInstance(instanceA)); err != nil {
		t.Fatal(err)
	}
	if err := r.AddInstance(ec2sim.Instance{ID: instanceA, Zone: zoneA, DevDir: "/elsewhere"}); err != nil {
		t.Fatal(err)
	}
	wantSame(t, []string{"attach " + vol, "attach " + vol}, d.log)
}
