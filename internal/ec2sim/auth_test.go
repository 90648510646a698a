package ec2sim_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

// driverPolicy is a policy as drivers of EBS volumes carry it.
const driverPolicy = `{
  "Version": "2012-10-17",
  "Statement": [
    {"Sid": "Look", "Effect": "Allow", "Action": ["ec2:DescribeVolumes", "ec2:DescribeTags"], "Resource": "*"},
    {"Sid": "Create", "Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*:*:volume/*",
     "Condition": {"StringLike": {"aws:RequestTag/cluster": "true"}}},
    {"Sid": "Restore", "Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*::snapshot/*"},
    {"Sid": "Tag", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": ["arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*::snapshot/*"],
     "Condition": {"StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot"]}}},
    {"Sid": "Snap", "Effect": "Allow", "Action": "ec2:CreateSnapshot", "Resource": ["arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*::snapshot/*"]},
    {"Sid": "Attach", "Effect": "Allow", "Action": ["ec2:AttachVolume", "ec2:DetachVolume"], "Resource": "arn:aws:ec2:*:*:volume/*"},
    {"Sid": "AttachTo", "Effect": "Allow", "Action": ["ec2:AttachVolume", "ec2:DetachVolume"], "Resource": "arn:aws:ec2:*:*:instance/i-0000000000000a001"},
    {"Sid": "Delete", "Effect": "Allow", "Action": "ec2:DeleteVolume", "Resource": "*",
     "Condition": {"StringEquals": {"ec2:ResourceTag/cluster": "true"}}},
    {"Sid": "Untag", "Effect": "Allow", "Action": "ec2:DeleteTags", "Resource": "*",
     "Condition": {"ForAllValues:StringEquals": {"aws:TagKeys": ["mine"]}}},
    {"Sid": "Never", "Effect": "Deny", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"ec2:ResourceTag/locked": "true"}}}
  ]
}`

const driverKey = "AKIADRIVER"

// TestPolicyOnCalls: which resources and conditions each call is judged by.
func TestPolicyOnCalls(t *testing.T) {
	r := newRegion(t)
	policy, err := iam.Parse([]byte(driverPolicy), ec2sim.KnownConditionKey)
	if err != nil {
		t.Fatal(err)
	}
	r.SetPolicy(driverKey, policy)
	c, ctx := client(r.url, driverKey), t.Context()
	create := func(snapshot string, tags ...string) error {
		in := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10)}
		if snapshot != "" {
			in.SnapshotId = &snapshot
		}
		if len(tags) > 0 {
			in.TagSpecifications = volumeTags(tags...)
		}
		_, err := c.CreateVolume(ctx, in)
		return err
	}
	plain := r.newVolume()
	ours := r.newVolume(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("cluster", "true") })
	locked := r.newVolume(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("cluster", "true", "locked", "true") })
	snap := r.newSnapshot(plain)
	do := func(err error) error { return err }
	const no = "UnauthorizedOperation"
	rows := []struct {
		why  string
		err  error
		code string
	}{
		{"an action of the policy", do2(c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})), ""},
		{"an action that is not in the policy", do2(c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})), no},
		{"a volume without the tag", do(create("")), no},
		{"a volume with another value of the tag", do(create("", "cluster", "false")), no},
		{"a volume with the tag, and the tagging that is part of it", do(create("", "cluster", "true", "other", "x")), ""},
		{"a volume from a snapshot asks for both", do(create(snap, "cluster", "true")), ""},
		{"a snapshot, and its tags", do2(c.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &ours, TagSpecifications: []types.TagSpecification{{
			ResourceType: "snapshot", Tags: tags("a", "b")}}})), ""},
		{"tags later are another thing than tags at creation", do2(c.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{ours}, Tags: tags("a", "b")})), no},
		{"each resource has to be allowed", do2(c.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &ours, InstanceId: aws.String(instanceB), Device: aws.String("/dev/sdb")})), no},
		{"and these are", do2(c.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &ours, InstanceId: aws.String(instanceA), Device: aws.String("/dev/sdb")})), ""},
		{"a detach that names no instance is about the one it is at", do2(c.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &ours})), ""},
		{"a tag of the resource", do2(c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &plain})), no},
		{"a deny wins", do2(c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &locked})), no},
		{"a dry run is refused as well", do2(c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &plain, DryRun: aws.Bool(true)})), no},
		{"the keys of tags", do2(c.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{plain}, Tags: tags("mine", "")})), ""},
		{"all the keys", do2(c.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{plain}, Tags: tags("mine", "", "other", "")})), no},
		{"what does not exist is not found", do2(c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: aws.String(absentVolume)})), "InvalidVolume.NotFound"},
	}
	for _, row := range rows {
		if got := code(row.err); got != row.code {
			t.Errorf("%s: %q (%v), want %q", row.why, got, row.err, row.code)
		}
	}
	if _, still := r.Volume(locked); !still {
		t.Error("a denied delete deleted")
	}
	r.SetPolicy(driverKey, nil)
	_, err = c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &locked})
	wantCode(t, err, "")
}

func do2[T any](_ T, err error) error { return err }

// TestRefusalNamesWhoWhatWhere: the text says which principal may not do which
// action on which resource.
func TestRefusalNamesWhoWhatWhere(t *testing.T) {
	r := newRegion(t)
	policy, err := iam.Parse([]byte(driverPolicy), ec2sim.KnownConditionKey)
	if err != nil {
		t.Fatal(err)
	}
	r.SetPolicy(driverKey, policy)
	vol := r.newVolume()
	_, err = client(r.url, driverKey).DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &vol})
	wantCode(t, err, "UnauthorizedOperation")
	for _, part := range []string{"user/" + driverKey, "ec2:DeleteVolume", "arn:aws:ec2:us-east-1:000000000000:volume/" + vol, "StatusCode: 403"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

// TestPermissionsTellWhatIsUsed: which statement let which action pass.
func TestPermissionsTellWhatIsUsed(t *testing.T) {
	r := newRegion(t)
	policy, err := iam.Parse([]byte(driverPolicy), ec2sim.KnownConditionKey)
	if err != nil {
		t.Fatal(err)
	}
	r.SetPolicy(driverKey, policy)
	c := client(r.url, driverKey)
	for range 2 {
		if _, err := c.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
			AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1), TagSpecifications: volumeTags("cluster", "true")}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	wantCode(t, err, "UnauthorizedOperation")
	wantSame(t, []ec2sim.Permission{
		{Principal: driverKey, Action: "ec2:CreateTags", Kind: "volume", Allowed: true, Statement: "Tag", Count: 2},
		{Principal: driverKey, Action: "ec2:CreateVolume", Kind: "volume", Allowed: true, Statement: "Create", Count: 2},
		{Principal: driverKey, Action: "ec2:DescribeInstances", Kind: "*", Count: 1},
	}, get[[]ec2sim.Permission](r, "permissions"))
}
