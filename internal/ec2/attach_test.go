package ec2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// attachedTo is the instance and device name that the simulator knows.
func (r *region) attachedTo(id ebs.VolumeID) (string, string) {
	v, _ := r.Volume(string(id))
	for _, a := range v.Attachments {
		return a.InstanceID, a.Device
	}
	return "", ""
}

// mustAttach attaches by another process.
func (r *region) mustAttach(id ebs.VolumeID, to ebs.InstanceID) ebs.Attachment {
	r.t.Helper()
	att, err := r.client().Attach(r.t.Context(), id, to)
	if err != nil {
		r.t.Fatal(err)
	}
	return att
}

func TestAttach(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	att := r.mustAttach(vol.ID, nodeA)
	if att.State != ebs.Attached || att.DeviceName != "/dev/xvdaa" || att.Instance != nodeA {
		t.Errorf("attachment %+v, want attached as /dev/xvdaa, the first name of AWS's driver", att)
	}
	again := r.mustAttach(vol.ID, nodeA)
	if again.DeviceName != att.DeviceName || len(r.callsOf("AttachVolume")) != 1 {
		t.Errorf("a repeat gave %s after %d AttachVolume calls, want the same name and no call", again.DeviceName, len(r.callsOf("AttachVolume")))
	}
	if err := r.client().Detach(t.Context(), vol.ID, nodeA); err != nil {
		t.Fatal(err)
	}
	if node, _ := r.attachedTo(vol.ID); node != "" {
		t.Errorf("still attached to %s when Detach says it is done", node)
	}
}

// DRIVER rules 8 and 1: an answer that is lost.
func TestAttachAndDetachAfterLostAnswers(t *testing.T) {
	for _, lost := range []int{1, 2} { // healed by the SDK's repeat, and not
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			r := newRegion(t)
			vol := r.volume("pvc-1")
			for _, action := range []string{"AttachVolume", "DetachVolume"} {
				if err := r.Inject(ec2sim.Fault{Action: action, LostAnswer: ec2sim.LostAfter, Count: lost}); err != nil {
					t.Fatal(err)
				}
			}
			att := r.mustAttach(vol.ID, nodeA)
			if _, device := r.attachedTo(vol.ID); device != att.DeviceName {
				t.Errorf("attached as %s, answered %s", device, att.DeviceName)
			}
			if err := r.client().Detach(t.Context(), vol.ID, nodeA); err != nil {
				t.Error(err)
			}
			if node, _ := r.attachedTo(vol.ID); node != "" {
				t.Errorf("still attached to %s", node)
			}
		})
	}
}

// DRIVER rule 7: there is nothing to detach.
func TestDetachOfNothing(t *testing.T) {
	r := newRegion(t)
	free, elsewhere, gone, orphan := r.volume("free"), r.volume("elsewhere"), r.volume("gone"), r.volume("orphan")
	r.mustAttach(elsewhere.ID, nodeA)
	r.mustAttach(orphan.ID, nodeA2)
	if err := r.client().DeleteVolume(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.TerminateInstance(string(nodeA2)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		why  string
		id   ebs.VolumeID
		from ebs.InstanceID
	}{
		"not attached":       {"nothing to do", free.ID, nodeA},
		"attached elsewhere": {"somebody else's attachment is none of ours", elsewhere.ID, nodeB},
		"deleted volume":     {"a volume that is gone is attached nowhere", gone.ID, nodeA},
		"vanished instance":  {"EC2 has forgotten the instance", free.ID, "i-0123456789abcdef0"},
		"dead instance":      {"EC2 detaches what a terminated instance had", orphan.ID, nodeA2},
		"no volume id":       {"EC2 cannot have attached it", "my-volume", nodeA},
		"no instance id":     {"EC2 cannot have attached it there", free.ID, "my-node"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.client().Detach(t.Context(), tc.id, tc.from); err != nil {
				t.Errorf("%s: %v, want no error at the first call", tc.why, err)
			}
		})
	}
	if node, _ := r.attachedTo(elsewhere.ID); node != string(nodeA) {
		t.Errorf("the volume of %s is now attached to %q", nodeA, node)
	}
}

// DRIVER rule 16: the instance dies while its volume still shows as attached.
func TestDetachFromADyingInstance(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.mustAttach(vol.ID, nodeA)
	r.SetDelays(ec2sim.Delays{Detach: ec2sim.Duration(time.Hour)}) // the guest never lets go
	r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
		if c.action == "DescribeInstances" {
			return bytes.Replace(body, []byte("<name>running"), []byte("<name>terminated"), 1)
		}
		return body
	})
	if err := r.client().Detach(soon(t, 20*time.Second), vol.ID, nodeA); err != nil {
		t.Errorf("%v, want that a terminated instance holds nothing", err)
	}
}

