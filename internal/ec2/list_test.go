package ec2_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// staticVolume makes a volume that carries no tag, by another's hand.
func (r *region) staticVolume() ebs.VolumeID {
	r.t.Helper()
	made, err := admin(r).CreateVolume(r.t.Context(), &sdk.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.pass(10 * time.Second)
	return ebs.VolumeID(aws.ToString(made.VolumeId))
}

// roots are the volumes that the instances were launched with.
func (r *region) roots() map[ebs.VolumeID]ebs.InstanceID {
	r.t.Helper()
	out, err := admin(r).DescribeVolumes(r.t.Context(), &sdk.DescribeVolumesInput{})
	if err != nil {
		r.t.Fatal(err)
	}
	roots := map[ebs.VolumeID]ebs.InstanceID{}
	for _, v := range out.Volumes {
		for _, a := range v.Attachments {
			roots[ebs.VolumeID(aws.ToString(v.VolumeId))] = ebs.InstanceID(aws.ToString(a.InstanceId))
		}
	}
	return roots
}

func (r *region) attach(id ebs.VolumeID, to ebs.InstanceID) {
	r.t.Helper()
	if _, err := r.client().Attach(r.t.Context(), id, to); err != nil {
		r.t.Fatal(err)
	}
}

// list answers all pages, each volume with the instances that hold it. A process
// that remembers nothing answers each page.
func (r *region) list(entries int32, between func(page int)) map[ebs.VolumeID][]ebs.InstanceID {
	r.t.Helper()
	listed := map[ebs.VolumeID][]ebs.InstanceID{}
	q := ebs.VolumeQuery{MaxEntries: entries}
	for page := 1; ; page++ {
		got, err := r.client().ListVolumes(r.t.Context(), q)
		if err != nil {
			r.t.Fatal(err)
		}
		if entries > 0 && len(got.Volumes) > int(entries) {
			r.t.Errorf("%d entries asked for, %d came", entries, len(got.Volumes))
		}
		if short := entries == 0 || len(got.Volumes) < int(entries); short && got.NextToken != "" {
			r.t.Errorf("pages of %d: page %d has %d and is not the last", entries, page, len(got.Volumes))
		}
		for _, v := range got.Volumes {
			if _, twice := listed[v.ID]; twice {
				r.t.Errorf("pages of %d: %s is listed twice", entries, v.ID)
			}
			listed[v.ID] = nil
			for _, a := range v.Attachments {
				listed[v.ID] = append(listed[v.ID], a.Instance)
			}
		}
		if q.Token = got.NextToken; q.Token == "" {
			return listed
		}
		if between != nil {
			between(page)
		}
	}
}

func TestListVolumes(t *testing.T) {
	r := newRegion(t)
	want := map[ebs.VolumeID][]ebs.InstanceID{}
	for id, instance := range r.roots() { // attached as well
		want[id] = []ebs.InstanceID{instance}
	}
	for i := range 13 {
		vol := r.volume("pvc-" + strconv.Itoa(i))
		want[vol.ID] = nil
		if i%3 == 0 {
			r.attach(vol.ID, nodeA)
			want[vol.ID] = []ebs.InstanceID{nodeA}
		}
	}
	for range 6 {
		static := r.staticVolume()
		r.attach(static, nodeA2)
		want[static] = []ebs.InstanceID{nodeA2}
	}
	idle := r.staticVolume()
	going := r.volume("going")
	if err := r.client().DeleteVolume(t.Context(), going.ID); err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Volume(string(going.ID)); v.State != "deleting" {
		t.Fatalf("the volume must be seen while it is deleted, it is %q", v.State)
	}
	for _, entries := range []int32{0, 1, 2, 3, 4, 5, 6, 7, 19, 100, 5000} {
		if diff := cmp.Diff(want, r.list(entries, nil)); diff != "" {
			t.Errorf("pages of %d: ours and those that are attached, not %s, nobody's, and not %s, which is being deleted (-want +got)\n%s", entries, idle, going.ID, diff)
		}
	}
	before := len(r.callsOf("DescribeVolumes"))
	r.list(0, nil)
	if n := len(r.callsOf("DescribeVolumes")) - before; n != 2 {
		t.Errorf("a whole list of few volumes took %d calls, want 2", n)
	}
}

// A volume that is attached or detached between two pages is listed once all the same.
func TestListVolumesWhileTheyChange(t *testing.T) {
	r := newRegion(t)
	var ids []ebs.VolumeID
	for i := range 6 {
		ids = append(ids, r.volume("pvc-"+strconv.Itoa(i)).ID)
	}
	slices.Sort(ids) // the simulator's order
	r.attach(ids[0], nodeA)
	listed := r.list(2, func(page int) {
		if page != 1 {
			return
		}
		r.attach(ids[1], nodeA) // listed already
		r.attach(ids[5], nodeA) // not listed yet
		if err := r.client().Detach(t.Context(), ids[0], nodeA); err != nil {
			t.Fatal(err)
		}
	})
	for _, id := range ids {
		if _, ok := listed[id]; !ok {
			t.Errorf("%s is missing", id)
		}
	}
}

func TestListVolumesTokens(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	for why, token := range map[string]string{
		"not ours":             "x",
		"not base64":           "!",
		"a list of none":       "Mi41LjAu",             // 2.5.0.
		"a negative list":      "LTEuNS4wLg",           // -1.5.0.
		"too small for EC2":    "MC40LjAu",             // 0.4.0.
		"EC2 does not know it": "MC41LjAubm9uc2Vuc2U",  // 0.5.0.nonsense
		"no number":            "MC5maXZlLjAudG9rZW4",  // 0.five.0.token
		"a part is missing":    "MC41LjA",              // 0.5.0
		"a negative skip":      "MC41Li0xLg",           // 0.5.-1.
		"a wide number":        "MC41Ljk5OTk5OTk5OTku", // 0.5.9999999999.
	} {
		if _, err := r.client().ListVolumes(t.Context(), ebs.VolumeQuery{Token: token}); !errors.Is(err, ebs.ErrInvalidToken) {
			t.Errorf("%s: %v, want that the token is not valid", why, err)
		}
	}
	// A page that has shrunk since is no fault: the list goes on behind it.
	page, err := r.client().ListVolumes(t.Context(), ebs.VolumeQuery{Token: "MC41LjQu"}) // 0.5.4.
	if err != nil || slices.ContainsFunc(page.Volumes, func(v ebs.Volume) bool { return v.ID == vol.ID }) {
		t.Errorf("behind the end: %+v, %v", page, err)
	}
}

// The list fails as a whole: half of it would show attached volumes as detached.
func TestListVolumesFails(t *testing.T) {
	r := newRegion(t)
	r.attach(r.staticVolume(), nodeA)
	r.volume("pvc-1")
	second := 0
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumes" && c.form.Get("Filter.1.Name") == "status" {
			second++
			return refusal(503, "RequestLimitExceeded", "slow down")
		}
		return nil
	})
	if page, err := r.client().ListVolumes(t.Context(), ebs.VolumeQuery{}); !errors.Is(err, ebs.ErrThrottled) || len(page.Volumes) > 0 || second == 0 {
		t.Errorf("%+v, %v, want that EC2 is throttling, and no volume", page, err)
	}
}

