package policyschedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func labelled(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		s.MatchLabels[k] = v
	}
	return s
}

func daily() v1alpha1.SnapshotScheduleSpec {
	return v1alpha1.SnapshotScheduleSpec{Schedule: "0 3 * * *", Retention: v1alpha1.SnapshotRetention{KeepLast: 7}}
}

// databases is a policy for namespaces labelled tier=db that gives a daily schedule.
func databases(change func(*v1alpha1.StoragePolicySpec)) *v1alpha1.StoragePolicy {
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases", Generation: 4}}
	p.Spec.Match.NamespaceSelector = labelled("tier=db")
	p.Spec.Snapshots = &v1alpha1.PolicySnapshots{Schedules: []v1alpha1.PolicySchedule{{Name: "daily", Spec: daily()}}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func ready(t *testing.T, p *v1alpha1.StoragePolicy) *policy.Policy {
	t.Helper()
	if p == nil {
		return nil
	}
	c, errs := policy.Compile(p)
	if c == nil {
		t.Fatal(errs)
	}
	return c
}

func namespace(name string) policy.Namespace {
	return policy.Namespace{Name: name, Labels: map[string]string{"tier": "db"}}
}

// given is databases-daily as the policy gave it to namespace a.
func given(change func(*v1alpha1.SnapshotSchedule)) v1alpha1.SnapshotSchedule {
	s := v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "databases-daily", Generation: 1,
		Labels:      map[string]string{v1alpha1.LabelPolicy: "databases"},
		Annotations: map[string]string{v1alpha1.AnnotationPolicyGeneration: "1"},
	}, Spec: daily()}
	if change != nil {
		change(&s)
	}
	return s
}

// told is a plan as a test compares it.
func told(p Plan) []string {
	var lines []string
	line := func(what string, s *v1alpha1.SnapshotSchedule) {
		lines = append(lines, fmt.Sprintf("%s %s/%s %s classes=%v generation=%s", what, s.Namespace, s.Name, s.Spec.Schedule, s.Spec.Target.StorageClassNames, s.Annotations[v1alpha1.AnnotationPolicyGeneration]))
	}
	for _, s := range p.Create {
		line("create", s)
	}
	for _, c := range p.Change {
		line("change", c.To)
	}
	for _, s := range p.Delete {
		lines = append(lines, fmt.Sprintf("delete %s/%s", s.Namespace, s.Name))
	}
	for _, name := range p.Edited {
		lines = append(lines, "edited "+name)
	}
	for _, name := range p.Taken {
		lines = append(lines, "taken "+name)
	}
	for _, problem := range p.Problems {
		lines = append(lines, "problem "+problem.Reason)
	}
	return lines
}