// An attachment has a state for being over, in which EC2 may show it for a while.
func TestAttachmentThatIsOver(t *testing.T) {
	r := newRegionInRealTime(t)
	vol := r.volume("pvc-1")
	r.mustAttach(vol.ID, nodeA)
	r.SetDelays(ec2sim.Delays{Detach: ec2sim.Duration(time.Hour)})
	r.rewrite(func(_ call, _ *http.Header, body []byte) []byte {
		return bytes.ReplaceAll(body, []byte("<status>detaching<"), []byte("<status>detached<"))
	})
	if err := r.client().Detach(soon(t, 20*time.Second), vol.ID, nodeA); err != nil {
		t.Errorf("%v, want that it is detached", err)
	}
	if now, err := r.client().Volume(t.Context(), vol.ID); err != nil || len(now.Attachments) != 0 {
		t.Errorf("attached %+v, %v, want nowhere", now.Attachments, err)
	}
}

// DRIVER rule 9: what makes attaching impossible.
func TestAttachRefused(t *testing.T) {
	r := newRegion(t)
	used, other := r.volume("used"), r.volume("other")
	r.mustAttach(used.ID, nodeA)
	for name, tc := range map[string]struct {
		why  string
		id   ebs.VolumeID
		to   ebs.InstanceID
		want error
		text []string
	}{
		"attached elsewhere": {"the node to wait for is named", used.ID, nodeA2, ebs.ErrAttachedElsewhere, []string{string(nodeA)}},
		"other zone":         {"both zones and EC2's own code are named", other.ID, nodeB, ebs.ErrZoneMismatch, []string{zoneA, zoneB, "InvalidVolume.ZoneMismatch"}},
		"no volume":          {"the volume is missing", "vol-0123456789abcdef0", nodeA, ebs.ErrNotFound, nil},
		"no instance":        {"the instance is missing", other.ID, "i-0123456789abcdef0", ebs.ErrInstanceNotFound, nil},
		"no volume id":       {"EC2 cannot have named it", "my-volume", nodeA, ebs.ErrNotFound, nil},
		"no instance id":     {"EC2 cannot have named it", other.ID, "my-node", ebs.ErrInstanceNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.client().Attach(t.Context(), tc.id, tc.to)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: %v, want %v", tc.why, err, tc.want)
			}
			for _, text := range tc.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %s", tc.why, err, text)
				}
			}
		})
	}
}

func TestAttachToAFullNode(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	var err error
	for i := 0; err == nil && i < 40; i++ {
		_, err = r.client().Attach(t.Context(), r.volume(fmt.Sprint("pvc-", i)).ID, nodeA)
	}
	if !errors.Is(err, ebs.ErrAttachLimit) {
		t.Errorf("%v, want that the attachment limit is reached", err)
	}
}

// DRIVER rule 8: 20 attaches to one node at once.
func TestAttachTwentyAtOnce(t *testing.T) {
	r := newRegion(t)
	var ids []ebs.VolumeID
	for i := range 20 {
		ids = append(ids, r.volume(fmt.Sprint("pvc-", i)).ID)
	}
	client := r.client()
	var mu sync.Mutex
	names := map[string]bool{}
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			att, err := client.Attach(t.Context(), id, nodeA)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			names[att.DeviceName] = true
		})
	}
	group.Wait()
	if len(names) != 20 {
		t.Errorf("%d device names for 20 volumes: %v", len(names), names)
	}
	for _, c := range r.Calls() {
		if c.Action == "AttachVolume" && c.Code != "OK" {
			t.Errorf("EC2 refused %d AttachVolume calls with %s, want none", c.Count, c.Code)
		}
	}
}

