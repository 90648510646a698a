package ec2sim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// newSnapshot makes a snapshot and waits for it.
func (r *region) newSnapshot(volumeID string) string {
	r.t.Helper()
	out, err := r.CreateSnapshot(r.t.Context(), &ec2.CreateSnapshotInput{VolumeId: &volumeID})
	if err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Minute)
	return *out.SnapshotId
}

func TestSnapshotLife(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.SetDelays(ec2sim.Delays{Snapshot: ec2sim.Duration(10 * time.Second)})
	out, err := r.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{
		VolumeId: &vol, Description: aws.String("d"), TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeSnapshot, Tags: []types.Tag{{Key: aws.String("CSIVolumeSnapshotName"), Value: aws.String("s1")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	id := *out.SnapshotId
	wantSame(t, []any{types.SnapshotStatePending, "0%", int32(10), vol, "000000000000"},
		[]any{out.State, *out.Progress, *out.VolumeSize, *out.VolumeId, *out.OwnerId})
	describe := func() types.Snapshot {
		t.Helper()
		found, err := r.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{Filters: filters("tag:CSIVolumeSnapshotName", "s1")})
		if err != nil || len(found.Snapshots) != 1 {
			t.Fatalf("%v, %d snapshots", err, len(found.Snapshots))
		}
		return found.Snapshots[0]
	}
	r.pass(5 * time.Second)
	if s := describe(); *s.Progress != "50%" || s.State != types.SnapshotStatePending {
		t.Errorf("half way: %s %s", s.State, *s.Progress)
	}
	from := func() error {
		_, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &id})
		return err
	}
	wantCode(t, from(), "IncorrectState")
	r.pass(5 * time.Second)
	if s := describe(); *s.Progress != "100%" || s.State != types.SnapshotStateCompleted {
		t.Errorf("at the end: %s %s", s.State, *s.Progress)
	}
	wantCode(t, from(), "")
	_, err = r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &id, Size: aws.Int32(9)})
	wantCode(t, err, "InvalidParameterValue")
	_, err = r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(zoneA), SnapshotId: &id, VolumeInitializationRate: aws.Int32(301)})
	wantCode(t, err, "InvalidParameterValue")

	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &vol})
	wantCode(t, err, "")
	_, err = r.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id})
	wantCode(t, err, "")
	_, err = r.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id})
	wantCode(t, err, "InvalidSnapshot.NotFound")
}

func TestSnapshotLimits(t *testing.T) {
	create := func(r *region, vol string) error {
		_, err := r.CreateSnapshot(r.t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol})
		return err
	}
	slow := ec2sim.Delays{Snapshot: ec2sim.Duration(time.Hour), SnapshotSpacing: ec2sim.Duration(15 * time.Second)}

	t.Run("15 seconds apart", func(t *testing.T) {
		r := newRegion(t)
		vol, other := r.newVolume(), r.newVolume()
		wantCode(t, create(r, vol), "")
		r.pass(14 * time.Second)
		wantCode(t, create(r, vol), "SnapshotCreationPerVolumeRateExceeded")
		wantCode(t, create(r, other), "")
		r.pass(time.Second)
		wantCode(t, create(r, vol), "")
	})
	t.Run("5 pending, 1 on st1", func(t *testing.T) {
		r := newRegion(t)
		vol := r.newVolume()
		st1 := r.newVolume(func(i *ec2.CreateVolumeInput) { i.VolumeType, i.Size = types.VolumeTypeSt1, aws.Int32(125) })
		r.SetDelays(slow)
		for range 5 {
			wantCode(t, create(r, vol), "")
			r.pass(15 * time.Second)
		}
		wantCode(t, create(r, vol), "ConcurrentSnapshotLimitExceeded")
		wantCode(t, create(r, st1), "")
		r.pass(15 * time.Second)
		wantCode(t, create(r, st1), "ConcurrentSnapshotLimitExceeded")
	})
	t.Run("quotas", func(t *testing.T) {
		r := newRegion(t)
		one, two := r.newVolume(), r.newVolume()
		r.SetQuotas(ec2sim.Quotas{PendingSnapshots: 1, Snapshots: 1})
		wantCode(t, create(r, one), "")
		wantCode(t, create(r, two), "PendingSnapshotLimitExceeded")
		r.pass(time.Minute)
		wantCode(t, create(r, two), "SnapshotLimitExceeded")
	})
	t.Run("volume creating", func(t *testing.T) {
		r := newRegion(t)
		out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, create(r, *out.VolumeId), "IncorrectState")
		wantCode(t, create(r, absentVolume), "InvalidVolume.NotFound")
	})
}

