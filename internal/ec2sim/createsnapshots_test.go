package ec2sim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

func snapshotTags(kv ...string) []types.TagSpecification {
	spec := volumeTags(kv...)
	spec[0].ResourceType = types.ResourceTypeSnapshot
	return spec
}

// newAttached makes a volume that is attached to instance a.
func (r *region) newAttached(device string, change ...func(*ec2.CreateVolumeInput)) string {
	r.t.Helper()
	vol := r.newVolume(change...)
	if err := r.attach(vol, instanceA, device); err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Minute)
	return vol
}

// createSnapshots snapshots instance a's data volumes.
func (r *region) createSnapshots(c *ec2.Client, change ...func(*ec2.CreateSnapshotsInput)) ([]types.SnapshotInfo, error) {
	in := &ec2.CreateSnapshotsInput{InstanceSpecification: &types.InstanceSpecification{
		InstanceId: aws.String(instanceA), ExcludeBootVolume: aws.Bool(true)}}
	for _, f := range change {
		f(in)
	}
	out, err := c.CreateSnapshots(r.t.Context(), in)
	if err != nil {
		return nil, err
	}
	return out.Snapshots, nil
}

func without(ids ...string) func(*ec2.CreateSnapshotsInput) {
	return func(i *ec2.CreateSnapshotsInput) { i.InstanceSpecification.ExcludeDataVolumeIds = ids }
}