// DRIVER rule 8: DescribeInstances lags, so a name looks free that is not.
func TestAttachTakesTheNextNameWhenOneIsInUse(t *testing.T) {
	r := newRegion(t)
	r.intercept(func(c call) *reply { // an instance that never shows what is attached to it
		if c.action != "DescribeInstances" {
			return nil
		}
		return &reply{200, `<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>` + c.form.Get("Filter.1.Value.1") +
			`</instanceId><instanceState><code>16</code><name>running</name></instanceState></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`}
	})
	one, two := r.volume("one"), r.volume("two")
	first, second := r.mustAttach(one.ID, nodeA), r.mustAttach(two.ID, nodeA) // by two processes
	if first.DeviceName != "/dev/xvdaa" || second.DeviceName != "/dev/xvdab" {
		t.Errorf("names %s and %s, want /dev/xvdaa and the next", first.DeviceName, second.DeviceName)
	}
	client := r.client()
	a, err := client.Attach(t.Context(), r.volume("three").ID, nodeA)
	if err != nil {
		t.Fatal(err)
	}
	calls := len(r.callsOf("AttachVolume"))
	b, err := client.Attach(t.Context(), r.volume("four").ID, nodeA)
	if err != nil || a.DeviceName == b.DeviceName {
		t.Errorf("names %s and %s, %v", a.DeviceName, b.DeviceName, err)
	}
	if n := len(r.callsOf("AttachVolume")) - calls; n != 1 {
		t.Errorf("%d AttachVolume calls, want 1: the process knows the names that it found in use", n)
	}
}

// DRIVER rule 8, 9 and 16: an instance that was looked at a moment ago is not
// looked at again, and what has changed since is found out nevertheless.
func TestAttachToAnInstanceSeenBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		change func(r *region, next ebs.VolumeID) error // after the first attachment
		looks  int                                      // at instances, for the second
		want   error
	}{
		"unchanged": {"what is known is not asked again", func(*region, ebs.VolumeID) error { return nil }, 0, nil},
		"later": {"what was seen long ago may be wrong", func(r *region, _ ebs.VolumeID) error {
			r.pass(time.Minute)
			return nil
		}, 1, nil},
		"names taken by others": {"one refusal, then the instance's new list", func(r *region, _ ebs.VolumeID) error {
			for i := range 10 {
				r.mustAttach(r.volume(fmt.Sprint("other-", i)).ID, nodeA)
			}
			return nil
		}, 1, nil},
		"attached by others": {"the attachment that there is, is the answer", func(r *region, next ebs.VolumeID) error {
			r.mustAttach(next, nodeA)
			return nil
		}, 0, nil},
		"terminated": {"a dead instance takes no volume, and no retry helps", func(r *region, _ ebs.VolumeID) error {
			return r.TerminateInstance(string(nodeA))
		}, 1, ebs.ErrInstanceNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.SetDelays(ec2sim.Delays{})
			one, two := r.volume("one").ID, r.volume("two").ID
			client := r.client()
			if _, err := client.Attach(t.Context(), one, nodeA); err != nil {
				t.Fatal(err)
			}
			if err := tc.change(r, two); err != nil {
				t.Fatal(err)
			}
			looks, tries := len(r.callsOf("DescribeInstances")), len(r.callsOf("AttachVolume"))
			att, err := client.Attach(t.Context(), two, nodeA)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: %v, want %v", tc.why, err, tc.want)
			}
			if node, device := r.attachedTo(two); err == nil && (node != string(nodeA) || device != att.DeviceName) {
				t.Errorf("%s: answered %+v, EC2 shows %s on %s", tc.why, att, device, node)
			}
			if n := len(r.callsOf("DescribeInstances")) - looks; n > tc.looks {
				t.Errorf("%s: %d looks at the instance, want %d", tc.why, n, tc.looks)
			}
			if n := len(r.callsOf("AttachVolume")) - tries; n > 2 {
				t.Errorf("%s: %d AttachVolume calls, want no more than 2", tc.why, n)
			}
		})
	}
}

// DRIVER rule 8: a name that is taken, by either of EC2's words for it.
func TestAttachTakesTheNextName(t *testing.T) {
	for code, message := range map[string]string{
		"InvalidParameterValue": "Invalid value '/dev/xvdaa' for unixDevice. Attachment point /dev/xvdaa is already in use",
		"InvalidDevice.InUse":   "The device is in use",
	} {
		r := newRegion(t)
		vol := r.volume("pvc-1")
		taken := first(1)
		r.intercept(func(c call) *reply {
			if c.action == "AttachVolume" && taken() {
				return refusal(400, code, message)
			}
			return nil
		})
		if att, err := r.client().Attach(t.Context(), vol.ID, nodeA); err != nil || att.DeviceName != "/dev/xvdab" {
			t.Errorf("%s: attached as %q, %v, want the next name", code, att.DeviceName, err)
		}
	}
}