func TestDescribeSnapshotsOwners(t *testing.T) {
	r := newRegion(t)
	id := r.newSnapshot(r.newVolume())
	for _, row := range []struct {
		why string
		in  ec2.DescribeSnapshotsInput
		n   int
	}{
		{"by id", ec2.DescribeSnapshotsInput{SnapshotIds: []string{id}}, 1},
		{"self", ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}}, 1},
		{"our account", ec2.DescribeSnapshotsInput{OwnerIds: []string{"000000000000"}}, 1},
		{"amazon", ec2.DescribeSnapshotsInput{OwnerIds: []string{"amazon"}}, 0},
		{"restorable by us", ec2.DescribeSnapshotsInput{RestorableByUserIds: []string{"self"}}, 1},
		{"restorable by another", ec2.DescribeSnapshotsInput{RestorableByUserIds: []string{"111111111111"}}, 0},
		{"a page", ec2.DescribeSnapshotsInput{MaxResults: aws.Int32(5)}, 1},
	} {
		out, err := r.DescribeSnapshots(t.Context(), &row.in)
		if err != nil || len(out.Snapshots) != row.n {
			t.Errorf("%s: %v, %d snapshots, want %d", row.why, err, len(out.Snapshots), row.n)
		}
	}
	_, err := r.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{"snap-00000000000000000"}})
	wantCode(t, err, "InvalidSnapshot.NotFound")
	_, err = r.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{"reallyfakesnapshotid"}})
	wantCode(t, err, "InvalidParameterValue")
}

// TestEncryptionIsInherited: a snapshot of an encrypted volume is encrypted,
// and so is a volume made from it.
func TestEncryptionIsInherited(t *testing.T) {
	r := newRegion(t)
	key := "arn:aws:kms:us-east-1:000000000000:key/1"
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) { i.Encrypted, i.KmsKeyId = aws.Bool(true), &key })
	snap := r.newSnapshot(vol)
	out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &snap})
	if err != nil || !*out.Encrypted || *out.KmsKeyId != key {
		t.Errorf("%v %+v", err, out)
	}
}

func TestVolumeStatus(t *testing.T) {
	r := newRegion(t)
	snap := r.newSnapshot(r.newVolume())
	r.SetDelays(ec2sim.Delays{Initialize: ec2sim.Duration(100 * time.Second)})
	out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), SnapshotId: &snap})
	if err != nil {
		t.Fatal(err)
	}
	status := func() []any {
		t.Helper()
		got, err := r.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{VolumeIds: []string{*out.VolumeId}})
		if err != nil {
			t.Fatal(err)
		}
		s := got.VolumeStatuses[0]
		var init string
		for _, d := range s.VolumeStatus.Details {
			if d.Name == "initialization-state" {
				init = *d.Status
			}
		}
		return []any{s.VolumeStatus.Status, init, *s.InitializationStatusDetails.Progress, *s.InitializationStatusDetails.EstimatedTimeToCompleteInSeconds}
	}
	r.pass(25 * time.Second)
	wantSame(t, []any{types.VolumeStatusInfoStatusOk, "initializing", int64(25), int64(75)}, status())
	r.pass(75 * time.Second)
	wantSame(t, []any{types.VolumeStatusInfoStatusOk, "completed", int64(100), int64(0)}, status())
	found, err := r.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{
		Filters: filters("volume-status.details-status", "initializing", "volume-status.details-name", "initialization-state")})
	if err != nil || len(found.VolumeStatuses) != 0 {
		t.Errorf("%v, %d volumes are initializing, want none", err, len(found.VolumeStatuses))
	}
}
