package ec2sim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func wantSame(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func volumeTags(kv ...string) []types.TagSpecification {
	spec := types.TagSpecification{ResourceType: types.ResourceTypeVolume}
	for i := 0; i < len(kv); i += 2 {
		spec.Tags = append(spec.Tags, types.Tag{Key: aws.String(kv[i]), Value: aws.String(kv[i+1])})
	}
	return []types.TagSpecification{spec}
}

// TestCreateVolumeRules has one row for each rule of CreateVolume.
func TestCreateVolumeRules(t *testing.T) {
	in := func(change func(*ec2.CreateVolumeInput)) *ec2.CreateVolumeInput {
		i := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3}
		change(i)
		return i
	}
	sized := func(typ types.VolumeType, size int32) *ec2.CreateVolumeInput {
		return in(func(i *ec2.CreateVolumeInput) { i.VolumeType, i.Size = typ, aws.Int32(size) })
	}
	iops := func(typ types.VolumeType, size, iops int32) *ec2.CreateVolumeInput {
		i := sized(typ, size)
		i.Iops = aws.Int32(iops)
		return i
	}
	mibs := func(typ types.VolumeType, iops *int32, mibs int32) *ec2.CreateVolumeInput {
		i := sized(typ, 1000)
		i.Iops, i.Throughput = iops, aws.Int32(mibs)
		return i
	}
	rows := map[string]struct {
		in   *ec2.CreateVolumeInput
		code string
	}{
		"no zone":              {in(func(i *ec2.CreateVolumeInput) { i.AvailabilityZone = nil }), "MissingParameter"},
		"zone by id":           {in(func(i *ec2.CreateVolumeInput) { i.AvailabilityZone, i.AvailabilityZoneId = nil, aws.String("use1-az2") }), ""},
		"zone by name and id":  {in(func(i *ec2.CreateVolumeInput) { i.AvailabilityZoneId = aws.String("use1-az1") }), "InvalidParameterCombination"},
		"zone unknown":         {in(func(i *ec2.CreateVolumeInput) { i.AvailabilityZone = aws.String("us-east-1q") }), "InvalidZone.NotFound"},
		"no size, no snapshot": {in(func(i *ec2.CreateVolumeInput) { i.Size = nil }), "MissingParameter"},
		"type unknown":         {sized("gp9", 10), "UnknownVolumeType"},
		"gp3 0":                {sized(types.VolumeTypeGp3, 0), "InvalidParameterValue"},
		"gp3 65536":            {sized(types.VolumeTypeGp3, 65536), ""},
		"gp3 65537":            {sized(types.VolumeTypeGp3, 65537), "InvalidParameterValue"},
		"gp2 16385":            {sized(types.VolumeTypeGp2, 16385), "InvalidParameterValue"},
		"st1 124":              {sized(types.VolumeTypeSt1, 124), "InvalidParameterValue"},
		"st1 125":              {sized(types.VolumeTypeSt1, 125), ""},
		"sc1 16385":            {sized(types.VolumeTypeSc1, 16385), "InvalidParameterValue"},
		"standard 1025":        {sized(types.VolumeTypeStandard, 1025), "InvalidParameterValue"},
		"io1 3":                {iops(types.VolumeTypeIo1, 3, 100), "InvalidParameterValue"},
		"io1 without iops":     {sized(types.VolumeTypeIo1, 10), "MissingParameter"},
		"io1 ratio":            {iops(types.VolumeTypeIo1, 10, 501), "InvalidParameterValue"},
		"io1 50 per GiB":       {iops(types.VolumeTypeIo1, 10, 500), ""},
		"io1 64001":            {iops(types.VolumeTypeIo1, 16384, 64001), "InvalidParameterValue"},
		"io2 99":               {iops(types.VolumeTypeIo2, 10, 99), "InvalidParameterValue"},
		"io2 1000 per GiB":     {iops(types.VolumeTypeIo2, 256, 256000), ""},
		"io2 256001":           {iops(types.VolumeTypeIo2, 65536, 256001), "InvalidParameterCombination"},
		"gp3 3000 at 1 GiB":    {iops(types.VolumeTypeGp3, 1, 3000), ""},
		"gp3 3001 at 1 GiB":    {iops(types.VolumeTypeGp3, 1, 3001), "InvalidParameterValue"},
		"gp3 80001":            {iops(types.VolumeTypeGp3, 1000, 80001), "InvalidParameterValue"},
		"gp2 with iops":        {iops(types.VolumeTypeGp2, 10, 300), "InvalidParameterCombination"},
		"gp3 126 at 3000":      {mibs(types.VolumeTypeGp3, nil, 126), ""},
		"gp3 751 at 3000":      {mibs(types.VolumeTypeGp3, nil, 751), "InvalidParameterValue"},
		"gp3 2000 at 8000":     {mibs(types.VolumeTypeGp3, aws.Int32(8000), 2000), ""},
		"gp3 2001":             {mibs(types.VolumeTypeGp3, aws.Int32(80000), 2001), "InvalidParameterValue"},
		"gp3 124":              {mibs(types.VolumeTypeGp3, nil, 124), "InvalidParameterValue"},
		"io2 with throughput":  {mibs(types.VolumeTypeIo2, aws.Int32(1000), 200), "InvalidParameterCombination"},
		"multi-attach on gp3":  {in(func(i *ec2.CreateVolumeInput) { i.MultiAttachEnabled = aws.Bool(true) }), "InvalidParameterCombination"},
		"key, not encrypted":   {in(func(i *ec2.CreateVolumeInput) { i.KmsKeyId = aws.String("alias/x") }), "InvalidParameterDependency"},
		"rate, no snapshot":    {in(func(i *ec2.CreateVolumeInput) { i.VolumeInitializationRate = aws.Int32(100) }), "InvalidParameterDependency"},
		"snapshot unknown":     {in(func(i *ec2.CreateVolumeInput) { i.SnapshotId = aws.String("snap-00000000000000000") }), "InvalidSnapshot.NotFound"},
		"snapshot malformed":   {in(func(i *ec2.CreateVolumeInput) { i.SnapshotId = aws.String("snap-xyz") }), "InvalidSnapshotID.Malformed"},
		"tag on another kind": {in(func(i *ec2.CreateVolumeInput) {
			i.TagSpecifications = []types.TagSpecification{{ResourceType: "snapshot"}}
		}), "InvalidParameterValue"},
		"tag reserved":   {in(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("aws:x", "y") }), "InvalidParameterValue"},
		"tag twice":      {in(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("x", "y", "x", "z") }), "InvalidParameterValue"},
		"token too long": {in(func(i *ec2.CreateVolumeInput) { i.ClientToken = aws.String(string(make([]byte, 65))) }), "InvalidParameterValue"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			_, err := r.CreateVolume(t.Context(), row.in)
			wantCode(t, err, row.code)
			if n := len(r.Volumes()); (n == 1) != (row.code == "") {
				t.Errorf("%d volumes after it", n)
			}
		})
	}
}