// DRIVER rule 8: the instance still shows a volume that is detached.
func TestAttachAsksTheVolumeWhetherItIsAttached(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.intercept(func(c call) *reply {
		if c.action != "DescribeInstances" {
			return nil
		}
		return &reply{200, `<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>` + string(nodeA) +
			`</instanceId><instanceState><code>16</code><name>running</name></instanceState><blockDeviceMapping><item><deviceName>/dev/xvdaa</deviceName><ebs><volumeId>` + string(vol.ID) +
			`</volumeId><status>attached</status></ebs></item></blockDeviceMapping></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`}
	})
	r.mustAttach(vol.ID, nodeA)
	if node, _ := r.attachedTo(vol.ID); node != string(nodeA) {
		t.Errorf("attached to %q, want %s", node, nodeA)
	}
}

// Right after AttachVolume the volume does not show its attachment yet.
func TestAttachWaitsOutLaggingReads(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	hidden := first(3)
	attachments := regexp.MustCompile(`(?s)<attachmentSet>.*</attachmentSet>`)
	r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
		if c.action == "DescribeVolumes" && hidden() {
			return attachments.ReplaceAll(body, nil)
		}
		return body
	})
	r.mustAttach(vol.ID, nodeA)
	if n := len(r.callsOf("AttachVolume")); n != 1 {
		t.Errorf("%d AttachVolume calls, want 1", n)
	}
}

// DRIVER rule 8: an attachment that hangs, counted over several requests.
func TestAttachThatHangs(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.SetDelays(ec2sim.Delays{Attach: ec2sim.Duration(24 * time.Hour)})
	if _, err := admin(r).AttachVolume(t.Context(), &sdk.AttachVolumeInput{
		VolumeId: aws.String(string(vol.ID)), InstanceId: aws.String(string(nodeA)), Device: aws.String("/dev/xvdaa"),
	}); err != nil {
		t.Fatal(err)
	}
	r.pass(91 * time.Second) // an earlier request began it and gave up
	r.SetDelays(ec2sim.Delays{})
	att := r.mustAttach(vol.ID, nodeA)
	if _, device := r.attachedTo(vol.ID); att.State != ebs.Attached || device != att.DeviceName {
		t.Errorf("%+v, EC2 shows %s: want it attached", att, device)
	}
	if n := len(r.callsOf("DetachVolume")); n != 1 {
		t.Errorf("%d DetachVolume calls, want 1: that is what frees it", n)
	}
}

// A clock that is minutes ahead of EC2's, which its signatures allow, does not make
// a fresh attachment one that hangs: it would be detached and made again for ever.
func TestAttachWithAClockThatIsAhead(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.SetDelays(ec2sim.Delays{Attach: ec2sim.Duration(3 * time.Second)})
	attachTime := regexp.MustCompile("<attachTime>[^<]*")
	r.rewrite(func(_ call, _ *http.Header, body []byte) []byte {
		return attachTime.ReplaceAll(body, []byte("<attachTime>2026-06-01T11:57:00Z"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := r.client().Attach(ctx, vol.ID, nodeA); err != nil {
		t.Error(err)
	}
	if n := len(r.callsOf("DetachVolume")); n != 0 {
		t.Errorf("%d DetachVolume calls, want none", n)
	}
}

// An earlier detach is still under way: it is waited for, then attached anew.
func TestAttachWhileDetaching(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.mustAttach(vol.ID, nodeA)
	if _, err := admin(r).DetachVolume(t.Context(), &sdk.DetachVolumeInput{VolumeId: aws.String(string(vol.ID)), InstanceId: aws.String(string(nodeA))}); err != nil {
		t.Fatal(err)
	}
	att := r.mustAttach(vol.ID, nodeA)
	if v, _ := r.Volume(string(vol.ID)); att.State != ebs.Attached || len(v.Attachments) != 1 || v.Attachments[0].State != "attached" {
		t.Errorf("answered %+v, EC2 shows %+v", att, v.Attachments)
	}
}

// DRIVER rule 17, and the state that the caller is told.
func TestAttachAndDetachEndWithTheirContext(t *testing.T) {
	r := newRegionInRealTime(t)
	r.SetDelays(ec2sim.Delays{Attach: ec2sim.Duration(time.Hour), Detach: ec2sim.Duration(time.Hour)})
	slow := r.volume("slow")
	_, err := r.client().Attach(soon(t, 3*time.Second), slow.ID, nodeA)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "attaching") {
		t.Errorf("attach: %v, want the end of the context and the state", err)
	}
	err = r.client().Detach(soon(t, 3*time.Second), slow.ID, nodeA)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "detaching") {
		t.Errorf("detach: %v, want the end of the context and the state", err)
	}
}
