package ec2sim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func (r *region) inject(f ec2sim.Fault) {
	r.t.Helper()
	if err := r.Inject(f); err != nil {
		r.t.Fatal(err)
	}
}

// TestVolumeVanishes: the call succeeds, the volume is creating, and then
// there is none; its token is spent.
func TestVolumeVanishes(t *testing.T) {
	disks := &recorder{}
	r := newRegion(t, withDisks(disks))
	source := r.newVolume()
	disks.log = nil
	calls := map[string]func(token string) (string, error){
		"CreateVolume": func(token string) (string, error) {
			out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1), ClientToken: &token})
			if err != nil {
				return "", err
			}
			return *out.VolumeId, nil
		},
		"CopyVolumes": func(token string) (string, error) {
			v, err := r.copyVolume(source, func(i *ec2.CopyVolumesInput) { i.ClientToken = &token })
			return aws.ToString(v.VolumeId), err
		},
	}
	for action, make := range calls {
		r.inject(ec2sim.Fault{Action: action, Outcome: ec2sim.OutcomeVanish})
		id, err := make(action)
		wantCode(t, err, "")
		wantSame(t, []string{"creating"}, r.states(id))
		again, err := make(action)
		if err != nil || again != id {
			t.Errorf("%s: a repeat while it is creating: %v %s, want %s", action, err, again, id)
		}
		r.pass(1500 * time.Millisecond)
		wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(id))
		_, err = make(action)
		wantCode(t, err, "IdempotentParameterMismatch")
		next, err := make(action + " again")
		wantCode(t, err, "")
		r.pass(time.Minute)
		wantSame(t, []string{"available"}, r.states(next))
	}
}

// TestVanishingVolumeOverARestart: it has no content, and goes all the same.
func TestVanishingVolumeOverARestart(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir))
	r.inject(ec2sim.Fault{Action: "CreateVolume", Outcome: ec2sim.OutcomeVanish})
	wantCode(t, r.createOnce(), "")
	later := reopen(t, copyState(t, readState(t, dir)), r.clock.Now().Add(time.Minute))
	if n := len(later.Volumes()); n != 0 {
		t.Errorf("%d volumes a minute later", n)
	}
}

// TestStuckAttach: it is attaching for ever, counts as a volume of the
// instance, and ends by a detach; the next attach works.
func TestStuckAttach(t *testing.T) {
	d := &recorder{}
	r := regionWithDev(t, d)
	vol := r.newVolume()
	r.inject(ec2sim.Fault{Action: "AttachVolume", Outcome: ec2sim.OutcomeStuck})
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(24 * time.Hour)
	wantSame(t, []string{"in-use", "attaching"}, r.states(vol))
	wantCode(t, r.attach(r.newVolume(), instanceA, "/dev/xvdaa"), "InvalidParameterValue")
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	wantSame(t, []string{"available"}, r.states(vol))
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(time.Minute)
	wantSame(t, []string{"in-use", "attached"}, r.states(vol))
}

// TestSnapshotFails: it ends in error, and a lock with it; no volume comes of it.
func TestSnapshotFails(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.inject(ec2sim.Fault{Action: "CreateSnapshot", Outcome: ec2sim.OutcomeError})
	snap := r.pending(vol)
	wantCode(t, r.lock(snap, days(1)), "")
	r.pass(time.Minute)
	out, err := r.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{snap}})
	if err != nil || out.Snapshots[0].State != types.SnapshotStateError || aws.ToString(out.Snapshots[0].StateMessage) == "" || out.Snapshots[0].CompletionTime != nil {
		t.Errorf("%v %+v, want an error that says something", err, out)
	}
	_, err = r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &snap})
	wantCode(t, err, "IncorrectState")
	wantCode(t, r.deleteSnapshot(snap), "")
	r.newSnapshot(vol)
}

func TestOutcomesThatCannotBeAreRefused(t *testing.T) {
	r := newRegion(t)
	for why, f := range map[string]ec2sim.Fault{
		"there are three":             {Action: "CreateVolume", Outcome: "explode"},
		"only a volume vanishes":      {Action: "AttachVolume", Outcome: ec2sim.OutcomeVanish},
		"it is for one action":        {Action: "*", Outcome: ec2sim.OutcomeStuck},
		"the call has to act":         {Action: "AttachVolume", Outcome: ec2sim.OutcomeStuck, Code: "X"},
		"an answer lost before it is": {Action: "AttachVolume", Outcome: ec2sim.OutcomeStuck, LostAnswer: ec2sim.LostBefore},
	} {
		if err := r.Inject(f); err == nil {
			t.Errorf("%s, yet %+v was taken", why, f)
		}
	}
}