func TestCreateVolumeFillsIn(t *testing.T) {
	r := newRegion(t)
	out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZoneId: aws.String("use1-az2"), Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true),
		TagSpecifications: volumeTags("CSIVolumeName", "pvc-1", "empty", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := r.Volume(*out.VolumeId)
	want := ec2sim.Volume{
		ID: *out.VolumeId, Zone: zoneB, SizeGiB: 10, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125, Encrypted: true,
		KMSKeyID: "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-0000000000eb",
		Created:  start, State: "creating", Until: start.Add(1500 * time.Millisecond),
		Tags: map[string]string{"CSIVolumeName": "pvc-1", "empty": ""},
	}
	wantSame(t, want, got)
	if *out.AvailabilityZone != zoneB || *out.Size != 10 || *out.Iops != 3000 || !*out.Encrypted || len(out.Tags) != 2 {
		t.Errorf("answer %+v", out)
	}
	gp2, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(100)})
	if err != nil || gp2.VolumeType != types.VolumeTypeGp2 || *gp2.Iops != 300 {
		t.Errorf("without a type: %v %+v, want gp2 with 3 IOPS a GiB", err, gp2)
	}
}

// TestClientToken: the same token makes one volume.
func TestClientToken(t *testing.T) {
	r := newRegion(t)
	create := func(zone string, size int32, tags ...string) (string, error) {
		out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
			AvailabilityZone: aws.String(zone), Size: aws.Int32(size), ClientToken: aws.String("token"), TagSpecifications: volumeTags(tags...)})
		if err != nil {
			return "", err
		}
		return *out.VolumeId, nil
	}
	first, err := create(zoneA, 1, "a", "1", "b", "2")
	wantCode(t, err, "")
	again, err := create(zoneA, 1, "b", "2", "a", "1")
	wantCode(t, err, "")
	if first != again {
		t.Errorf("the same request, tags in another order, made %s beside %s", again, first)
	}
	_, err = create(zoneA, 2, "a", "1", "b", "2")
	wantCode(t, err, "IdempotentParameterMismatch")
	_, err = create(zoneA, 1, "a", "1", "b", "3")
	wantCode(t, err, "IdempotentParameterMismatch")
	elsewhere, err := create(zoneB, 1, "a", "1", "b", "2")
	wantCode(t, err, "")
	if elsewhere == first {
		t.Error("a token is good for one zone, yet another zone got the same volume")
	}

	r.pass(time.Minute)
	again, err = create(zoneA, 1, "a", "1", "b", "2")
	wantCode(t, err, "")
	if got := r.states(again); again != first || got[0] != "available" {
		t.Errorf("a late repeat: %s %v, want the current state of %s", again, got, first)
	}
	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &first})
	wantCode(t, err, "")
	_, err = create(zoneA, 1, "a", "1", "b", "2")
	wantCode(t, err, "IdempotentParameterMismatch")
	r.pass(12 * time.Hour)
	late, err := create(zoneA, 1, "a", "1", "b", "2")
	wantCode(t, err, "")
	if late == first {
		t.Error("a forgotten token gave the old volume")
	}
}

func TestVolumeQuotas(t *testing.T) {
	r := newRegion(t)
	r.SetQuotas(ec2sim.Quotas{Volumes: 2, IOPS: 7000})
	r.newVolume()
	_, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3, Iops: aws.Int32(4001)})
	wantCode(t, err, "MaxIOPSLimitExceeded")
	r.newVolume()
	_, err = r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10)})
	wantCode(t, err, "VolumeLimitExceeded")
	vol := r.Volumes()[0].ID
	for iops, want := range map[int32]string{4001: "MaxIOPSLimitExceeded", 4000: ""} {
		_, err = r.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &vol, Iops: &iops})
		wantCode(t, err, want)
		r.pass(time.Minute)
	}
	r.SetQuotas(ec2sim.Quotas{IOPS: 1})
	wantCode(t, r.grow(vol, 20), "") // what asks for no more IOPS
}
