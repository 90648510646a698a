package ec2sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

func (r *region) copyVolume(source string, change ...func(*ec2.CopyVolumesInput)) (types.Volume, error) {
	r.t.Helper()
	in := &ec2.CopyVolumesInput{SourceVolumeId: &source}
	for _, c := range change {
		c(in)
	}
	out, err := r.CopyVolumes(r.t.Context(), in)
	if err != nil {
		return types.Volume{}, err
	}
	if len(out.Volumes) != 1 {
		r.t.Fatalf("%d volumes in the answer, want one", len(out.Volumes))
	}
	return out.Volumes[0], nil
}

// TestCopyVolume: the copy is a volume of its own in the source's zone, with
// the request's type and size and the source's encryption.
func TestCopyVolume(t *testing.T) {
	disks := &recorder{}
	r := newRegion(t, withDisks(disks))
	key := "arn:aws:kms:us-east-1:000000000000:key/1"
	source := r.newVolume(func(i *ec2.CreateVolumeInput) {
		i.AvailabilityZone, i.Encrypted, i.KmsKeyId, i.TagSpecifications = aws.String(zoneB), aws.Bool(true), &key, volumeTags("of", "source")
	})
	copied, err := r.copyVolume(source, func(i *ec2.CopyVolumesInput) {
		i.Size, i.VolumeType, i.Iops, i.Throughput = aws.Int32(20), types.VolumeTypeGp3, aws.Int32(4000), aws.Int32(500)
		i.TagSpecifications = volumeTags("of", "copy")
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, []any{types.VolumeStateCreating, source, int32(20), zoneB}, []any{copied.State, *copied.SourceVolumeId, *copied.Size, *copied.AvailabilityZone})
	now := r.clock.Now()
	got, _ := r.Volume(*copied.VolumeId)
	wantSame(t, ec2sim.Volume{
		ID: *copied.VolumeId, Zone: zoneB, SizeGiB: 20, Type: "gp3", IOPS: 4000, ThroughputMiBs: 500, Encrypted: true, KMSKeyID: key,
		SourceVolumeID: source, Initialized: now, Created: now, State: "creating", Until: now.Add(1500 * time.Millisecond),
		Tags: map[string]string{"of": "copy"},
	}, got)
	if want := "copy " + source + " " + *copied.VolumeId; !slices.Contains(disks.log, want) {
		t.Errorf("disks did %q, want %q among it", disks.log, want)
	}
	r.pass(2 * time.Second)
	wantSame(t, []string{"available"}, r.states(*copied.VolumeId))
	found, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{*copied.VolumeId, source}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found.Volumes {
		if want := *v.VolumeId == *copied.VolumeId; want != (v.SourceVolumeId != nil) {
			t.Errorf("%s has source %v", *v.VolumeId, v.SourceVolumeId)
		}
	}
	plain, err := r.copyVolume(r.newVolume())
	if err != nil || plain.VolumeType != types.VolumeTypeGp2 || *plain.Size != 10 || *plain.Encrypted {
		t.Errorf("nothing said: %v %+v, want gp2 with the source's size, not encrypted", err, plain)
	}
}

// TestEncryptionOfCopies: a copy of an encrypted volume is encrypted whatever
// the request says, with the request's key or else the source's.
func TestEncryptionOfCopies(t *testing.T) {
	r := newRegion(t)
	key, other := "arn:aws:kms:us-east-1:000000000000:key/1", "arn:aws:kms:us-east-1:000000000000:key/2"
	plain := r.newVolume()
	encrypted := r.newVolume(func(i *ec2.CreateVolumeInput) { i.Encrypted, i.KmsKeyId = aws.Bool(true), &key })
	byDefault := "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-0000000000eb"
	for _, row := range []struct {
		why, source string
		change      func(*ec2.CopyVolumesInput)
		key         string
	}{
		{"a plain one stays plain", plain, func(*ec2.CopyVolumesInput) {}, ""},
		{"a plain one is encrypted on demand", plain, func(i *ec2.CopyVolumesInput) { i.Encrypted = aws.Bool(true) }, byDefault},
		{"with a key", plain, func(i *ec2.CopyVolumesInput) { i.Encrypted, i.KmsKeyId = aws.Bool(true), &other }, other},
		{"an encrypted one stays encrypted", encrypted, func(i *ec2.CopyVolumesInput) { i.Encrypted = aws.Bool(false) }, key},
		{"and takes another key", encrypted, func(i *ec2.CopyVolumesInput) { i.KmsKeyId = &other }, other},
	} {
		v, err := r.copyVolume(row.source, row.change)
		if err != nil || aws.ToString(v.KmsKeyId) != row.key || *v.Encrypted != (row.key != "") {
			t.Errorf("%s: %v, encrypted %v with %q, want %q", row.why, err, aws.ToBool(v.Encrypted), aws.ToString(v.KmsKeyId), row.key)
		}
	}
}

// TestCopyVolumeRules has one row for each rule of CopyVolumes.
func TestCopyVolumeRules(t *testing.T) {
	with := func(change func(*ec2.CopyVolumesInput)) func(*region, string) error {
		return func(r *region, source string) error {
			_, err := r.copyVolume(source, change)
			return err
		}
	}
	of := func(source string) func(*region, string) error {
		return func(r *region, _ string) error {
			_, err := r.copyVolume(source)
			return err
		}
	}
	rows := map[string]struct {
		do   func(*region, string) error
		code string
	}{
		"as it is":           {with(func(*ec2.CopyVolumesInput) {}), ""},
		"smaller":            {with(func(i *ec2.CopyVolumesInput) { i.Size = aws.Int32(9) }), "InvalidParameterValue"},
		"beyond the type":    {with(func(i *ec2.CopyVolumesInput) { i.Size = aws.Int32(16385) }), "InvalidParameterValue"},
		"too small for type": {with(func(i *ec2.CopyVolumesInput) { i.VolumeType = types.VolumeTypeSt1 }), "InvalidParameterValue"},
		"io2 without iops":   {with(func(i *ec2.CopyVolumesInput) { i.VolumeType = types.VolumeTypeIo2 }), "MissingParameter"},
		"io2, multi-attach": {with(func(i *ec2.CopyVolumesInput) {
			i.VolumeType, i.Iops, i.MultiAttachEnabled = "io2", aws.Int32(100), aws.Bool(true)
		}), ""},
		"gp2 with throughput":  {with(func(i *ec2.CopyVolumesInput) { i.Throughput = aws.Int32(125) }), "InvalidParameterCombination"},
		"encrypted on the way": {with(func(i *ec2.CopyVolumesInput) { i.Encrypted = aws.Bool(true) }), ""},
		"key, not encrypted":   {with(func(i *ec2.CopyVolumesInput) { i.KmsKeyId = aws.String("alias/x") }), "InvalidParameterDependency"},
		"tag reserved":         {with(func(i *ec2.CopyVolumesInput) { i.TagSpecifications = volumeTags("aws:x", "y") }), "InvalidParameterValue"},
		"token too long":       {with(func(i *ec2.CopyVolumesInput) { i.ClientToken = aws.String(string(make([]byte, 65))) }), "InvalidParameterValue"},
		"source unknown":       {of(absentVolume), "InvalidVolume.NotFound"},
		"source malformed":     {of("vol-xyz"), "InvalidVolumeID.Malformed"},
		"source is creating": {func(r *region, _ string) error {
			made, err := r.CreateVolume(r.t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
			if err != nil {
				return err
			}
			_, err = r.copyVolume(*made.VolumeId)
			return err
		}, "IncorrectState"},
		"source is being deleted": {func(r *region, source string) error {
			_, err := r.DeleteVolume(r.t.Context(), &ec2.DeleteVolumeInput{VolumeId: &source})
			if err != nil {
				return err
			}
			_, err = r.copyVolume(source)
			return err
		}, "InvalidVolume.NotFound"},
		"source is attached": {func(r *region, source string) error {
			if err := r.attach(source, instanceA, "/dev/xvdaa"); err != nil {
				return err
			}
			_, err := r.copyVolume(source)
			return err
		}, ""},
		"quota": {func(r *region, source string) error {
			r.SetQuotas(ec2sim.Quotas{Volumes: 1})
			_, err := r.copyVolume(source)
			return err
		}, "VolumeLimitExceeded"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			wantCode(t, row.do(r, r.newVolume()), row.code)
			copies := 0
			for _, v := range r.Volumes() {
				if v.SourceVolumeID != "" {
					copies++
				}
			}
			if (copies == 1) != (row.code == "") {
				t.Errorf("%d copies after it", copies)
			}
		})
	}
}

// TestCopyOfARootDiskIsNotModelled: it has no content here, so a copy of it
// would be a lie.
func TestCopyOfARootDiskIsNotModelled(t *testing.T) {
	r := newRegion(t)
	_, err := r.copyVolume(r.Instances()[0].RootID)
	wantCode(t, err, "NotModelled.Action")
	r.ResetUnmodelled()
}

// TestCopyToken: the same token makes one copy; another source is another
// request, and so is CreateVolume.
func TestCopyToken(t *testing.T) {
	r := newRegion(t)
	one, two := r.newVolume(), r.newVolume()
	token := func(i *ec2.CopyVolumesInput) { i.ClientToken = aws.String("tok") }
	first, err := r.copyVolume(one, token)
	wantCode(t, err, "")
	r.pass(time.Minute)
	again, err := r.copyVolume(one, token)
	wantCode(t, err, "")
	if *again.VolumeId != *first.VolumeId || again.State != types.VolumeStateAvailable {
		t.Errorf("a repeat gave %s %s, want the current state of %s", *again.VolumeId, again.State, *first.VolumeId)
	}
	_, err = r.copyVolume(two, token)
	wantCode(t, err, "IdempotentParameterMismatch")
	_, err = r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), ClientToken: aws.String("tok")})
	wantCode(t, err, "IdempotentParameterMismatch")
	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: first.VolumeId})
	wantCode(t, err, "")
	_, err = r.copyVolume(one, token)
	wantCode(t, err, "IdempotentParameterMismatch")
}