func TestDecide(t *testing.T) {
	hourly := func(p *v1alpha1.StoragePolicySpec) { p.Snapshots.Schedules[0].Spec.Schedule = "0 * * * *" }
	suspended := func(s *v1alpha1.SnapshotSchedule) { s.Spec.Suspend, s.Generation = true, 2 }
	dying := policy.Namespace{Name: "a", Labels: map[string]string{"tier": "db"}, Terminating: true}
	byProvisioner := func(p *v1alpha1.StoragePolicySpec) { p.Match.Provisioners = []string{"ebs.csi.aws.com"} }
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("class-%02d", i)
	}
	for name, tc := range map[string]struct {
		why        string
		policy     *v1alpha1.StoragePolicy // nil: it is gone
		namespaces []policy.Namespace
		schedules  []v1alpha1.SnapshotSchedule
		classes    []string
		gone       map[string][]string
		want       []string
	}{
		"new": {
			why: "each matching namespace is given one, those of the system and those that go none", policy: databases(nil),
			namespaces: []policy.Namespace{namespace("a"), namespace("b"), namespace("kube-system"), {Name: "web"}, {Name: "c", Labels: map[string]string{"tier": "db"}, Terminating: true}},
			want:       []string{"create a/databases-daily 0 3 * * * classes=[] generation=1", "create b/databases-daily 0 3 * * * classes=[] generation=1"},
		},
		"in step":         {why: "nothing to do, because it is as the policy has it", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}},
		"policy changed":  {why: "what nobody edited follows", policy: databases(hourly), namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"change a/databases-daily 0 * * * * classes=[] generation=2"}},
		"edited":          {why: "what somebody edited is left alone", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(suspended)}, want: []string{"edited a/databases-daily"}},
		"edited, changed": {why: "also when the policy changes", policy: databases(hourly), namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(suspended)}, want: []string{"edited a/databases-daily"}},
		"edit taken back": {
			why: "it is as the policy has it, and follows again", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Generation = 3 })}, want: []string{"change a/databases-daily 0 3 * * * classes=[] generation=3"},
		},
		"handed back": {
			why: "its owner wants the policy's", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) {
				suspended(s)
				s.Annotations[v1alpha1.AnnotationFollowPolicy] = "true"
			})}, want: []string{"change a/databases-daily 0 3 * * * classes=[] generation=3"},
		},
		"labels of an owner's": {
			why: "labels and annotations are no edit of the spec", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Labels["team"], s.Annotations["note"] = "x", "y" })},
		},
		"namesake": {
			why: "what is not ours is never touched", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Labels, s.Annotations = nil, nil })}, want: []string{"taken a/databases-daily"},
		},
		"another policy's": {
			why: "nor what another policy gave: a-b with c has the name of a with b-c", policy: databases(nil), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Labels[v1alpha1.LabelPolicy] = "data" })}, want: []string{"taken a/databases-daily"},
		},
		"being deleted": {
			why: "it is made again when it has gone", policy: databases(hourly), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.DeletionTimestamp = &metav1.Time{Time: now} })},
		},
		"namespace no longer matches": {why: "the schedule goes", policy: databases(nil), namespaces: []policy.Namespace{{Name: "a"}}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"delete a/databases-daily"}},
		"taken out of the policy": {
			why: "likewise", policy: databases(func(p *v1alpha1.StoragePolicySpec) { p.Snapshots.Schedules[0].Name = "nightly" }), namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"create a/databases-nightly 0 3 * * * classes=[] generation=1", "delete a/databases-daily"},
		},
		"no snapshots any more": {why: "likewise", policy: databases(func(p *v1alpha1.StoragePolicySpec) { p.Snapshots = nil }), namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"delete a/databases-daily"}},
		"policy gone":           {why: "likewise", namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"delete a/databases-daily"}},
		"gone, edited":          {why: "what an owner made his own stays", namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(suspended)}},
		"gone, going":           {why: "nothing to do, because it goes", namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.DeletionTimestamp = &metav1.Time{Time: now} })}},
		"gone, namespace goes":  {why: "it goes with its namespace", namespaces: []policy.Namespace{dying}, schedules: []v1alpha1.SnapshotSchedule{given(nil)}},
		"gone, of another":      {why: "what other policies and nobody gave stays", namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Labels[v1alpha1.LabelPolicy] = "data" }), given(func(s *v1alpha1.SnapshotSchedule) { s.Name, s.Labels = "own", nil })}},
		"unknown namespace":     {why: "one that the informer does not have yet is not judged", schedules: []v1alpha1.SnapshotSchedule{given(nil)}},
		"labelled by somebody": {
			why: "our label without our annotation is somebody's own", namespaces: []policy.Namespace{namespace("a")},
			schedules: []v1alpha1.SnapshotSchedule{given(func(s *v1alpha1.SnapshotSchedule) { s.Name, s.Annotations = "own", nil })},
		},
		"invalid": {
			why: "what is there stays, and nothing is made of it; the other is given", namespaces: []policy.Namespace{namespace("a"), namespace("b")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)},
			policy: databases(func(p *v1alpha1.StoragePolicySpec) {
				p.Snapshots.Schedules[0].Spec.Schedule = "0 0 30 2 *"
				p.Snapshots.Schedules = append(p.Snapshots.Schedules, v1alpha1.PolicySchedule{Name: "weekly", Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "@weekly"}})
			}),
			want: []string{"create a/databases-weekly @weekly classes=[] generation=1", "create b/databases-weekly @weekly classes=[] generation=1", "problem InvalidSchedule"},
		},
		"contradiction": {
			why: "no claim can be of both: told, not silently empty", namespaces: []policy.Namespace{namespace("a")}, schedules: []v1alpha1.SnapshotSchedule{given(nil)},
			policy: databases(func(p *v1alpha1.StoragePolicySpec) {
				p.Match.StorageClassNames, p.Snapshots.Schedules[0].Spec.Target.StorageClassNames = []string{"io2"}, []string{"gp3"}
			}),
			want: []string{"problem ContradictoryTarget"},
		},
		"provisioners": {
			why: "targets know classes, so they are given those of the provisioners, also of claims whose class is gone", policy: databases(byProvisioner),
			namespaces: []policy.Namespace{namespace("a"), namespace("b")}, classes: []string{"io2", "gp3"}, gone: map[string][]string{"b": {"gp2", "gp3"}},
			want: []string{"create a/databases-daily 0 3 * * * classes=[gp3 io2] generation=1", "create b/databases-daily 0 3 * * * classes=[gp2 gp3 io2] generation=1"},
		},
		"provisioners and classes": {
			why: "what both name", namespaces: []policy.Namespace{namespace("a")}, classes: []string{"io2", "gp3"},
			policy: databases(func(p *v1alpha1.StoragePolicySpec) {
				byProvisioner(p)
				p.Snapshots.Schedules[0].Spec.Target.StorageClassNames = []string{"gp3", "efs"}
			}),
			want: []string{"create a/databases-daily 0 3 * * * classes=[gp3] generation=1"},
		},
		"no class of the provisioner": {
			why: "an empty list would be every class", policy: databases(byProvisioner), namespaces: []policy.Namespace{namespace("a"), namespace("b")},
			schedules: []v1alpha1.SnapshotSchedule{given(nil)}, want: []string{"problem NoStorageClass"},
		},
		"too many classes": {
			why: "the API would refuse it", policy: databases(byProvisioner), namespaces: []policy.Namespace{namespace("a")}, classes: many, want: []string{"problem TooManyStorageClasses"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{Label: "databases", Policy: ready(t, tc.policy), Namespaces: tc.namespaces, Schedules: tc.schedules, Classes: tc.classes, Gone: tc.gone}
			if diff := cmp.Diff(tc.want, told(Decide(seen))); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

// TestWrittenTakesTheHandBackOff: what is handed back is handed back once, and
// what is in the informer is not touched.
func TestWrittenTakesTheHandBackOff(t *testing.T) {
	s := given(func(s *v1alpha1.SnapshotSchedule) {
		s.Generation, s.Spec.Suspend = 2, true
		s.Annotations[v1alpha1.AnnotationFollowPolicy], s.Annotations["note"] = "true", "mine"
	})
	before := s.DeepCopy()
	plan := Decide(Observed{Label: "databases", Policy: ready(t, databases(nil)), Namespaces: []policy.Namespace{namespace("a")}, Schedules: []v1alpha1.SnapshotSchedule{s}})
	if len(plan.Change) != 1 {
		t.Fatalf("plan is %+v", plan)
	}
	to := plan.Change[0].To
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationPolicyGeneration: "3", "note": "mine"}, to.Annotations); diff != "" || to.Spec.Suspend {
		t.Errorf("suspended: %v; annotations (-want +got)\n%s", to.Spec.Suspend, diff)
	}
	if diff := cmp.Diff(before, &s); diff != "" {
		t.Errorf("the schedule that was read is changed\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("n%02d/databases-daily", i))
	}
	for name, tc := range map[string]struct {
		why           string
		plan          Plan
		refused       error
		given, edited string // status, reason and a part of the message
	}{
		"in step":  {"all have theirs", Plan{}, nil, "True InStep every namespace under the policy", "False NoneEdited "},
		"edited":   {"an edit is no fault of the giving", Plan{Edited: names[:1]}, nil, "True InStep ", "True EditedByOwner 1 schedule is (n00/databases-daily) edited"},
		"many":     {"ten are named", Plan{Edited: names}, nil, "True InStep ", "True EditedByOwner 12 schedules are (n00/databases-daily, n01"},
		"taken":    {"a namesake stands in the way", Plan{Taken: names[:2]}, nil, "False NameTaken 2 SnapshotSchedules are (n00/databases-daily, n01/databases-daily) there already", "False NoneEdited "},
		"problem":  {"the first problem gives the reason, all are told", Plan{Taken: names[:1], Problems: []Problem{{v1alpha1.ReasonInvalidSchedule, "bad cron"}}}, nil, "False InvalidSchedule bad cron; 1 SnapshotSchedule is (", "False NoneEdited "},
		"refused":  {"what the API server refuses", Plan{}, errors.Join(errors.New("quota"), errors.New("quota too")), "False WriteRefused quota (and 1 more refusals)", "False NoneEdited "},
		"too long": {"the API bounds messages", Plan{Problems: []Problem{{"X", strings.Repeat("é", 1000)}}}, nil, "False X é", "False NoneEdited "},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := Report([]metav1.Condition{{Type: "Ready", Status: "True"}}, databases(nil), tc.plan, tc.refused, now)
			if len(conditions) != 3 {
				t.Fatalf("%d conditions, want those of others kept and two", len(conditions))
			}
			for kind, want := range map[string]string{v1alpha1.ConditionSchedulesGiven: tc.given, v1alpha1.ConditionSchedulesEdited: tc.edited} {
				c := meta.FindStatusCondition(conditions, kind)
				if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); !strings.HasPrefix(got, want) || len(c.Message) > maxMessage || c.ObservedGeneration != 4 {
					t.Errorf("%s: %s is %q of generation %d, want %q", tc.why, kind, got, c.ObservedGeneration, want)
				}
			}
		})
	}
	had := Report(nil, databases(nil), Plan{}, nil, now)
	if left := Report(had, databases(func(p *v1alpha1.StoragePolicySpec) { p.Snapshots = nil }), Plan{}, nil, now); len(left) != 0 {
		t.Errorf("a policy that gives nothing any more keeps %v", left)
	}
}

