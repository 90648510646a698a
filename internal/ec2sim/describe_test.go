package ec2sim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func filters(kv ...string) []types.Filter {
	var out []types.Filter
	for i := 0; i < len(kv); i += 2 {
		out = append(out, types.Filter{Name: aws.String(kv[i]), Values: strings.Split(kv[i+1], "|")})
	}
	return out
}

func TestDescribeVolumesFilters(t *testing.T) {
	r := newRegion(t)
	one := r.newVolume(func(i *ec2.CreateVolumeInput) { i.TagSpecifications = volumeTags("Name", "data-1", "owner", "x") })
	two := r.newVolume(func(i *ec2.CreateVolumeInput) {
		i.AvailabilityZone, i.Size, i.VolumeType = aws.String(zoneB), aws.Int32(20), types.VolumeTypeGp2
		i.TagSpecifications = volumeTags("Name", "data-2", "odd*name", "y")
	})
	wantCode(t, r.attach(one, instanceA, "/dev/xvdaa"), "")
	rows := []struct {
		why     string
		filters []types.Filter
		want    []string
	}{
		{"a tag with a value", filters("tag:Name", "data-1"), []string{one}},
		{"values are alternatives", filters("tag:Name", "data-1|data-2"), []string{one, two}},
		{"a star is any text", filters("tag:Name", "data-*"), []string{one, two}},
		{"a question mark is one character", filters("tag:Name", "data-?"), []string{one, two}},
		{"a backslash takes the meaning away", filters("tag:Name", `data-\?`), nil},
		{"what is taken away leaves the character", filters("tag:Name", `data\-1`), []string{one}},
		{"a pattern and a text are alternatives", filters("tag:Name", "data-1|*-2"), []string{one, two}},
		{"case counts", filters("tag:Name", "DATA-1"), nil},
		{"filters are joined by and", filters("tag:Name", "data-*", "size", "20"), []string{two}},
		{"a tag's name", filters("tag-key", "owner"), []string{one}},
		{"a tag's name with a star in it", filters("tag:odd*name", "y"), []string{two}},
		{"where it is attached", filters("attachment.instance-id", instanceA), []string{one}},
		{"how it is attached", filters("attachment.status", "attaching", "attachment.device", "/dev/xvdaa"), []string{one}},
		{"its state", filters("status", "available"), []string{two}},
		{"its zone", filters("availability-zone", zoneB), []string{two}},
		{"its zone's id", filters("availability-zone-id", "use1-az2"), []string{two}},
		{"its type", filters("volume-type", "gp2"), []string{two}},
		{"its id", filters("volume-id", one), []string{one}},
		{"encrypted", filters("encrypted", "true"), nil},
		{"when it was made", filters("create-time", "2026-06-01*", "volume-id", one), []string{one}},
	}
	for _, row := range rows {
		out, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: row.filters})
		if err != nil {
			t.Fatalf("%s: %v", row.why, err)
		}
		var got []string
		for _, v := range out.Volumes {
			if *v.Size != 8 { // root disks
				got = append(got, *v.VolumeId)
			}
		}
		slices.Sort(row.want)
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
		}
	}
}

func TestFilterValueLimit(t *testing.T) {
	r := newRegion(t)
	_, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: filters("size", strings.Repeat("1|", 200)+"1")})
	wantCode(t, err, "FilterLimitExceeded")
}

// TestPaging: pages show each volume once, also when volumes come and go
// between them.
func TestPaging(t *testing.T) {
	r := newRegion(t)
	made := map[string]bool{}
	for range 12 {
		made[r.newVolume()] = true
	}
	var first string
	seen := map[string]int{}
	pages := 0
	for token := (*string)(nil); ; pages++ {
		out, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
			MaxResults: aws.Int32(5), NextToken: token, Filters: filters("volume-type", "gp3", "size", "10")})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out.Volumes {
			seen[*v.VolumeId]++
		}
		if pages == 0 { // a volume that was shown goes
			first = *out.Volumes[0].VolumeId
			if _, err := r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &first}); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
		}
		if token = out.NextToken; token == nil {
			break
		}
	}
	for id := range made {
		if seen[id] != 1 {
			t.Errorf("%s was shown %d times", id, seen[id])
		}
	}
	if pages != 2 {
		t.Errorf("12 volumes at 5 a page came in %d pages", pages+1)
	}
}

