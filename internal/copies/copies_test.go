package copies

import (
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

var slot = time.Date(2027, 5, 1, 7, 0, 0, 0, time.UTC)

func TestName(t *testing.T) {
	const claim, schedule = types.UID("0f0e1d2c"), types.UID("5a5b5c5d")
	name := Name("data-pg-0", claim, schedule, SlotOf(slot.In(time.FixedZone("", 9*3600))))
	if !strings.HasPrefix(name, "data-pg-0-20270501t070000z-") {
		t.Errorf("the name is %s, want claim and time in UTC to be read in it", name)
	}
	seen := map[string]string{name: "first"}
	for what, other := range map[string]string{
		"another claim of the name": Name("data-pg-0", "0f0e1d2d", schedule, SlotOf(slot)),
		"another schedule":          Name("data-pg-0", claim, "5a5b5c5e", SlotOf(slot)),
		"a run by hand":             Name("data-pg-0", claim, schedule, RunOf("1")),
		"another run by hand":       Name("data-pg-0", claim, schedule, RunOf("2")),
		"borders that move":         Name("data-pg-0", claim+"5", schedule[1:], SlotOf(slot)),
		"long":                      Name(strings.Repeat("a", 34)+".b", claim, schedule, SlotOf(slot)),
		"longest":                   Name(strings.Repeat("a", 253), claim+"2", schedule, SlotOf(slot)),
		"with dots":                 Name(strings.Repeat("a", 33)+".-b", claim+"3", schedule, SlotOf(slot)),
	} {
		if before, taken := seen[other]; taken {
			t.Errorf("%s has the name of %s", what, before)
		}
		seen[other] = what
		if errs := validation.IsDNS1123Subdomain(other); len(errs) > 0 || len(other) > 63 {
			t.Errorf("%s: %s (%d characters): %v", what, other, len(other), errs)
		}
	}
	if again := Name("data-pg-0", claim, schedule, SlotOf(slot)); again != name {
		t.Errorf("%s and %s: want the same name for the same copy", name, again)
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("nightly-", 10)
	for in, want := range map[string]string{"nightly": "nightly", strings.Repeat("x", 63): strings.Repeat("x", 63)} {
		if got := LabelValue(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	for _, text := range []string{long, long + "a", strings.Repeat("a.", 120), strings.Repeat("a", 51) + ".." + strings.Repeat("b", 20), SlotOf(slot), RunOf("any thing\n")} {
		if got := LabelValue(text); len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%q becomes %q, which no label may be: %v", text, got, validation.IsValidLabelValue(got))
		}
	}
	if LabelValue(long) == LabelValue(long+"a") {
		t.Error("two long names have one label")
	}
}

func TestJitter(t *testing.T) {
	const within = 300 * time.Second
	places := map[time.Duration]bool{}
	for i := range 1000 {
		j := Jitter("schedule", types.UID(strings.Repeat("c", i)), within)
		if j < 0 || j >= within || j%time.Second != 0 {
			t.Fatalf("jitter %v of %v", j, within)
		}
		if j != Jitter("schedule", types.UID(strings.Repeat("c", i)), within) {
			t.Fatal("a claim's place moved")
		}
		places[j] = true
	}
	if len(places) < 250 {
		t.Errorf("1000 claims on %d of 300 seconds: not spread", len(places))
	}
	if j := Jitter("s", "c", 0) + Jitter("s", "c", -time.Hour) + Jitter("s", "c", 999*time.Millisecond); j != 0 {
		t.Errorf("jitter %v within no time", j)
	}
}

func TestOf(t *testing.T) {
	made := slot.Add(time.Minute)
	snapshot := func(change ...func(*snapshotv1.VolumeSnapshot)) *snapshotv1.VolumeSnapshot {
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u", CreationTimestamp: metav1.NewTime(made), Labels: map[string]string{v1alpha1.LabelClaimUID: "c", v1alpha1.LabelSlot: SlotOf(slot)}}}
		for _, c := range change {
			c(s)
		}
		return s
	}
	status := func(ready *bool, cut *time.Time, failure string) func(*snapshotv1.VolumeSnapshot) {
		return func(s *snapshotv1.VolumeSnapshot) {
			s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ready}
			if cut != nil {
				s.Status.CreationTime = &metav1.Time{Time: *cut}
			}
			if failure != "" {
				s.Status.Error = &snapshotv1.VolumeSnapshotError{Message: &failure}
			}
		}
	}
	cut, epoch := made.Add(3*time.Second), time.Unix(0, 0)
	for name, tc := range map[string]struct {
		why      string
		snapshot *snapshotv1.VolumeSnapshot
		after    time.Duration
		want     State
		at       time.Time
	}{
		"no status yet":       {"it was only asked for", snapshot(), time.Second, Making, made},
		"cut":                 {"it stands for the time of the cut", snapshot(status(ptr.To(false), &cut, "")), time.Minute, Making, cut},
		"ready":               {"a claim can be made from it", snapshot(status(ptr.To(true), &cut, "")), time.Minute, Ready, cut},
		"ready, no time":      {"a driver that says none is not of 1970", snapshot(status(ptr.To(true), &epoch, "")), time.Minute, Ready, made},
		"C09 passing error":   {"an error is no verdict", snapshot(status(ptr.To(false), nil, "throttled")), 2 * time.Second, Making, made},
		"C09 ready after all": {"and is forgotten", snapshot(status(ptr.To(true), &cut, "throttled")), 8 * time.Second, Ready, cut},
		"just before":         {"the deadline is the deadline", snapshot(), time.Hour - time.Nanosecond, Making, made},
		"C07 too slow":        {"from the deadline on it has failed", snapshot(status(ptr.To(false), &cut, "")), time.Hour, Failed, cut},
		"C07 ready, late":     {"until it is ready after all", snapshot(status(ptr.To(true), &cut, "")), 90 * time.Minute, Ready, cut},
	} {
		t.Run(name, func(t *testing.T) {
			c := Of(tc.snapshot, time.Hour, made.Add(tc.after))
			if c.State != tc.want || !c.At().Equal(tc.at) || c.ClaimUID != "c" || c.Slot != "20270501T070000Z" || !c.Deadline.Equal(made.Add(time.Hour)) {
				t.Errorf("%s: %+v, want state %d at %v", tc.why, c, tc.want, tc.at)
			}
		})
	}
	c := Of(snapshot(func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1alpha1.AnnotationHold: " audit "}
		s.DeletionTimestamp = &metav1.Time{Time: made}
	}, status(nil, nil, "no such volume")), time.Hour, made)
	for reason, want := range map[string]string{"": "(no reason)", "  ": "(no reason)", "audit": "audit"} {
		held := snapshot(func(s *snapshotv1.VolumeSnapshot) { s.Annotations = map[string]string{v1alpha1.AnnotationHold: reason} })
		if got := Of(held, time.Hour, made).Hold; got != want {
			t.Errorf("with the annotation %q it is held for %q, want %q", reason, got, want)
		}
	}
	if got := Of(snapshot(), time.Hour, made).Hold; got != "" {
		t.Errorf("without the annotation it is held for %q", got)
	}
	if c.Hold != "audit" || !c.Deleting || c.LastError != "no such volume" || c.UID != "u" || c.Name != "s" {
		t.Errorf("read as %+v", c)
	}
}
