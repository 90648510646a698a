package claim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// requiring is a policy for claims labelled app=pg that asks for schedules, and
// gives these.
func requiring(t testing.TB, gives ...v1alpha1.PolicySchedule) *policy.Policy {
	t.Helper()
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}}
	p.Spec.Match.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}}
	p.Spec.Snapshots = &v1alpha1.PolicySnapshots{Required: v1alpha1.Deny, Schedules: gives}
	ready, errs := policy.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return ready
}

func scheduleOf(name string, change func(*v1alpha1.SnapshotSchedule)) v1alpha1.SnapshotSchedule {
	s := v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name}}
	s.Spec.Schedule = "0 3 * * *"
	if change != nil {
		change(&s)
	}
	return s
}

func TestCoverBy(t *testing.T) {
	daily := v1alpha1.PolicySchedule{Name: "daily", Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "0 3 * * *"}}
	with := func(change func(*v1alpha1.SnapshotScheduleSpec)) v1alpha1.PolicySchedule {
		s := *daily.DeepCopy()
		change(&s.Spec)
		return s
	}
	ofSet := func(name string) func(*v1alpha1.SnapshotSchedule) {
		return func(s *v1alpha1.SnapshotSchedule) { s.Spec.Target.StatefulSetName = name }
	}
	suspend := func(s *v1alpha1.SnapshotSchedule) { s.Spec.Suspend = true }
	pg := map[string]string{"app": "pg"}
	for name, tc := range map[string]struct {
		why    string
		gives  []v1alpha1.PolicySchedule
		there  []v1alpha1.SnapshotSchedule
		claim  string // its name; default data-pg-0
		labels map[string]string
		stamp  string // the set that the claim is stamped with
		old    bool   // it is no new claim
		want   Cover
	}{
		"nothing":                   {why: "no schedule at all", labels: pg, want: NotCovered},
		"one that is there":         {why: "an empty target is every claim", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", nil)}, labels: pg, want: Covered},
		"one of two":                {why: "one is enough", there: []v1alpha1.SnapshotSchedule{scheduleOf("off", suspend), scheduleOf("own", nil)}, labels: pg, want: Covered},
		"suspended":                 {why: "takes no copies", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", suspend)}, labels: pg, want: NotCovered},
		"invalid":                   {why: "is never due", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", func(s *v1alpha1.SnapshotSchedule) { s.Spec.Schedule = "0 0 30 2 *" })}, labels: pg, want: NotCovered},
		"being deleted":             {why: "takes no copies any more", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", func(s *v1alpha1.SnapshotSchedule) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })}, labels: pg, want: NotCovered},
		"of other claims":           {why: "its target does not match", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", func(s *v1alpha1.SnapshotSchedule) { s.Spec.Target.StorageClassNames = []string{"io2"} })}, labels: pg, want: NotCovered},
		"given":                     {why: "the policy's schedule is about to be made", gives: []v1alpha1.PolicySchedule{daily}, labels: pg, want: Covered},
		"given to others":           {why: "the policy is not about the claim, and gives it nothing", gives: []v1alpha1.PolicySchedule{daily}, labels: map[string]string{"app": "web"}, want: NotCovered},
		"given, suspended":          {why: "what will be made will take no copies", gives: []v1alpha1.PolicySchedule{with(func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = true })}, labels: pg, want: NotCovered},
		"given, edited":             {why: "what is there decides: its owner suspended it", gives: []v1alpha1.PolicySchedule{daily}, there: []v1alpha1.SnapshotSchedule{scheduleOf("databases-daily", suspend)}, labels: pg, want: NotCovered},
		"given, name taken":         {why: "likewise: what stands there is about another set", gives: []v1alpha1.PolicySchedule{daily}, there: []v1alpha1.SnapshotSchedule{scheduleOf("databases-daily", ofSet("web"))}, labels: pg, want: NotCovered},
		"new claim of the set":      {why: "the manager stamps it once it is there", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, labels: pg, want: Covered},
		"given to the set":          {why: "likewise", gives: []v1alpha1.PolicySchedule{with(func(s *v1alpha1.SnapshotScheduleSpec) { s.Target.StatefulSetName = "pg" })}, labels: pg, want: Covered},
		"stamped claim of the set":  {why: "it says whose it is", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, labels: pg, stamp: "pg", old: true, want: Covered},
		"stamped by another":        {why: "the stamp comes before the name", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, labels: pg, stamp: "db-pg", want: NotCovered},
		"old claim without a stamp": {why: "no set has made it, whatever it is called", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, labels: pg, old: true, want: NotCovered},
		"new claim of another set":  {why: "the set's name is all of what stands before the ordinal", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("g"))}, labels: pg, want: NotCovered},
		"no ordinal":                {why: "it is no set's", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, claim: "data-pg-x", labels: pg, want: NotCovered},
		"no template":               {why: "it is no set's", there: []v1alpha1.SnapshotSchedule{scheduleOf("own", ofSet("pg"))}, claim: "pg-0", labels: pg, want: NotCovered},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data-pg-0", Labels: tc.labels}}
			if tc.claim != "" {
				claim.Name = tc.claim
			}
			if tc.stamp != "" {
				claim.Annotations = map[string]string{v1alpha1.AnnotationSetName: tc.stamp}
			}
			before := claim.DeepCopy()
			of := policy.Claim{Namespace: policy.Namespace{Name: "db"}, Labels: tc.labels}
			if got := coverBy([]*policy.Policy{requiring(t, tc.gives...)}, tc.there, claim, of, !tc.old); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.why, got, tc.want)
			}
			if len(claim.Annotations) != len(before.Annotations) {
				t.Error("the claim is changed")
			}
		})
	}
}

func TestRequiredSnapshots(t *testing.T) {
	p := requiring(t)
	for cover, want := range map[Cover]string{
		NotAsked: "", Covered: "",
		NotCovered: "a SnapshotSchedule for claim data-pg-0 is not there",
		OptedOut:   "metadata.annotations[holdfast.dev/no-snapshots] is set",
	} {
		checkOne(t, snapshots(p, Subject{Name: "data-pg-0", Cover: cover}), want)
	}
	silent, errs := policy.Compile(&v1alpha1.StoragePolicy{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	checkOne(t, snapshots(silent, Subject{Cover: NotCovered}), "")
}

func checkOne(t *testing.T, got []policy.Breach, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("breaches %+v, want none", got)
	case want != "" && (len(got) != 1 || len(got[0].Sentence()) < len(want) || got[0].Sentence()[:len(want)] != want):
		t.Errorf("breaches %+v, want one that begins %q", got, want)
	}
}

// BenchmarkCoverBy is what the rule adds to one request: of the schedules of the
// claim's namespace the last is about it.
func BenchmarkCoverBy(b *testing.B) {
	policies := []*policy.Policy{requiring(b)}
	var there []v1alpha1.SnapshotSchedule
	for range 8 {
		there = append(there, scheduleOf("own", func(s *v1alpha1.SnapshotSchedule) {
			s.Spec.TimeZone, s.Spec.Target.ClaimSelector = "Europe/Zurich", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		}))
	}
	there[len(there)-1].Spec.Target.ClaimSelector = nil
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data-pg-0", Labels: map[string]string{"app": "pg"}}}
	of := policy.Claim{Namespace: policy.Namespace{Name: "db"}, Labels: claim.Labels}
	for b.Loop() {
		if coverBy(policies, there, claim, of, true) != Covered {
			b.Fatal("the last schedule is about the claim")
		}
	}
}
