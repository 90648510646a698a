package snapshotschedule

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

type spec = v1alpha1.SnapshotScheduleSpec

func selecting(operator string) v1alpha1.SnapshotTarget {
	return v1alpha1.SnapshotTarget{ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOperator(operator)}}}}
}

func labelled(labels map[string]string) v1alpha1.SnapshotTemplate {
	return v1alpha1.SnapshotTemplate{Labels: labels}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		was, now *spec
		want     []string // the fields that are refused
	}{
		"good":                  {"nothing is wrong", nil, &spec{Schedule: "0 * * * *"}, nil},
		"bad":                   {"all that is wrong is said at once", nil, &spec{Schedule: "61 * * * *", Template: labelled(map[string]string{"a b": ""})}, []string{"spec.schedule", "spec.template.labels"}},
		"becomes bad":           {"a change is judged", &spec{Schedule: "1 * * * *"}, &spec{Schedule: "61 * * * *"}, []string{"spec.schedule"}},
		"bad to bad":            {"a bad value for another one is a change", &spec{Schedule: "61 * * * *"}, &spec{Schedule: "62 * * * *"}, []string{"spec.schedule"}},
		"was bad":               {"what is not changed is not judged", &spec{Schedule: "61 * * * *"}, &spec{Schedule: "61 * * * *", Suspend: true}, nil},
		"was bad, mended":       {"mending is free", &spec{Schedule: "61 * * * *"}, &spec{Schedule: "6 * * * *"}, nil},
		"hidden error":          {"a zone that is mended brings to light a schedule that nobody changes", &spec{Schedule: "61 * * * *", TimeZone: "Mars"}, &spec{Schedule: "61 * * * *", TimeZone: "UTC"}, nil},
		"zone unchanged":        {"each field by itself", &spec{Schedule: "1 * * * *", TimeZone: "Mars"}, &spec{Schedule: "2 * * * *", TimeZone: "Mars"}, nil},
		"zone changed":          {"each field by itself", &spec{Schedule: "61 * * * *"}, &spec{Schedule: "61 * * * *", TimeZone: "Mars"}, []string{"spec.timeZone"}},
		"selector unchanged":    {"what is not changed is not judged", &spec{Schedule: "@daily", Target: selecting("Is")}, &spec{Schedule: "@hourly", Target: selecting("Is")}, nil},
		"selector changed":      {"a change is judged", &spec{Schedule: "@daily", Target: selecting("Is")}, &spec{Schedule: "@daily", Target: selecting("Was")}, []string{"spec.target.claimSelector"}},
		"one more bad label":    {"an old bad label makes no room for a new one", &spec{Schedule: "@daily", Template: labelled(map[string]string{"a b": ""})}, &spec{Schedule: "@daily", Template: labelled(map[string]string{"a b": "", "c d": ""})}, []string{"spec.template.labels"}},
		"a label besides a bad": {"nor does it stand in the way of a good one", &spec{Schedule: "@daily", Template: labelled(map[string]string{"a b": ""})}, &spec{Schedule: "@daily", Template: labelled(map[string]string{"a b": "", "c": ""})}, nil},
		"bad annotation":        {"annotations too", &spec{Schedule: "@daily"}, &spec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{v1alpha1.AnnotationHold: "x"}}}, []string{"spec.template.annotations"}},
		"old bad annotation":    {"annotations too", &spec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{v1alpha1.AnnotationHold: "x"}}}, &spec{Schedule: "@hourly", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{v1alpha1.AnnotationHold: "x"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			errs := Refusals(tc.now, tc.was)
			if len(errs) != len(tc.want) {
				t.Fatalf("%s: %v, want errors of %v", tc.why, errs, tc.want)
			}
			for i, e := range errs {
				if e.Field != tc.want[i] {
					t.Errorf("%s: %v, want an error of %s", tc.why, e, tc.want[i])
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	now := time.Date(2027, 3, 1, 0, 0, 30, 0, time.UTC)
	for name, tc := range map[string]struct {
		spec spec
		want []string // part of each warning
	}{
		"hourly":               {spec{Schedule: "@hourly", JitterSeconds: 1800}, nil},
		"every 5 minutes":      {spec{Schedule: "*/5 * * * *"}, nil},
		"every 4 minutes":      {spec{Schedule: "*/4 * * * *"}, []string{`spec.schedule: "*/4 * * * *" is due twice within 4m0s`}},
		"twice in a minute":    {spec{Schedule: "58,59 23 * * *", TimeZone: "Asia/Tokyo"}, []string{"within 1m0s (2027-03-01T14:58:00Z)"}},
		"across midnight":      {spec{Schedule: "1,58 0,23 * * *"}, []string{"within 3m0s (2027-03-01T23:58:00Z)"}},
		"too much jitter":      {spec{Schedule: "@hourly", JitterSeconds: 1801}, []string{"spec.jitterSeconds: 1801 is more than half of the 1h0m0s between two runs (2027-03-01T01:00:00Z): there the claims are spread over 30m0s"}},
		"jitter of the nights": {spec{Schedule: "0 2,4 * * *", JitterSeconds: 3601}, []string{"over 1h0m0s"}},
		"either day":           {spec{Schedule: "0 3 1 * mon"}, []string{`"0 3 1 * mon" names days of the month and days of the week`}},
		"a day of the week":    {spec{Schedule: "0 3 * * 1-5"}, nil},
		"every other day":      {spec{Schedule: "0 3 */2 * *"}, nil},
		"two at once":          {spec{Schedule: "* * 1 * 1", JitterSeconds: 60}, []string{"within 1m0s", "over 30s", "fit either"}},
		"stored bad":           {spec{Schedule: "61 * * * *", JitterSeconds: 9}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Warnings(&tc.spec, now)
			if len(got) != len(tc.want) {
				t.Fatalf("warned %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("warned %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}

// TestUnreadableIsRefused: an error would let it in where the webhook fails open.
func TestUnreadableIsRefused(t *testing.T) {
	for _, raw := range []string{`{"spec":{"schedule":1}}`, `{"spec":{"retention":{"keepWithinSeconds":2147483648}}}`, `[]`} {
		req := &admit.Request{Name: "s", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)}}
		answer, err := (&Webhook{}).Validate(t.Context(), req)
		if err != nil || !strings.Contains(answer.Forbidden, `SnapshotSchedule "s" cannot be read`) {
			t.Errorf("%s: answered %+v, %v", raw, answer, err)
		}
	}
}

// TestGoingIsFree: what holds the deletion of a schedule up is taken off
// whatever else the update brings.
func TestGoingIsFree(t *testing.T) {
	s := v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: "s", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, Spec: spec{Schedule: "61 * * * *"}}
	now, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Schedule, s.Finalizers = "1 * * * *", []string{"example.com/x"}
	old, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	req := &admit.Request{Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: now}, OldObject: runtime.RawExtension{Raw: old}}
	if answer, err := (&Webhook{}).Validate(t.Context(), req); err != nil || answer.Forbidden != "" {
		t.Errorf("answered %+v, %v", answer, err)
	}
}

func TestBringsHooks(t *testing.T) {
	hooks := func(argv ...string) *v1alpha1.SnapshotHooks {
		return &v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: argv}}}}
	}
	for name, tc := range map[string]struct {
		was, now *spec
		want     bool
	}{
		"created without": {nil, &spec{}, false},
		"created with":    {nil, &spec{Hooks: hooks("a")}, true},
		"come":            {&spec{}, &spec{Hooks: hooks("a")}, true},
		"go":              {&spec{Hooks: hooks("a")}, &spec{}, false},
		"stay":            {&spec{Hooks: hooks("a")}, &spec{Hooks: hooks("a"), Suspend: true, Schedule: "x"}, false},
		"change":          {&spec{Hooks: hooks("a")}, &spec{Hooks: hooks("a", "")}, true},
		"other Pods":      {&spec{Hooks: hooks("a")}, &spec{Hooks: hooks("a"), Target: v1alpha1.SnapshotTarget{StatefulSetName: "b"}}, true},
		"another target":  {&spec{}, &spec{Target: v1alpha1.SnapshotTarget{StatefulSetName: "b"}}, false},
	} {
		if got := BringsHooks(tc.now, tc.was); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestHooksFailClosed: where hooks are off, or whether the user may exec cannot
// be asked, hooks are refused, and nothing else is.
func TestHooksFailClosed(t *testing.T) {
	raw := func(text string) *admit.Request {
		return &admit.Request{Name: "s", Namespace: "db", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(text)}}
	}
	w := &world.World{Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	const hooked = `{"spec":{"schedule":"@daily","hooks":{"before":[{"command":["sync"]}]}}}`
	for name, tc := range map[string]struct {
		webhook Webhook
		object  string
		want    string
	}{
		"off":                {Webhook{World: w}, hooked, "hooks are not enabled in this install"},
		"off, no hooks":      {Webhook{World: w}, `{"spec":{"schedule":"@daily"}}`, ""},
		"no answer":          {Webhook{World: w, Hooks: true, Authorizer: world.Authorizer{Client: failing{}}}, hooked, "cannot be asked now"},
		"no answer, no hook": {Webhook{World: w, Hooks: true, Authorizer: world.Authorizer{Client: failing{}}}, `{"spec":{"schedule":"@daily"}}`, ""},
	} {
		answer, err := tc.webhook.Validate(t.Context(), raw(tc.object))
		if err != nil || (answer.Forbidden == "") != (tc.want == "") || !strings.Contains(answer.Forbidden, tc.want) {
			t.Errorf("%s: answered %+v, %v", name, answer, err)
		}
	}
}

// failing is an API server that answers no review.
type failing struct{ client.Writer }

func (failing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return errors.New("down")
}