func TestPagingRefusals(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	ctx := t.Context()
	_, err := r.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{MaxResults: aws.Int32(4)})
	wantCode(t, err, "InvalidParameterValue")
	_, err = r.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{MaxResults: aws.Int32(0)})
	wantCode(t, err, "")
	_, err = r.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{MaxResults: aws.Int32(10), VolumeIds: []string{vol}})
	wantCode(t, err, "InvalidParameterCombination")
	_, err = r.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{MaxResults: aws.Int32(10), NextToken: aws.String("nonsense")})
	wantCode(t, err, "InvalidNextToken")
	_, err = r.DescribeInstances(ctx, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(10), InstanceIds: []string{instanceA}})
	wantCode(t, err, "InvalidParameterCombination")
}

// TestMissingIDsAreNamed: the text names every missing id, as clients find out
// from it which one of a batch is gone.
func TestMissingIDsAreNamed(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	missing := []string{"vol-0000000000000dead", "vol-0000000000000beef"}
	_, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: append(missing, vol)})
	wantCode(t, err, "InvalidVolume.NotFound")
	for _, id := range missing {
		if !strings.Contains(err.Error(), id) {
			t.Errorf("%s is not named in %q", id, err)
		}
	}
	if strings.Contains(err.Error(), vol) {
		t.Errorf("%s exists, yet is named in %q", vol, err)
	}
}

func TestDescribeInstances(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	out, err := r.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: filters("availability-zone", zoneA)})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Reservations) != 1 || len(out.Reservations[0].Instances) != 1 {
		t.Fatalf("%d reservations, want the one instance of the zone", len(out.Reservations))
	}
	i := out.Reservations[0].Instances[0]
	got := []any{*i.InstanceId, i.InstanceType, i.State.Name, *i.Placement.AvailabilityZone, len(i.NetworkInterfaces), len(i.BlockDeviceMappings)}
	wantSame(t, []any{instanceA, types.InstanceType("m5.large"), types.InstanceStateNameRunning, zoneA, 1, 2}, got)
	m := i.BlockDeviceMappings[1]
	wantSame(t, []any{"/dev/xvdaa", vol, types.AttachmentStatusAttaching}, []any{*m.DeviceName, *m.Ebs.VolumeId, m.Ebs.Status})
}

func TestDescribeInstanceTypes(t *testing.T) {
	r := newRegion(t)
	out, err := r.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []types.InstanceType{"m5.large", "r8gb.48xlarge", "t2.medium"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for _, i := range out.InstanceTypes {
		e := i.EbsInfo
		got = append(got, i.InstanceType, i.Hypervisor, *e.MaximumEbsAttachments, e.AttachmentLimitType, *e.MaximumEbsCards, e.NvmeSupport)
	}
	want := []any{
		types.InstanceType("m5.large"), types.InstanceTypeHypervisorNitro, int32(27), types.AttachmentLimitTypeShared, int32(1), types.EbsNvmeSupportRequired,
		types.InstanceType("r8gb.48xlarge"), types.InstanceTypeHypervisorNitro, int32(128), types.AttachmentLimitTypeDedicated, int32(2), types.EbsNvmeSupportRequired,
		types.InstanceType("t2.medium"), types.InstanceTypeHypervisorXen, int32(39), types.AttachmentLimitTypeShared, int32(1), types.EbsNvmeSupportUnsupported,
	}
	wantSame(t, want, got)
	_, err = r.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"z9.huge"}})
	wantCode(t, err, "InvalidInstanceType")
}

func TestDescribeAvailabilityZones(t *testing.T) {
	r := newRegion(t)
	out, err := r.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{Filters: filters("zone-name", zoneA+"|"+zoneB)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, z := range out.AvailabilityZones {
		got = append(got, *z.ZoneName+" "+*z.ZoneId+" "+string(z.State))
	}
	wantSame(t, []string{"us-east-1a use1-az1 available", "us-east-1b use1-az2 available"}, got)
	_, err = r.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-east-1q"}})
	wantCode(t, err, "InvalidZone.NotFound")
}

// TestAnswerWithoutNumbers: an element without a number in it breaks the SDK's
// parser, so what is not set has to be left out.
func TestAnswerWithoutNumbers(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) { i.VolumeType, i.Size = types.VolumeTypeSt1, aws.Int32(125) })
	status, body := rawBody(t, r.url, form("DescribeVolumes", "VolumeId.1="+vol))
	if status != http.StatusOK || strings.Contains(body, "<iops") || strings.Contains(body, "<throughput") || strings.Contains(body, "<nextToken") {
		t.Errorf("%d %s", status, body)
	}
}