// TestLostAnswerOfACopy: the SDK's own repeat carries the same token, so one
// copy is made and found, although only one may be initializing.
func TestLostAnswerOfACopy(t *testing.T) {
	r := newRegion(t)
	source := r.newVolume()
	r.SetDelays(ec2sim.Delays{Initialize: ec2sim.Duration(time.Hour)})
	r.inject(ec2sim.Fault{Action: "CopyVolumes", LostAnswer: ec2sim.LostAfter})
	out, err := ec2.NewFromConfig(ec2sim.ClientConfig(r.url)).CopyVolumes(t.Context(), &ec2.CopyVolumesInput{SourceVolumeId: &source})
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Volumes(); len(v) != 2 || !slices.ContainsFunc(v, func(v ec2sim.Volume) bool { return v.ID == *out.Volumes[0].VolumeId }) {
		t.Errorf("%d volumes, want source and the one copy %s", len(v), *out.Volumes[0].VolumeId)
	}
}

// TestCopyInitializes: a copy is available while its content is on the way,
// which DescribeVolumeStatus tells; until then its source makes no other.
func TestCopyInitializes(t *testing.T) {
	r := newRegion(t)
	source := r.newVolume()
	r.SetDelays(ec2sim.Delays{Initialize: ec2sim.Duration(100 * time.Second)})
	token := func(i *ec2.CopyVolumesInput) { i.ClientToken = aws.String("tok") }
	copied, err := r.copyVolume(source, token)
	wantCode(t, err, "")
	_, err = r.copyVolume(source, token)
	wantCode(t, err, "") // a repeat is not another copy
	r.pass(25 * time.Second)
	wantSame(t, []string{"available"}, r.states(*copied.VolumeId))
	_, err = r.copyVolume(source)
	wantCode(t, err, "ConcurrentCopyVolumeLimitExceeded")
	status := func() []any {
		t.Helper()
		out, err := r.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{VolumeIds: []string{*copied.VolumeId}})
		if err != nil {
			t.Fatal(err)
		}
		s := out.VolumeStatuses[0]
		i := slices.IndexFunc(s.VolumeStatus.Details, func(d types.VolumeStatusDetails) bool { return d.Name == "initialization-state" })
		init := s.InitializationStatusDetails
		return []any{*s.VolumeStatus.Details[i].Status, init.InitializationType, *init.Progress, init.EstimatedTimeToCompleteInSeconds == nil}
	}
	wantSame(t, []any{"initializing", types.InitializationTypeVolumeCopy, int64(25), true}, status())
	r.pass(75 * time.Second)
	wantSame(t, []any{"completed", types.InitializationTypeVolumeCopy, int64(100), true}, status())
	_, err = r.copyVolume(source)
	wantCode(t, err, "")
}

