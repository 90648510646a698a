package ec2_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func TestEnsureVolumeMakesWhatIsWanted(t *testing.T) {
	r := newRegion(t)
	want := request("pvc-1", func(w *ebs.VolumeRequest) {
		w.Size, w.IOPS, w.ThroughputMiBps, w.Encrypted, w.KMSKeyID = 20, 4000, 250, true, "arn:aws:kms:us-east-1:000000000000:key/k"
		w.Tags["team"] = "db"
	})
	got, err := r.client().EnsureVolume(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	expect := ebs.Volume{
		ID: got.ID, Size: 20, Type: ebs.GP3, IOPS: 4000, ThroughputMiBps: 250, Encrypted: true, KMSKeyID: want.KMSKeyID,
		Zone: ebs.Zone{Name: zoneA, ID: got.Zone.ID}, State: ebs.VolumeAvailable, Tags: want.Tags,
	}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Errorf("what is asked for is what EC2 makes (-want +got)\n%s", diff)
	}
	if got.Zone.ID == "" {
		t.Error("EC2 tells the zone's id too")
	}
	again, err := r.client().EnsureVolume(t.Context(), want)
	if err != nil || again.ID != got.ID {
		t.Errorf("a repeat by another process gave %s, %v; want %s", again.ID, err, got.ID)
	}
	if n := len(r.Volumes()); n != 1 {
		t.Errorf("%d volumes, want 1", n)
	}
}

func TestEnsureVolumeChoosesAZone(t *testing.T) {
	r := newRegion(t)
	anywhere := func(name string) ebs.VolumeRequest {
		return request(name, func(w *ebs.VolumeRequest) { w.Zone, w.AllowedZones = ebs.Zone{}, nil })
	}
	zones := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		vol, err := r.client().EnsureVolume(t.Context(), anywhere(name))
		if err != nil {
			t.Fatal(err)
		}
		zones[vol.Zone.Name] = true
	}
	if len(zones) < 2 {
		t.Errorf("volumes that may be anywhere are all in %v, want them spread", zones)
	}
	first := r.volume("by-name")
	byID, err := r.client().EnsureVolume(t.Context(), request("by-id", func(w *ebs.VolumeRequest) {
		w.Zone, w.AllowedZones = ebs.Zone{ID: first.Zone.ID}, []ebs.Zone{{ID: first.Zone.ID}}
	}))
	if err != nil || byID.Zone != first.Zone {
		t.Errorf("a zone given by id gave %v, %v; want %v", byID.Zone, err, first.Zone)
	}
}

// DRIVER rule 1: accepted, answer lost, process restarted.
func TestEnsureVolumeAfterALostAnswer(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
		t.Fatal(err)
	}
	_, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("after lost answers: %v, want that it may have been accepted", err)
	}
	if n := len(r.Volumes()); n != 1 {
		t.Fatalf("%d volumes after the lost answers, want 1: the SDK repeats under the same token", n)
	}
	// The look-up by tag does not show it yet: the token finds it.
	hidden := first(1)
	r.intercept(func(c call) *reply {
		if c.by("tag:CSIVolumeName") && hidden() {
			return noVolumes()
		}
		return nil
	})
	vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if err != nil {
		t.Fatal(err)
	}
	if volumes := r.Volumes(); len(volumes) != 1 || volumes[0].ID != string(vol.ID) {
		t.Errorf("volumes %v, answered %s: want one and the same", volumes, vol.ID)
	}
	tokens := map[string]bool{}
	for _, c := range r.callsOf("CreateVolume") {
		tokens[c.form.Get("ClientToken")] = true
	}
	if len(tokens) != 1 {
		t.Errorf("tokens %v, want one: it is made of the name alone", tokens)
	}
	for token := range tokens {
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(token) {
			t.Errorf("token %q, want 64 hexadecimal digits, EC2's most", token)
		}
	}
}