func TestRefusalsNameThePath(t *testing.T) {
	for _, spec := range []string{"TZ=UTC 0 3 * * *", "CRON_TZ=UTC 0 3 * * *", "0 0 31 4 *", "0 24 * * *", "0 0 3 * * *"} {
		p := databases(func(p *v1alpha1.StoragePolicySpec) {
			p.Snapshots.Schedules = append(p.Snapshots.Schedules, v1alpha1.PolicySchedule{Name: "bad", Spec: v1alpha1.SnapshotScheduleSpec{Schedule: spec}})
		})
		errs := Refusals(ready(t, p))
		if len(errs) != 1 || errs[0].Field != "spec.snapshots.schedules[1].spec.schedule" {
			t.Errorf("%q: %v", spec, errs)
		}
	}
	zone := databases(func(p *v1alpha1.StoragePolicySpec) { p.Snapshots.Schedules[0].Spec.TimeZone = "Mars/Olympus" })
	if errs := Refusals(ready(t, zone)); len(errs) != 1 || errs[0].Field != "spec.snapshots.schedules[0].spec.timeZone" {
		t.Errorf("an unknown zone: %v", errs)
	}
	if errs := Refusals(ready(t, databases(nil))); len(errs) > 0 {
		t.Error(errs)
	}
}