// TestPolicyOnCopies: the source is judged by its own tags, the new volume by
// the request's, and the tagging by ec2:CreateAction.
func TestPolicyOnCopies(t *testing.T) {
	policy, err := iam.Parse([]byte(`{"Version": "2012-10-17", "Statement": [
	  {"Sid": "From", "Effect": "Allow", "Action": "ec2:CopyVolumes", "Resource": "arn:aws:ec2:*:*:volume/vol-*",
	   "Condition": {"StringEquals": {"ec2:ResourceTag/cluster": "true"}}},
	  {"Sid": "New", "Effect": "Allow", "Action": "ec2:CopyVolumes", "Resource": "arn:aws:ec2:*:*:volume/*",
	   "Condition": {"StringEquals": {"aws:RequestTag/cluster": "true"}}},
	  {"Sid": "Tag", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*",
	   "Condition": {"StringEquals": {"ec2:CreateAction": "CopyVolumes"}}}]}`), ec2sim.KnownConditionKey)
	if err != nil {
		t.Fatal(err)
	}
	r := newRegion(t)
	r.SetPolicy(driverKey, policy)
	c := client(r.url, driverKey)
	plain := r.newVolume()
	ours := r.newVolume(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("cluster", "true") })
	for _, row := range []struct {
		why, source string
		tags        []types.TagSpecification
		code        string
	}{
		{"a source without the tag", plain, volumeTags("cluster", "true"), "UnauthorizedOperation"},
		{"a copy without the tag", ours, nil, "UnauthorizedOperation"},
		{"both", ours, volumeTags("cluster", "true"), ""},
	} {
		_, err := c.CopyVolumes(t.Context(), &ec2.CopyVolumesInput{SourceVolumeId: &row.source, TagSpecifications: row.tags})
		if got := code(err); got != row.code {
			t.Errorf("%s: %q (%v), want %q", row.why, got, err, row.code)
		}
	}
	wantSame(t, ec2sim.Permission{Principal: driverKey, Action: "ec2:CreateTags", Kind: "volume", Allowed: true, Statement: "Tag", Count: 1}, r.Permissions()[len(r.Permissions())-1])
}
