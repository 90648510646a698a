package admit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// written keeps the events that are written to the API server.
type written chan *eventsv1.Event

func (w written) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	w <- e
	return e, nil
}

func (w written) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }

func (w written) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return e, nil
}

// TestEachFindingIsAnEvent: client-go makes one event of those that differ in
// their note alone, so that only the first object and the first rule of a policy
// would ever be told.
func TestEachFindingIsAnEvent(t *testing.T) {
	got := make(written, 10)
	broadcaster := events.NewBroadcaster(got)
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(broadcaster.NewRecorder(scheme.Scheme, "holdfast"), prometheus.NewRegistry())
	finding := func(rule v1alpha1.Rule) policy.Finding {
		return policy.Finding{Breach: policy.Breach{Rule: rule}, Policy: "databases", UID: "u", Action: v1alpha1.Deny}
	}
	request := func(op admissionv1.Operation, name, raw string) *Request {
		return &Request{
			Operation: op, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Namespace: "db", Name: name,
			Object: runtime.RawExtension{Raw: []byte(raw)}, OldObject: runtime.RawExtension{Raw: []byte(raw)},
		}
	}
	r.Report(request(admissionv1.Create, "one", `{}`), []policy.Finding{finding(v1alpha1.RuleClaimMaxSize), finding(v1alpha1.RuleClassAllowed)})
	r.Report(request(admissionv1.Create, "two", `{}`), []policy.Finding{finding(v1alpha1.RuleClaimMaxSize)})
	r.Report(request(admissionv1.Create, "two", `{}`), []policy.Finding{finding(v1alpha1.RuleClaimMaxSize)}) // the same again
	r.Report(request(admissionv1.Create, "", `{"metadata":{"generateName":"x-"}}`), []policy.Finding{finding(v1alpha1.RuleClaimMaxSize)})
	r.Report(request(admissionv1.Delete, "", `{"metadata":{"name":"three"}}`), []policy.Finding{finding(v1alpha1.RuleDeletion)})
	want := []string{
		"CREATE claim.maxSize of one", "CREATE claim.maxSize of two", "CREATE claim.maxSize of ", "CREATE storageClass.allowed of one", "DELETE deletion of three",
	}
	var told []string
	for range want {
		select {
		case e := <-got:
			told = append(told, fmt.Sprintf("%s of %s", e.Action, e.Related.Name))
		case <-time.After(30 * time.Second):
			t.Fatalf("told are %q, and nothing follows", told)
		}
	}
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("told are %q, want %q", told, want)
	}
}

// TestNoteOfALetterThatIsCut: what is cut within a letter is written with a
// stand-in that is longer, and an event whose note is too long is refused: so
// nobody would be told of an override with such a reason.
func TestNoteOfALetterThatIsCut(t *testing.T) {
	for i := range 4 {
		got := notes{}
		r := NewRecorder(&got, prometheus.NewRegistry())
		r.Report(&Request{Operation: admissionv1.Delete, Namespace: "db", Name: "data-pg-0"}, []policy.Finding{{
			Breach: policy.Breach{Rule: v1alpha1.RuleDeletion}, Policy: "databases", Action: policy.Overridden, Reason: strings.Repeat("x", i) + strings.Repeat("\U0001f5d1", 400),
		}})
		if len(got) != 1 || !utf8.ValidString(got[0]) || len(got[0]) > maxNote || len(got[0]) <= maxNote-4 {
			t.Errorf("told are %q, want one note of whole letters that fills %d bytes", got, maxNote)
		}
	}
}

// notes are the notes of events.
type notes []string

func (n *notes) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	*n = append(*n, fmt.Sprintf(note, args...))
}

// TestNameOfACollection: a deletion of a collection has no name of its own.
func TestNameOfACollection(t *testing.T) {
	req := &Request{Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"data-pg-0"}}`)}}
	if got := nameOf(req); got != "data-pg-0" {
		t.Errorf("name %q, want that of the object that is deleted", got)
	}
}

// counted counts events by policy and reason.
type counted map[string]int

func (c counted) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	c[regarding.(*v1alpha1.StoragePolicy).Name+" "+reason]++
}

// TestEventsAreBounded: whoever is refused under ever new names fills neither
// the API server nor this process with events, keeps no other policy's from
// being told, and hides no override. The metric counts all.
func TestEventsAreBounded(t *testing.T) {
	got, registry := counted{}, prometheus.NewRegistry()
	r := NewRecorder(got, registry)
	report := func(p string, a v1alpha1.Action, n int) {
		for i := range n {
			req := &Request{Operation: admissionv1.Create, Namespace: "db", Name: fmt.Sprint("claim-", i)}
			r.Report(req, []policy.Finding{{Breach: policy.Breach{Rule: v1alpha1.RuleClaimMaxSize}, Policy: p, Action: a}})
		}
	}
	report("noisy", v1alpha1.Deny, 5000)
	report("noisy", policy.Overridden, 30)
	report("quiet", v1alpha1.Warn, 1)
	if n := got["noisy Denied"]; n < toldOfPolicy || n > 2*toldOfPolicy {
		t.Errorf("5,000 refusals at once are %d events, want about %d", n, toldOfPolicy)
	}
	if got["noisy Overridden"] != 30 || got["quiet Warned"] != 1 {
		t.Errorf("what has to be told besides is not: %v", got)
	}
	for i := range 2 * toldInAll {
		report(fmt.Sprint("policy-", i), v1alpha1.Audit, toldOfPolicy)
	}
	all := 0
	for _, n := range got {
		all += n
	}
	if all > 2*toldInAll {
		t.Errorf("the findings of many policies are %d events, want about %d", all, toldInAll)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range families[0].Metric {
		sum += m.Counter.GetValue()
	}
	if want := 5031.0 + 2*toldInAll*toldOfPolicy; sum != want {
		t.Errorf("the metric counts %v findings, want %v", sum, want)
	}
}