// DRIVER rule 5 with rule 1: the answer is lost, reads lag, and the claim is
// rescheduled to another zone, for which a client token may not hold.
func TestEnsureVolumeAfterALostAnswerElsewhere(t *testing.T) {
	r := newRegion(t)
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
		t.Fatal(err)
	}
	hidden := first(3)
	r.intercept(func(c call) *reply {
		if c.by("tag:CSIVolumeName") && hidden() {
			return noVolumes()
		}
		return nil
	})
	client := r.client()
	if _, err := client.EnsureVolume(t.Context(), request("pvc-1")); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("%v, want that it may have been accepted", err)
	}
	vol, err := client.EnsureVolume(t.Context(), request("pvc-1", func(w *ebs.VolumeRequest) {
		w.Zone, w.AllowedZones = ebs.Zone{Name: zoneB}, []ebs.Zone{{Name: zoneA}, {Name: zoneB}}
	}))
	if err != nil || vol.Zone.Name != zoneA || len(r.Volumes()) != 1 {
		t.Errorf("%+v, %v, %d volumes: want the one in %s", vol, err, len(r.Volumes()), zoneA)
	}
}

// What CreateVolume answers is not compared: it may leave out what DescribeVolumes tells.
func TestEnsureVolumeTrustsWhatItMade(t *testing.T) {
	r := newRegion(t)
	leaveOut := regexp.MustCompile(`<(throughput|iops|kmsKeyId|encrypted)>[^<]*</[a-zA-Z]*>`)
	r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
		if c.action == "CreateVolume" {
			return leaveOut.ReplaceAll(body, nil)
		}
		return body
	})
	vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1", func(w *ebs.VolumeRequest) {
		w.IOPS, w.ThroughputMiBps, w.Encrypted = 4000, 250, true
	}))
	if err != nil || vol.IOPS != 4000 || vol.ThroughputMiBps != 250 || !vol.Encrypted {
		t.Errorf("%+v, %v", vol, err)
	}
}

// ghosts makes every new volume vanish right after EC2 accepted it, as an
// unusable KMS key does, until the returned function says that the key is cured.
func (r *region) ghosts() (cure func()) {
	r.SetDelays(ec2sim.Delays{})
	id := regexp.MustCompile(`<volumeId>(vol-[0-9a-f]+)</volumeId>`)
	r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
		if m := id.FindSubmatch(body); c.action == "CreateVolume" && m != nil {
			if _, err := admin(r).DeleteVolume(context.Background(), deleteInput(string(m[1]))); err != nil {
				r.t.Error(err)
			}
			return bytes.Replace(body, []byte("<status>available"), []byte("<status>creating"), 1)
		}
		return body
	})
	return func() { r.rewrite(nil) }
}

// DRIVER rule 2: the volume vanishes while it is created.
func TestEnsureVolumeThatVanishes(t *testing.T) {
	r := newRegion(t)
	cure := r.ghosts()
	want := request("pvc-1", func(w *ebs.VolumeRequest) { w.Encrypted, w.KMSKeyID = true, "alias/none" })
	for range 3 {
		_, err := r.client().EnsureVolume(t.Context(), want)
		if !errors.Is(err, ebs.ErrVanished) && !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), "encryption") {
			t.Fatalf("%v, want that it is not there and that encryption is the likely cause", err)
		}
	}
	cure()
	vol, err := r.client().EnsureVolume(t.Context(), want) // another process: knows no token to be used up
	if err != nil {
		t.Fatal(err)
	}
	if volumes := r.Volumes(); len(volumes) != 1 || volumes[0].ID != string(vol.ID) {
		t.Errorf("volumes %v after the cure, want the one answered, %s", volumes, vol.ID)
	}
}

// Reads may lag behind a write for minutes: a volume that is not shown is not
// taken for one that is gone, since a fresh token would make a second one.
func TestEnsureVolumeThatIsLongNotShown(t *testing.T) {
	r := newRegion(t)
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumes" {
			return noVolumes()
		}
		return nil
	})
	cloud := r.client()
	if _, err := cloud.EnsureVolume(t.Context(), request("pvc-1")); !errors.Is(err, ebs.ErrNotReady) || !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("%v, want that the volume is not shown yet", err)
	}
	vol, err := cloud.EnsureVolume(t.Context(), request("pvc-1")) // the same token: EC2 answers the same volume
	if err != nil {
		t.Fatal(err)
	}
	if volumes := r.Volumes(); len(volumes) != 1 || volumes[0].ID != string(vol.ID) {
		t.Errorf("volumes %v, want the one answered, %s", volumes, vol.ID)
	}
}