// TestCreateSnapshots: one snapshot of each volume that is not left out, all
// by one copy, with the request's tags over those of the volume.
func TestCreateSnapshots(t *testing.T) {
	disks := &recorder{}
	r := newRegion(t, withDisks(disks))
	one := r.newAttached("/dev/xvdaa", func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("of", "volume", "own", "1") })
	two := r.newAttached("/dev/xvdab")
	out := r.newAttached("/dev/xvdac")
	r.newVolume()
	disks.log = nil
	got, err := r.createSnapshots(r.Client, without(out), func(i *ec2.CreateSnapshotsInput) {
		i.Description, i.CopyTagsFromSource, i.TagSpecifications = aws.String("group"), types.CopyTagsFromSourceVolume, snapshotTags("of", "request")
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || *got[0].VolumeId != one || *got[1].VolumeId != two {
		t.Fatalf("%d snapshots %+v, want those of %s and %s", len(got), got, one, two)
	}
	wantSame(t, []any{types.SnapshotStatePending, int32(10), "0%", "group", start.Add(7 * time.Minute)},
		[]any{got[0].State, *got[0].VolumeSize, *got[0].Progress, *got[0].Description, got[0].StartTime.UTC()})
	if !got[0].StartTime.Equal(*got[1].StartTime) {
		t.Errorf("taken at %v and %v, want one instant", got[0].StartTime, got[1].StartTime)
	}
	first, second := min(one, two), max(one, two)
	wantSame(t, []string{"snapshot " + first + " " + second}, disks.log)
	sn, _ := r.Snapshot(*got[0].SnapshotId)
	wantSame(t, map[string]string{"of": "request", "own": "1"}, sn.Tags)
	r.pass(time.Minute)
	sn, _ = r.Snapshot(*got[1].SnapshotId)
	wantSame(t, []any{"completed", two, map[string]string{"of": "request"}}, []any{sn.State, sn.VolumeID, sn.Tags})
}

// TestSnapshotsOfVolumesOnTheirWay: whatever the state of its attachment is, a
// volume of the instance is taken.
func TestSnapshotsOfVolumesOnTheirWay(t *testing.T) {
	r := newRegion(t)
	leaving, coming := r.newAttached("/dev/xvdaa"), r.newVolume()
	wantCode(t, r.detach(leaving, instanceA), "")
	wantCode(t, r.attach(coming, instanceA, "/dev/xvdab"), "")
	got, err := r.createSnapshots(r.Client)
	if err != nil || len(got) != 2 || *got[0].VolumeId != leaving || *got[1].VolumeId != coming {
		t.Errorf("%v %+v, want snapshots of %s and %s", err, got, leaving, coming)
	}
}

func TestCreateSnapshotsRules(t *testing.T) {
	many := make([]string, 41)
	for i := range many {
		many[i] = fmt.Sprintf("vol-%017x", i)
	}
	slow := ec2sim.Delays{Snapshot: ec2sim.Duration(time.Hour)}
	rows := map[string]struct {
		before func(r *region, vol string)
		change func(*region, string) func(*ec2.CreateSnapshotsInput)
		code   string
	}{
		"instance unknown": {nil, func(*region, string) func(*ec2.CreateSnapshotsInput) {
			return func(i *ec2.CreateSnapshotsInput) {
				i.InstanceSpecification.InstanceId = aws.String("i-00000000000000000")
			}
		}, "InvalidInstanceID.NotFound"},
		"41 left out":            {nil, func(*region, string) func(*ec2.CreateSnapshotsInput) { return without(many...) }, "InvalidParameterValue"},
		"malformed left out":     {nil, func(*region, string) func(*ec2.CreateSnapshotsInput) { return without("vol-xyz") }, "InvalidVolumeID.Malformed"},
		"left out, not attached": {nil, func(r *region, _ string) func(*ec2.CreateSnapshotsInput) { return without(r.newVolume()) }, "InvalidParameterValue"},
		"root left out by id": {nil, func(r *region, _ string) func(*ec2.CreateSnapshotsInput) {
			return without(r.Instances()[0].RootID)
		}, "InvalidParameterValue"},
		"nothing left": {nil, func(r *region, vol string) func(*ec2.CreateSnapshotsInput) {
			return without(vol, r.Volumes()[0].ID, r.Volumes()[1].ID)
		}, "InvalidParameterValue"},
		"tags of something else": {nil, func(*region, string) func(*ec2.CreateSnapshotsInput) {
			return func(i *ec2.CreateSnapshotsInput) { i.CopyTagsFromSource = "instance" }
		}, "InvalidParameterValue"},
		"51 tags with the volume's": {func(r *region, vol string) {
			for n := range 50 {
				raw(r.t, r.url, form("CreateTags", "ResourceId.1="+vol, fmt.Sprintf("Tag.1.Key=k%d", n), "Tag.1.Value=v"))
			}
		}, func(*region, string) func(*ec2.CreateSnapshotsInput) {
			return func(i *ec2.CreateSnapshotsInput) {
				i.CopyTagsFromSource, i.TagSpecifications = types.CopyTagsFromSourceVolume, snapshotTags("one", "more")
			}
		}, "TagLimitExceeded"},
		"one volume too soon": {func(r *region, vol string) {
			_, err := r.CreateSnapshot(r.t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol})
			wantCode(r.t, err, "")
		}, nil, "SnapshotCreationPerVolumeRateExceeded"},
		"one volume with five pending": {func(r *region, vol string) {
			r.SetDelays(slow)
			for range 5 {
				_, err := r.CreateSnapshot(r.t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol})
				wantCode(r.t, err, "")
				r.pass(15 * time.Second)
			}
		}, nil, "ConcurrentSnapshotLimitExceeded"},
		"quota for one":         {func(r *region, _ string) { r.SetQuotas(ec2sim.Quotas{Snapshots: 1}) }, nil, "SnapshotLimitExceeded"},
		"quota for one pending": {func(r *region, _ string) { r.SetQuotas(ec2sim.Quotas{PendingSnapshots: 1}) }, nil, "PendingSnapshotLimitExceeded"},
		"quota for two":         {func(r *region, _ string) { r.SetQuotas(ec2sim.Quotas{Snapshots: 2, PendingSnapshots: 2}) }, nil, ""},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.newAttached("/dev/xvdab")
			vol := r.newAttached("/dev/xvdaa")
			var changes []func(*ec2.CreateSnapshotsInput)
			if row.before != nil {
				row.before(r, vol)
			}
			if row.change != nil {
				changes = append(changes, row.change(r, vol))
			}
			before := len(r.Snapshots())
			_, err := r.createSnapshots(r.Client, changes...)
			wantCode(t, err, row.code)
			if made := len(r.Snapshots()) - before; (made == 2) != (row.code == "") || made != 0 && made != 2 {
				t.Errorf("%d snapshots were made", made)
			}
		})
	}
}

// TestSnapshotsOfARootDiskAreNotModelled: it has no content here.
func TestSnapshotsOfARootDiskAreNotModelled(t *testing.T) {
	r := newRegion(t)
	r.newAttached("/dev/xvdaa")
	_, err := r.createSnapshots(r.Client, func(i *ec2.CreateSnapshotsInput) { i.InstanceSpecification.ExcludeBootVolume = nil })
	wantCode(t, err, "NotModelled.Action")
	r.ResetUnmodelled()
}