// However many volumes there are, no answer outgrows what gRPC takes at once.
func TestListVolumesIsBounded(t *testing.T) {
	r := newRegion(t)
	r.intercept(func(c call) *reply { // two pages of ours, nothing else
		if c.form.Get("Filter.1.Name") == "status" {
			return &reply{200, "<DescribeVolumesResponse><volumeSet/></DescribeVolumesResponse>"}
		}
		var items strings.Builder
		second := c.form.Get("NextToken") == "second"
		for i := range 600 {
			if second {
				i += 600
			}
			fmt.Fprintf(&items, "<item><volumeId>vol-%x</volumeId><status>available</status><tagSet><item><key>%s</key><value>true</value></item></tagSet></item>", i, ebs.TagManaged)
		}
		next := "<nextToken>second</nextToken>"
		if second {
			next = ""
		}
		return &reply{200, "<DescribeVolumesResponse><volumeSet>" + items.String() + "</volumeSet>" + next + "</DescribeVolumesResponse>"}
	})
	for _, entries := range []int32{0, 5000} {
		first, err := r.client().ListVolumes(t.Context(), ebs.VolumeQuery{MaxEntries: entries})
		if err != nil || len(first.Volumes) != 1000 || first.NextToken == "" {
			t.Fatalf("pages of %d: the first has %d volumes and the token %q, %v", entries, len(first.Volumes), first.NextToken, err)
		}
		rest, err := r.client().ListVolumes(t.Context(), ebs.VolumeQuery{MaxEntries: entries, Token: first.NextToken})
		if err != nil || len(rest.Volumes) != 200 || rest.NextToken != "" || rest.Volumes[0].ID != "vol-3e8" {
			t.Errorf("pages of %d: the second has %d volumes and the token %q, %v", entries, len(rest.Volumes), rest.NextToken, err)
		}
	}
}

// What the shipped policy allows is enough.
func TestListVolumesNeedsOneRight(t *testing.T) {
	r := newRegion(t)
	r.volume("pvc-1")
	r.ResetCalls()
	r.list(1, nil)
	for _, k := range r.Calls() {
		if k.Action != "DescribeVolumes" {
			t.Errorf("%s is called", k.Action)
		}
	}
}
