package ec2sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func tags(kv ...string) []types.Tag { return volumeTags(kv...)[0].Tags }

func TestTags(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("a", "1", "b", "2", "c", "3") })
	snap := r.newSnapshot(vol)
	have := func(why string, want map[string]string) {
		t.Helper()
		v, _ := r.Volume(vol)
		if len(want) != len(v.Tags) {
			t.Errorf("%s: %v, want %v", why, v.Tags, want)
		}
		wantSame(t, want, v.Tags)
	}
	_, err := r.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{vol, snap, instanceA}, Tags: tags("a", "new", "d", "4")})
	wantCode(t, err, "")
	have("tags are added and replaced", map[string]string{"a": "new", "b": "2", "c": "3", "d": "4"})
	_, err = r.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{vol}, Tags: []types.Tag{
		{Key: aws.String("a")}, {Key: aws.String("b"), Value: aws.String("other")}, {Key: aws.String("c"), Value: aws.String("3")}}})
	wantCode(t, err, "")
	have("a tag with another value stays", map[string]string{"b": "2", "d": "4"})

	out, err := r.DescribeTags(t.Context(), &ec2.DescribeTagsInput{Filters: filters("key", "d")})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, d := range out.Tags {
		kinds[*d.ResourceId] = string(d.ResourceType) + "=" + *d.Value
	}
	wantSame(t, map[string]string{vol: "volume=4", snap: "snapshot=4", instanceA: "instance=4"}, kinds)
	for why, f := range map[string][]types.Filter{
		"by resource": filters("resource-id", vol, "value", "2"),
		"by kind":     filters("resource-type", "volume", "key", "b"),
		"by tag":      filters("tag:b", "2"),
	} {
		out, err := r.DescribeTags(t.Context(), &ec2.DescribeTagsInput{Filters: f})
		if err != nil || len(out.Tags) != 1 || *out.Tags[0].ResourceId != vol {
			t.Errorf("%s: %v %+v", why, err, out.Tags)
		}
	}
	_, err = r.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{vol}})
	wantCode(t, err, "")
	have("without tags all go", map[string]string{})
}

func TestTagRefusals(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) {
		var kv []string
		for n := range 50 {
			kv = append(kv, fmt.Sprintf("k%d", n), "v")
		}
		i.TagSpecifications = volumeTags(kv...)
	})
	rows := []struct {
		why  string
		ids  []string
		tags []types.Tag
		code string
	}{
		{"50 tags are the limit", []string{vol}, tags("one", "more"), "TagLimitExceeded"},
		{"replacing is no more", []string{vol}, tags("k1", "new"), ""},
		{"aws: is reserved", []string{vol}, tags("AWS:x", "y"), "InvalidParameterValue"},
		{"a key has a name", []string{vol}, tags("", "y"), "InvalidParameterValue"},
		{"a key has 128 characters", []string{instanceA}, tags(strings.Repeat("k", 129), "y"), "InvalidParameterValue"},
		{"a value has 256 characters", []string{instanceA}, tags("k", strings.Repeat("v", 257)), "InvalidParameterValue"},
		{"there is a tag", []string{vol}, nil, "MissingParameter"},
		{"there is a resource", nil, tags("a", "b"), "MissingParameter"},
		{"the resource is of a kind", []string{"ami-1"}, tags("a", "b"), "InvalidID"},
		{"the resource exists", []string{absentVolume}, tags("a", "b"), "InvalidVolume.NotFound"},
		{"all resources exist or none is tagged", []string{instanceB, absentVolume}, tags("a", "b"), "InvalidVolume.NotFound"},
	}
	for _, row := range rows {
		status, code := raw(t, r.url, tagForm(row.ids, row.tags))
		if code != row.code {
			t.Errorf("%s: %d %q, want %q", row.why, status, code, row.code)
		}
	}
	for _, i := range r.Instances() {
		if len(i.Tags) > 0 {
			t.Errorf("%s was tagged by a refused call: %v", i.ID, i.Tags)
		}
	}
	_, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1),
		TagSpecifications: volumeTags("x", strings.Repeat("v", 257))})
	wantCode(t, err, "InvalidParameterValue")
}

// tagForm is CreateTags without the checks that the SDK makes before sending.
func tagForm(ids []string, tags []types.Tag) string {
	var pairs []string
	for i, id := range ids {
		pairs = append(pairs, fmt.Sprintf("ResourceId.%d=%s", i+1, id))
	}
	for i, tag := range tags {
		pairs = append(pairs, fmt.Sprintf("Tag.%d.Key=%s", i+1, *tag.Key), fmt.Sprintf("Tag.%d.Value=%s", i+1, *tag.Value))
	}
	return form("CreateTags", pairs...)
}