// TestSnapshotsThatCannotBeMade: all or none.
func TestSnapshotsThatCannotBeMade(t *testing.T) {
	d := &recorder{}
	r := newRegion(t, withDisks(d))
	r.newAttached("/dev/xvdaa")
	r.newAttached("/dev/xvdab")
	d.broken = errors.New("disk full")
	_, err := r.createSnapshots(r.Client)
	wantCode(t, err, "InternalError")
	if n := len(r.Snapshots()); n != 0 {
		t.Errorf("%d snapshots left", n)
	}
	d.broken = nil
	_, err = r.createSnapshots(r.Client)
	wantCode(t, err, "") // the failed ones do not count against the rate
}

// TestLostAnswerOfSnapshots: there is no token, so the SDK's own repeat makes a
// second set, unless the rate of a volume is in the way.
func TestLostAnswerOfSnapshots(t *testing.T) {
	for spacing, want := range map[time.Duration]struct {
		code string
		made int
	}{0: {"", 2}, time.Hour: {"SnapshotCreationPerVolumeRateExceeded", 1}} {
		r := newRegion(t)
		r.newAttached("/dev/xvdaa")
		r.SetDelays(ec2sim.Delays{SnapshotSpacing: ec2sim.Duration(spacing)})
		r.inject(ec2sim.Fault{Action: "CreateSnapshots", LostAnswer: ec2sim.LostAfter})
		_, err := r.createSnapshots(ec2.NewFromConfig(ec2sim.ClientConfig(r.url)))
		wantCode(t, err, want.code)
		if n := len(r.Snapshots()); n != want.made {
			t.Errorf("spaced by %v: %d snapshots, want %d", spacing, n, want.made)
		}
	}
}

// TestPolicyOnSnapshotsOfAnInstance: the instance, every volume and every new
// snapshot are asked for, and the tagging by ec2:CreateAction, also of tags
// that come from the volumes.
func TestPolicyOnSnapshotsOfAnInstance(t *testing.T) {
	const statements = `{"Version": "2012-10-17", "Statement": [
	  {"Sid": "Old", "Effect": "Allow", "Action": "ec2:CreateSnapshots", "Resource": ["arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:*:*:volume/*"]},
	  {"Sid": "New", "Effect": "Allow", "Action": "ec2:CreateSnapshots", "Resource": "arn:aws:ec2:*::snapshot/*",
	   "Condition": {"StringEquals": {"aws:RequestTag/cluster": "true"}}},
	  {"Sid": "Tag", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*", "Condition": {"StringEquals": {"ec2:CreateAction": "%s"}}},
	  {"Sid": "Not", "Effect": "Deny", "Action": "ec2:CreateSnapshots", "Resource": "*", "Condition": {"StringEquals": {"ec2:ResourceTag/secret": "true"}}}]}`
	tagged := func(kv ...string) func(*ec2.CreateSnapshotsInput) {
		return func(i *ec2.CreateSnapshotsInput) { i.TagSpecifications = snapshotTags(kv...) }
	}
	copying := func(i *ec2.CreateSnapshotsInput) { i.CopyTagsFromSource = types.CopyTagsFromSourceVolume }
	for _, row := range []struct {
		why, createAction string
		volumeTags        []string
		change            func(*ec2.CreateSnapshotsInput)
		code              string
	}{
		{"all of them allowed", "CreateSnapshots", nil, tagged("cluster", "true"), ""},
		{"a volume that is denied", "CreateSnapshots", []string{"secret", "true"}, tagged("cluster", "true"), "UnauthorizedOperation"},
		{"the new one without its tag", "CreateSnapshots", nil, tagged("cluster", "false"), "UnauthorizedOperation"},
		{"tagging for another action", "CreateSnapshot", nil, tagged("cluster", "true"), "UnauthorizedOperation"},
		{"a volume's tag is not the request's", "CreateSnapshots", []string{"cluster", "true"}, copying, "UnauthorizedOperation"},
	} {
		t.Run(row.why, func(t *testing.T) {
			policy, err := iam.Parse(fmt.Appendf(nil, statements, row.createAction), ec2sim.KnownConditionKey)
			if err != nil {
				t.Fatal(err)
			}
			r := newRegion(t)
			r.newAttached("/dev/xvdaa")
			r.newAttached("/dev/xvdab", func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags(row.volumeTags...) })
			r.SetPolicy(driverKey, policy)
			_, err = r.createSnapshots(client(r.url, driverKey), row.change)
			wantCode(t, err, row.code)
		})
	}
}