// A token that another request has used is stepped over only when no volume shows up for a while.
func TestEnsureVolumeNeverTakesAFreshTokenTooSoon(t *testing.T) {
	r := newRegion(t)
	existing := r.volume("pvc-1")
	hidden := first(3) // reads lag behind writes for a few seconds
	r.intercept(func(c call) *reply {
		if c.by("tag:CSIVolumeName") && hidden() {
			return noVolumes()
		}
		return nil
	})
	_, err := r.client().EnsureVolume(t.Context(), request("pvc-1", func(w *ebs.VolumeRequest) { w.Size = 11 }))
	if !errors.Is(err, ebs.ErrAlreadyExists) || !strings.Contains(err.Error(), string(existing.ID)) {
		t.Errorf("%v, want that %s exists", err, existing.ID)
	}
	if n := len(r.Volumes()); n != 1 {
		t.Errorf("%d volumes, want 1", n)
	}
}

// DRIVER rule 3: the quota is reached.
func TestEnsureVolumeAtTheQuota(t *testing.T) {
	r := newRegion(t)
	existing := r.volume("pvc-1")
	r.SetQuotas(ec2sim.Quotas{Volumes: 1})
	r.intercept(func() func(call) *reply {
		hidden := first(1)
		return func(c call) *reply {
			switch {
			case c.by("tag:CSIVolumeName") && hidden():
				return noVolumes()
			case c.action == "CreateVolume": // the quota is checked before the token
				return refusal(400, "VolumeLimitExceeded", "You have exceeded your maximum volume limit.")
			}
			return nil
		}
	}())
	vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if err != nil || vol.ID != existing.ID {
		t.Errorf("a volume that exists: %s, %v, want %s", vol.ID, err, existing.ID)
	}
	if _, err := r.client().EnsureVolume(t.Context(), request("pvc-2")); !errors.Is(err, ebs.ErrLimitExceeded) {
		t.Errorf("a new name: %v, want that the limit is exceeded", err)
	}
}

// DRIVER rule 4: reads that lag, and a volume that is in use at the retry.
func TestEnsureVolumeWaitsOutLaggingReads(t *testing.T) {
	r := newRegion(t)
	hidden := first(7) // the look-up before the create, and three by name and by id each after it
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumes" && hidden() {
			return noVolumes()
		}
		return nil
	})
	vol := r.volume("pvc-1")
	if _, err := r.client().Attach(t.Context(), vol.ID, nodeA); err != nil {
		t.Fatal(err)
	}
	again, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if err != nil || again.ID != vol.ID {
		t.Errorf("in use at the retry: %s, %v; want %s", again.ID, err, vol.ID)
	}
}

// DRIVER rule 5: the same name with something else.
func TestEnsureVolumeOfAnotherShape(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		change func(*ebs.VolumeRequest)
		ok     bool
	}{
		"size":       {"capacity is part of what was promised", func(w *ebs.VolumeRequest) { w.Size = 11 }, false},
		"type":       {"a gp2 volume is not what a gp3 class promises", func(w *ebs.VolumeRequest) { w.Type = ebs.GP2 }, false},
		"source":     {"an empty volume is no restore", func(w *ebs.VolumeRequest) { w.Snapshot = "snap-0123456789abcdef0" }, false},
		"iops":       {"fewer IOPS than the class promises", func(w *ebs.VolumeRequest) { w.IOPS = 5000 }, false},
		"encryption": {"never silently unencrypted", func(w *ebs.VolumeRequest) { w.Encrypted = true }, false},
		"zone outside": {"the caller cannot use it there", func(w *ebs.VolumeRequest) {
			w.Zone, w.AllowedZones = ebs.Zone{Name: zoneB}, []ebs.Zone{{Name: zoneB}}
		}, false},
		"zone within": {"a rescheduled claim keeps its volume", func(w *ebs.VolumeRequest) {
			w.Zone, w.AllowedZones = ebs.Zone{Name: zoneB}, []ebs.Zone{{Name: zoneB}, {Name: zoneA}}
		}, true},
		"tags": {"tags are not compared", func(w *ebs.VolumeRequest) { w.Tags["more"] = "x" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			existing := r.volume("pvc-1")
			for range 2 {
				vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1", tc.change))
				switch {
				case tc.ok && (err != nil || vol.ID != existing.ID || vol.Zone != existing.Zone):
					t.Errorf("%s: %+v, %v; want %s in %s", tc.why, vol, err, existing.ID, existing.Zone.Name)
				case !tc.ok && !errors.Is(err, ebs.ErrAlreadyExists):
					t.Errorf("%s: %v, want that it exists with other properties", tc.why, err)
				}
			}
			if n := len(r.Volumes()); n != 1 {
				t.Errorf("%d volumes, want 1", n)
			}
		})
	}
}

