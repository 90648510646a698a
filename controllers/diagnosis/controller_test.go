package diagnosis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// says answers each question for events with one of a provisioner.
type says struct {
	client.Reader
	message string
}

func (s says) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.EventList).Items = []corev1.Event{{Reason: "ProvisioningFailed", Message: s.message, Type: corev1.EventTypeWarning}}
	return nil
}

func doctor(live client.Reader) (*Doctor, *events.FakeRecorder) {
	clk, told := clocktesting.NewFakeClock(now), events.NewFakeRecorder(100)
	return New(Options{World: &world.World{Live: live, Clock: clk}, Events: told, Clock: clk, Registry: prometheus.NewRegistry()}), told
}

// TestToldWithWhatWasSaid: a claim whose events are not read in this look, since
// there are so many, is not told of without them for an hour: the next look tells.
func TestToldWithWhatWasSaid(t *testing.T) {
	d, told := doctor(says{message: "no such type"})
	c := claim(tooLong, func(*corev1.PersistentVolumeClaim) {})
	stuck := func() *Stuck { return &Stuck{Reason: NotProvisioned, Why: "x"} }
	for _, asked := range []int{askEach, 0} {
		if err := d.tellPending(t.Context(), now, c, Around{}, stuck(), &asked); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(told.Events); n != 1 {
		t.Fatalf("%d events, want one", n)
	}
	if e := <-told.Events; !strings.Contains(e, "last it was said: ProvisioningFailed: no such type") {
		t.Errorf("told: %s", e)
	}
}

// TestManyForgotten: a look tells of some, the next ones of the rest, and none
// twice a day.
func TestManyForgotten(t *testing.T) {
	d, told := doctor(nil)
	told.Events = make(chan string, 3*remindEach)
	for look := range 3 {
		d.reminders = remindEach
		for i := range remindEach + 5 {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pv-", i), UID: types.UID(fmt.Sprint(i))}}
			d.remind(now, v, "VolumeReleased", &Stuck{Retained, "x"})
		}
		if got, want := len(told.Events), []int{remindEach, remindEach + 5, remindEach + 5}[look]; got != want {
			t.Errorf("after look %d: %d events, want %d", look, got, want)
		}
	}
}

// TestToAndFro: a claim that scheduler and provisioner hand to and fro is told of
// once an hour for each.
func TestToAndFro(t *testing.T) {
	d, _ := doctor(nil)
	told := 0
	for i := range 10 {
		if d.fresh(now, "a", []Reason{NotScheduled, NotProvisioned}[i%2]) {
			told++
		}
	}
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
}

// TestLasts: what passes within a quarter of an hour, or comes again, does not last.
func TestLasts(t *testing.T) {
	d, _ := doctor(nil)
	for i, tc := range []struct {
		after time.Duration
		there bool
		want  bool
	}{
		{0, true, false}, {tooLong - time.Second, true, false}, {tooLong, true, true},
		{tooLong + time.Minute, false, false}, {tooLong + 2*time.Minute, true, false}, {2*tooLong + 2*time.Minute, true, true},
	} {
		d.since, d.seen = d.seen, map[types.UID]time.Time{}
		if tc.there && d.lasts(now.Add(tc.after), "a") != tc.want {
			t.Errorf("look %d, after %v: it lasts %t, want %t", i, tc.after, !tc.want, tc.want)
		}
	}
}

// TestLongNote: a note that is cut is text still.
func TestLongNote(t *testing.T) {
	d, told := doctor(says{message: strings.Repeat("\u00e9", maxNote)})
	asked := 0
	if err := d.tellPending(t.Context(), now, claim(tooLong, func(*corev1.PersistentVolumeClaim) {}), Around{}, &Stuck{Reason: NotProvisioned, Why: "x"}, &asked); err != nil {
		t.Fatal(err)
	}
	if e := <-told.Events; !utf8.ValidString(e) || len(e) > maxNote+100 {
		t.Errorf("%d bytes, valid %t", len(e), utf8.ValidString(e))
	}
}
