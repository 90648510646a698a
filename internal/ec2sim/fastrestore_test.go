package ec2sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

// enable turns fast restore on and gives what became of each snapshot and zone.
func (r *region) enable(zones []string, snapshots ...string) []string {
	r.t.Helper()
	out, err := r.EnableFastSnapshotRestores(r.t.Context(), &ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: zones, SourceSnapshotIds: snapshots})
	if err != nil {
		return []string{code(err)}
	}
	var got []string
	for _, s := range out.Successful {
		got = append(got, fmt.Sprint(*s.SnapshotId, " ", *s.AvailabilityZone, " ", s.State))
	}
	for _, u := range out.Unsuccessful {
		for _, e := range u.FastSnapshotRestoreStateErrors {
			got = append(got, fmt.Sprint(*u.SnapshotId, " ", *e.AvailabilityZone, " ", *e.Error.Code))
		}
	}
	return got
}

func (r *region) disable(zone, snapshot string) string {
	r.t.Helper()
	out, err := r.DisableFastSnapshotRestores(r.t.Context(), &ec2.DisableFastSnapshotRestoresInput{
		AvailabilityZones: []string{zone}, SourceSnapshotIds: []string{snapshot}})
	switch {
	case err != nil:
		return code(err)
	case len(out.Unsuccessful) > 0:
		return *out.Unsuccessful[0].FastSnapshotRestoreStateErrors[0].Error.Code
	}
	return string(out.Successful[0].State)
}

// fast is what DescribeFastSnapshotRestores tells.
func (r *region) fast(kv ...string) []types.DescribeFastSnapshotRestoreSuccessItem {
	r.t.Helper()
	out, err := r.DescribeFastSnapshotRestores(r.t.Context(), &ec2.DescribeFastSnapshotRestoresInput{Filters: filters(kv...)})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.FastSnapshotRestores
}

// pending makes a snapshot and does not wait for it.
func (r *region) pending(volumeID string) string {
	r.t.Helper()
	out, err := r.CreateSnapshot(r.t.Context(), &ec2.CreateSnapshotInput{VolumeId: &volumeID})
	if err != nil {
		r.t.Fatal(err)
	}
	return *out.SnapshotId
}

func (r *region) deleteSnapshot(id string) error {
	_, err := r.DeleteSnapshot(r.t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id})
	return err
}

// TestFastRestoreLife: it is enabling till the snapshot is completed, then
// optimizing, then enabled; the snapshot cannot go before it is disabled.
func TestFastRestoreLife(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.SetDelays(ec2sim.Delays{Snapshot: ec2sim.Duration(10 * time.Second), FastRestoreEnable: ec2sim.Duration(time.Second),
		FastRestoreOptimize: ec2sim.Duration(20 * time.Second), FastRestoreDisable: ec2sim.Duration(5 * time.Second),
		Initialize: ec2sim.Duration(time.Hour)})
	begin := r.clock.Now()
	snap := r.pending(vol)
	wantSame(t, []string{snap + " " + zoneA + " enabling"}, r.enable([]string{zoneA}, snap))
	state := func(want types.FastSnapshotRestoreStateCode) {
		t.Helper()
		got := r.fast("snapshot-id", snap, "availability-zone", zoneA, "owner-id", "000000000000", "state", string(want))
		if len(got) != 1 || *got[0].AvailabilityZoneId != "use1-az1" {
			t.Errorf("not %s: %+v", want, r.fast())
		}
	}
	r.pass(9 * time.Second)
	state("enabling")
	r.pass(time.Second)
	state("optimizing")
	wantSame(t, []string{snap + " " + zoneA + " optimizing"}, r.enable([]string{zoneA}, snap))
	if restored, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &snap}); err != nil || restored.FastRestored != nil {
		t.Errorf("restored while optimizing: %v %+v", err, restored)
	}
	r.pass(20 * time.Second)
	state("enabled")
	got := r.fast()[0]
	wantSame(t, []any{begin, begin.Add(10 * time.Second), begin.Add(30 * time.Second), "Client.UserInitiated - Lifecycle state transition"},
		[]any{got.EnablingTime.UTC(), got.OptimizingTime.UTC(), got.EnabledTime.UTC(), *got.StateTransitionReason})

	for zone, fast := range map[string]bool{zoneA: true, zoneB: false} {
		made, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: &zone, SnapshotId: &snap})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := r.Volume(*made.VolumeId)
		if (made.FastRestored != nil) != fast || v.Initialized.Equal(v.Created) != fast {
			t.Errorf("restored in %s: fast %v, initialized at %v", zone, made.FastRestored, v.Initialized)
		}
	}
	rated, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(zoneA), SnapshotId: &snap, VolumeInitializationRate: aws.Int32(100)})
	if err != nil || rated.FastRestored != nil {
		t.Errorf("an initialization rate goes first: %v %+v", err, rated)
	}
	wantCode(t, r.deleteSnapshot(snap), "InvalidSnapshot.InUse")
	if err := r.deleteSnapshot(snap); err == nil || !strings.Contains(err.Error(), zoneA) {
		t.Errorf("%v does not name the zone", err)
	}
	wantSame(t, "disabling", r.disable(zoneA, snap))
	wantSame(t, "disabling", r.disable(zoneA, snap))
	wantCode(t, r.deleteSnapshot(snap), "InvalidSnapshot.InUse")
	wantSame(t, []string{snap + " " + zoneA + " IncorrectState"}, r.enable([]string{zoneA}, snap))
	r.pass(5 * time.Second)
	state("disabled")
	wantSame(t, "InvalidParameterValue", r.disable(zoneA, snap))
	wantSame(t, []string{snap + " " + zoneA + " enabling"}, r.enable([]string{zoneA}, snap))
	r.disable(zoneA, snap)
	r.pass(5 * time.Second)
	wantCode(t, r.deleteSnapshot(snap), "")
}