func TestEnsureVolumeKeepsNamesApart(t *testing.T) {
	r := newRegion(t)
	one, two := r.volume("data-a"), r.volume("data-*")
	if one.ID == two.ID {
		t.Error("a name with a wildcard found another name's volume")
	}
	if again := r.volume("data-*"); again.ID != two.ID {
		t.Errorf("found %s under data-*, want %s", again.ID, two.ID)
	}
	calls := r.callsOf("DescribeVolumes")
	if got := calls[len(calls)-1].form.Get("Filter.1.Value.1"); got != `data-\*` {
		t.Errorf("the filter is %s: EC2 takes an unescaped * for anything", got)
	}
	r.intercept(func(c call) *reply { // whatever a look-up answers, only a volume of the very name counts
		if !c.by("tag:CSIVolumeName") {
			return nil
		}
		return &reply{200, "<DescribeVolumesResponse><volumeSet><item><volumeId>" + string(one.ID) + "</volumeId><size>10</size><volumeType>gp3</volumeType>" +
			"<status>available</status><availabilityZone>" + zoneA + "</availabilityZone><tagSet><item><key>CSIVolumeName</key><value>data-a</value></item></tagSet></item></volumeSet></DescribeVolumesResponse>"}
	})
	if third := r.volume("data-b"); third.ID == one.ID {
		t.Error("another name's volume was taken")
	}
}

// A volume that is being deleted is none: its name is free, its token is not.
func TestEnsureVolumeAfterDeletion(t *testing.T) {
	r := newRegion(t)
	old := r.volume("pvc-1")
	r.SetDelays(ec2sim.Delays{Delete: ec2sim.Duration(time.Hour)})
	if err := r.client().DeleteVolume(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if again := r.volume("pvc-1"); again.ID == old.ID || again.State != ebs.VolumeAvailable {
		t.Errorf("%+v, want a new volume", again)
	}
}

// An error of the look-up must not let csi-provisioner forget a volume that may exist.
func TestEnsureVolumeWithoutALookUp(t *testing.T) {
	r := newRegion(t)
	r.FailNext("DescribeVolumes", "UnauthorizedOperation", 1)
	_, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("%v, want that the volume may exist", err)
	}
	if n := len(r.callsOf("CreateVolume")); n != 0 {
		t.Errorf("%d CreateVolume calls without a look-up, want none", n)
	}
}

// DRIVER rule 17: waits end with the context, and nothing goes on.
func TestEnsureVolumeEndsWithItsContext(t *testing.T) {
	r := newRegionInRealTime(t)
	r.SetDelays(ec2sim.Delays{Create: ec2sim.Duration(time.Hour)})
	start := time.Now()
	_, err := r.client().EnsureVolume(soon(t, 3*time.Second), request("pvc-1"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "creating") {
		t.Errorf("%v, want the end of the context and the state in which the volume is", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s to notice", took)
	}
	calls := len(r.callsOf("DescribeVolumes"))
	<-time.After(1500 * time.Millisecond)
	if now := len(r.callsOf("DescribeVolumes")); now != calls {
		t.Errorf("%d calls after the end, want none", now-calls)
	}
}

func TestDeleteVolume(t *testing.T) {
	r := newRegion(t)
	free, used, gone := r.volume("free"), r.volume("used"), r.volume("gone")
	if _, err := r.client().Attach(t.Context(), used.ID, nodeA); err != nil {
		t.Fatal(err)
	}
	if err := r.client().DeleteVolume(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		why  string
		id   ebs.VolumeID
		want error
	}{
		"free":         {"it can go", free.ID, nil},
		"again":        {"deletion may be repeated", gone.ID, nil},
		"never was":    {"what is not there needs no deletion", "vol-0123456789abcdef0", nil},
		"no volume id": {"what EC2 could not have named does not exist", "my-volume", nil},
		"in use":       {"an attached volume is never deleted", used.ID, ebs.ErrInUse},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.client().DeleteVolume(t.Context(), tc.id); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.why, err, tc.want)
			}
		})
	}
}

func TestDeleteVolumeAfterALostAnswer(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	if err := r.Inject(ec2sim.Fault{Action: "DeleteVolume", LostAnswer: ec2sim.LostAfter}); err != nil {
		t.Fatal(err)
	}
	if err := r.client().DeleteVolume(t.Context(), vol.ID); err != nil {
		t.Errorf("the SDK's repeat finds nothing to delete, which is fine: %v", err)
	}
}
