package diagnosis

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
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
	clk, told := clocktesting.NewFakeClock(now), events.NewFakeRecorder(10)
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