// TestFastRestoreAnswers: what fails for one snapshot or zone is told, the
// rest is done; what is wrong with the call as a whole refuses it.
func TestFastRestoreAnswers(t *testing.T) {
	r := newRegion(t)
	one, two := r.newSnapshot(r.newVolume()), r.newSnapshot(r.newVolume())
	big := r.newSnapshot(r.newVolume(func(i *ec2.CreateVolumeInput) { i.Size = aws.Int32(16385) }))
	const gone = "snap-00000000000000000"
	r.SetQuotas(ec2sim.Quotas{FastRestores: 1})
	both := []string{zoneA, zoneB}
	wantSame(t, []string{
		one + " " + zoneA + " enabling", one + " " + zoneB + " enabling",
		gone + " " + zoneA + " InvalidSnapshot.NotFound", gone + " " + zoneB + " InvalidSnapshot.NotFound",
		big + " " + zoneA + " InvalidParameterValue", big + " " + zoneB + " InvalidParameterValue",
		two + " " + zoneA + " FastSnapshotRestoreLimitExceeded", two + " " + zoneB + " FastSnapshotRestoreLimitExceeded",
	}, r.enable(both, one, gone, big, two))
	wantSame(t, "InvalidParameterValue", r.disable(zoneA, two))
	many := make([]string, 11)
	for i := range many {
		many[i] = fmt.Sprintf("snap-%017x", i)
	}
	for _, row := range []struct {
		why  string
		in   ec2.EnableFastSnapshotRestoresInput
		code string
	}{
		{"a zone that does not exist", ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: []string{"us-east-1z"}, SourceSnapshotIds: []string{one}}, "InvalidZone.NotFound"},
		{"no zone", ec2.EnableFastSnapshotRestoresInput{SourceSnapshotIds: []string{one}}, "MissingParameter"},
		{"zones both ways", ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: both, AvailabilityZoneIds: both, SourceSnapshotIds: []string{one}}, "InvalidParameterCombination"},
		{"a malformed id", ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: both, SourceSnapshotIds: []string{"snap-xyz"}}, "InvalidSnapshotID.Malformed"},
		{"11 snapshots", ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: both, SourceSnapshotIds: many}, "InvalidRequest"},
		{"a zone by id", ec2.EnableFastSnapshotRestoresInput{AvailabilityZoneIds: []string{"use1-az3"}, SourceSnapshotIds: []string{one}}, ""},
	} {
		_, err := r.EnableFastSnapshotRestores(t.Context(), &row.in)
		if got := code(err); got != row.code {
			t.Errorf("%s: %q, want %q", row.why, got, row.code)
		}
	}
	wantSame(t, 3, len(r.fast()))
}

// TestFastRestoreSurvivesRestart: it goes on by the clock, as all states do.
func TestFastRestoreSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir))
	snap := r.newSnapshot(r.newVolume())
	r.enable([]string{zoneA}, snap)
	wantCode(t, r.lock(snap, days(1)), "")
	again := reopen(t, copyState(t, readState(t, dir)), r.clock.Now())
	wantSame(t, r.State(), again.State())
	later := reopen(t, copyState(t, readState(t, dir)), r.clock.Now().Add(time.Minute))
	if sn, _ := later.Snapshot(snap); sn.FastRestores[0].State != "enabled" || sn.Lock == nil {
		t.Errorf("a minute later: %+v", sn)
	}
}

// TestPolicyOnFastRestoresAndLocks: the snapshot is asked for.
func TestPolicyOnFastRestoresAndLocks(t *testing.T) {
	policy, err := iam.Parse([]byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
	  "Action": ["ec2:EnableFastSnapshotRestores", "ec2:DisableFastSnapshotRestores", "ec2:LockSnapshot"],
	  "Resource": "arn:aws:ec2:*::snapshot/*", "Condition": {"StringEquals": {"ec2:ResourceTag/cluster": "true"}}}]}`), ec2sim.KnownConditionKey)
	if err != nil {
		t.Fatal(err)
	}
	r := newRegion(t)
	r.SetPolicy(driverKey, policy)
	plain, ours := r.newSnapshot(r.newVolume()), r.newSnapshot(r.newVolume())
	if _, err := r.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{ours}, Tags: tags("cluster", "true")}); err != nil {
		t.Fatal(err)
	}
	c := client(r.url, driverKey)
	for snap, want := range map[string]string{plain: "UnauthorizedOperation", ours: ""} {
		zones, ids := []string{zoneA}, []string{snap}
		wantCode(t, do2(c.EnableFastSnapshotRestores(t.Context(), &ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: zones, SourceSnapshotIds: ids})), want)
		wantCode(t, do2(c.DisableFastSnapshotRestores(t.Context(), &ec2.DisableFastSnapshotRestoresInput{AvailabilityZones: zones, SourceSnapshotIds: ids})), want)
		wantCode(t, do2(c.LockSnapshot(t.Context(), &ec2.LockSnapshotInput{SnapshotId: &snap, LockMode: "governance", LockDuration: aws.Int32(1)})), want)
	}
	wantCode(t, do2(c.DescribeFastSnapshotRestores(t.Context(), &ec2.DescribeFastSnapshotRestoresInput{})), "UnauthorizedOperation")
}
