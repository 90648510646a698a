package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// What the alerts on age go by: how long a schedule has had for its copies, from
// its creation, its last change or its resumption on; nothing while it is
// suspended, and nothing of one that is gone.
func TestMetricsTellSinceWhenCopiesAreDue(t *testing.T) {
	created, changed := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	s := &v1alpha1.SnapshotSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hourly", CreationTimestamp: metav1.NewTime(created)},
		Spec:       v1alpha1.SnapshotScheduleSpec{Schedule: "0 * * * *"},
	}
	ready, invalid := Compile(&s.Spec)
	if len(invalid) > 0 {
		t.Fatal(invalid)
	}
	m := newInstruments()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.all()...)
	const interval, since = "holdfast_schedule_expected_interval_seconds", "holdfast_schedule_active_since_timestamp_seconds"
	check := func(when string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if name := f.GetName(); name == interval || name == since {
				got[name] = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", when, diff)
		}
	}
	set := func(suspended bool, status v1alpha1.SnapshotScheduleStatus) {
		s.Spec.Suspend = suspended
		m.set(changed.Add(time.Hour), s, status, ready)
	}

	set(false, v1alpha1.SnapshotScheduleStatus{})
	check("before its first plan", map[string]float64{interval: 3600, since: 1_000_000})
	active := v1alpha1.SnapshotScheduleStatus{ActiveSince: &metav1.Time{Time: changed}}
	set(false, active)
	check("changed", map[string]float64{interval: 3600, since: 2_000_000})
	set(true, active)
	check("suspended", map[string]float64{})
	set(false, active)
	check("resumed", map[string]float64{interval: 3600, since: 2_000_000})
	m.forget(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	check("gone", map[string]float64{})
}

// How many claims are not copied as they should be: a schedule's newest copy says
// nothing of one claim among many.
func TestMetricsTellHowManyClaimsFail(t *testing.T) {
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hourly"}}
	is := func(reason string, ready metav1.ConditionStatus, claims ...v1alpha1.ClaimReason) v1alpha1.SnapshotScheduleStatus {
		status := v1alpha1.SnapshotScheduleStatus{ClaimCount: 7, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason}}}
		for _, c := range claims {
			status.Claims = append(status.Claims, v1alpha1.ClaimSnapshots{Reason: c})
		}
		return status
	}
	for name, tc := range map[string]struct {
		why     string
		suspend bool
		status  v1alpha1.SnapshotScheduleStatus
		want    int // less than 0: none is told
	}{
		"good":      {"no claim is behind", false, is(v1alpha1.ReasonActive, metav1.ConditionTrue), 0},
		"some fail": {"what waits, or is wanted so, is no failure", false, is(v1alpha1.ReasonClaimsNotCopied, metav1.ConditionFalse, v1alpha1.ClaimRefused, v1alpha1.ClaimHookFailed, v1alpha1.ClaimWaits, v1alpha1.ClaimOptedOut), 2},
		"some wait": {"that passes", false, is(v1alpha1.ReasonActive, metav1.ConditionTrue, v1alpha1.ClaimWaits, v1alpha1.ClaimNotMounted), 0},
		"invalid":   {"none is copied", false, is(v1alpha1.ReasonInvalidSpec, metav1.ConditionFalse), 7},
		"never valid": {"nobody has counted its claims, and no other alert tells of it", false, func() v1alpha1.SnapshotScheduleStatus {
			_, errs := Compile(&v1alpha1.SnapshotScheduleSpec{Schedule: "60 * * * *"})
			return ReportInvalid(today("11:00:00"), v1alpha1.SnapshotScheduleStatus{}, 1, errs)
		}(), 1},
		"no hooks":          {"none is copied", false, is(v1alpha1.ReasonHooksNotEnabled, metav1.ConditionFalse, v1alpha1.ClaimFailed), 7},
		"clock behind":      {"none is copied", false, is(v1alpha1.ReasonClockBehind, metav1.ConditionFalse), 7},
		"suspended":         {"nobody wants them copied", true, is(v1alpha1.ReasonClaimsNotCopied, metav1.ConditionFalse, v1alpha1.ClaimFailed), -1},
		"not looked at yet": {"nobody knows", false, v1alpha1.SnapshotScheduleStatus{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, registry := newInstruments(), prometheus.NewPedanticRegistry()
			registry.MustRegister(m.failing)
			s.Spec.Suspend = false
			m.setFailing(s, is(v1alpha1.ReasonInvalidSpec, metav1.ConditionFalse)) // as it was before
			s.Spec.Suspend = tc.suspend
			m.setFailing(s, tc.status)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := -1
			for _, f := range families {
				got = int(f.GetMetric()[0].GetGauge().GetValue())
			}
			if got != tc.want {
				t.Errorf("%s: told %d, want %d", tc.why, got, tc.want)
			}
		})
	}
}
