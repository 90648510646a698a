package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// has checks a condition.
func has(t *testing.T, status v1alpha1.SnapshotScheduleStatus, kind string, is metav1.ConditionStatus, reason, says string) {
	t.Helper()
	c := meta.FindStatusCondition(status.Conditions, kind)
	if c == nil || c.Status != is || c.Reason != reason || !strings.Contains(c.Message, says) || c.ObservedGeneration != 7 {
		t.Errorf("condition %+v, want %s %s for %s with %q", c, kind, is, reason, says)
	}
	if len(status.Conditions) != 3 || status.ObservedGeneration != 7 {
		t.Errorf("%d conditions at generation %d, want all 3 from the first pass", len(status.Conditions), status.ObservedGeneration)
	}
}

// found is what a play has come to.
func (p *play) found(plan Plan) Found { return Found{Seen: p.seen, Plan: plan} }

func TestReportOfAGoodSchedule(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a", "b")
	p.every("10:30:00", "11:05:00")
	f := p.found(p.look("11:06:00"))
	f.Excluded = []v1alpha1.ClaimSnapshots{{UID: "o", Name: "o", Reason: v1alpha1.ClaimOptedOut, Message: "cache"}}
	status := Report(today("11:06:00"), v1alpha1.SnapshotScheduleStatus{}, 7, f)
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonActive, "2 claims, next run at 2027-05-05T12:00:00Z")
	has(t, status, v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonSpecValid, "")
	has(t, status, v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAllCopied, "")
	if status.ClaimCount != 3 || status.ReadyCount != 2 || status.PendingCount != 0 || status.FailedCount != 0 ||
		!status.LastSuccessfulTime.Time.Equal(today("11:00:00")) || !status.NextScheduleTime.Time.Equal(today("12:00:00")) ||
		len(status.Claims) != 1 || status.Claims[0].Reason != v1alpha1.ClaimOptedOut {
		t.Errorf("status %+v", status)
	}
	if again := Report(today("11:07:00"), status, 7, f); fmt.Sprint(again) != fmt.Sprint(status) {
		t.Errorf("a status that says the same differs:\n%v\n%v", status, again)
	}
	p.seen.Copies = nil
	if later := Report(today("11:08:00"), status, 7, p.found(f.Plan)); later.LastSuccessfulTime == nil {
		t.Error("the last success is forgotten with its copy")
	}
}

// TestReportOfAClockThatWentBack: nothing runs for hours, which is not Ready; a
// second between the clocks of two leaders is nothing to tell.
func TestReportOfAClockThatWentBack(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.every("10:30:00", "14:05:00")
	status := Report(today("11:06:00"), v1alpha1.SnapshotScheduleStatus{}, 7, p.found(p.look("11:06:00")))
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClockBehind, "nothing is copied until 2027-05-05T14:00:00Z")
	has(t, status, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonClockBehind, "")
	status = Report(today("13:59:58"), status, 7, p.found(p.look("13:59:58")))
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonActive, "")
	p.edit(func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = true })
	status = Report(today("11:06:00"), status, 7, p.found(p.look("11:06:00")))
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "")
}

func TestReportOfASuspendedSchedule(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.seen.Spec.Suspend = true
	status := Report(today("11:06:00"), v1alpha1.SnapshotScheduleStatus{}, 7, p.found(p.look("11:06:00")))
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "no copies are taken")
	if status.NextScheduleTime != nil {
		t.Errorf("the next run is at %v", status.NextScheduleTime)
	}
}

func TestReportOfTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		change func(*play, *Found)
		reason v1alpha1.ClaimReason // of claim a; empty: none
		says   string
		failed bool
	}{
		"C06 never ready": {"the copy failed, and what the controller said is told", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s2", ClaimUID: "a", State: copies.Failed, Asked: today("11:00:00"), LastError: "no such volume"}, {Name: "s1", ClaimUID: "a", State: copies.Ready, Asked: today("10:00:00")}}
		}, v1alpha1.ClaimFailed, "VolumeSnapshot s2 was not ready", true},
		"a group that is never cut": {"it has no VolumeSnapshots to look at", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "g", With: "g", Whole: true, ClaimUID: "a", State: copies.Failed, Asked: today("11:00:00"), LastError: "volumes of two instances"}}
		}, v1alpha1.ClaimFailed, "VolumeGroupSnapshot g was not ready", true},
		"a member that is never ready": {"it is a VolumeSnapshot", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "m", With: "g", Whole: true, ClaimUID: "a", State: copies.Failed, Asked: today("11:00:00")}}
		}, v1alpha1.ClaimFailed, "VolumeSnapshot m was not ready", true},
		"C06 one succeeds": {"the newest copy is what counts", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s2", ClaimUID: "a", State: copies.Failed, Asked: today("10:00:00")}, {Name: "s1", ClaimUID: "a", State: copies.Ready, Asked: today("11:00:00")}}
		}, "", "", false},
		"never ready, and the next is being made": {"what is only being made is no success", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s3", ClaimUID: "a", State: copies.Making, Asked: today("11:00:00")}, {Name: "s2", ClaimUID: "a", State: copies.Failed, Asked: today("10:00:00")}, {Name: "s1", ClaimUID: "a", State: copies.Ready, Asked: today("09:00:00")}}
		}, v1alpha1.ClaimFailed, "VolumeSnapshot s2 was not ready", true},
		"C09 passing error": {"an error while there is time is none", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{ClaimUID: "a", State: copies.Making, Asked: today("11:00:00"), LastError: "throttled"}}
		}, "", "", false},
		"missed":                 {"the run is over and the claim has no copy of it", func(p *play, f *Found) { f.Seen.Copies = nil }, v1alpha1.ClaimMissed, "no copy of the run of 2027-05-05T11:00:00Z", true},
		"going":                  {"a copy on its way out is none", func(p *play, f *Found) { f.Seen.Copies[0].Deleting = true }, v1alpha1.ClaimMissed, "", true},
		"a clock that is behind": {"the API server dates the copy of the run before the run", func(_ *play, f *Found) { f.Seen.Copies[0].Asked = today("10:59:58") }, "", "", false},
		"a new claim": {"a claim has no part in runs from before it", func(p *play, f *Found) {
			f.Seen.Copies = nil
			p.seen.Candidates[0].Claim.CreationTimestamp = metav1.NewTime(today("11:00:01"))
		}, "", "", false},
		"waiting": {"that passes by itself", func(p *play, f *Found) {
			f.Plan.Waiting = []v1alpha1.ClaimSnapshots{{UID: "a", Name: "a", Reason: v1alpha1.ClaimWaits, Message: "five in the making"}}
		}, v1alpha1.ClaimWaits, "five in the making", false},
		"refused": {"a quota that is used up", func(p *play, f *Found) {
			f.Refused = []v1alpha1.ClaimSnapshots{{UID: "a", Name: "a", Reason: v1alpha1.ClaimRefused, Message: "exceeded quota" + strings.Repeat("…", 2000)}}
		}, v1alpha1.ClaimRefused, "exceeded quota", true},
		"not quiesced": {"a copy that is there, and not what its owner wants", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s2", ClaimUID: "a", State: copies.Ready, Asked: today("11:00:00"), NotQuiesced: true}}
		}, v1alpha1.ClaimNotQuiesced, "VolumeSnapshot s2 was cut while", true},
		"quiesced again": {"the newest copy is what counts", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s2", ClaimUID: "a", State: copies.Ready, Asked: today("10:00:00"), NotQuiesced: true}, {Name: "s3", ClaimUID: "a", State: copies.Ready, Asked: today("11:00:00")}}
		}, "", "", false},
		"a hook fails again": {"why there is no copy comes before what is wrong with the last", func(p *play, f *Found) {
			f.Seen.Copies = []copies.Copy{{Name: "s2", ClaimUID: "a", State: copies.Ready, Asked: today("10:00:00"), NotQuiesced: true}}
			f.Refused = []v1alpha1.ClaimSnapshots{{UID: "a", Name: "a", Reason: v1alpha1.ClaimHookFailed, Message: "hook before[0]"}}
		}, v1alpha1.ClaimHookFailed, "hook before[0]", true},
		"excluded": {"a driver that cannot snapshot", func(p *play, f *Found) {
			f.Seen.Candidates = nil
			f.Excluded = []v1alpha1.ClaimSnapshots{{UID: "a", Name: "a", Reason: v1alpha1.ClaimNoSnapshots, Message: "no class"}}
		}, v1alpha1.ClaimNoSnapshots, "no class", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, hourly(), "10:30:00", "a")
			p.every("10:30:00", "11:05:00")
			f := p.found(p.look("11:06:00"))
			tc.change(p, &f)
			status := Report(today("11:06:00"), v1alpha1.SnapshotScheduleStatus{}, 7, f)
			if tc.failed {
				has(t, status, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonClaimsNotCopied, "1 of 1 claims")
				has(t, status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimsNotCopied, tc.says)
			} else {
				has(t, status, v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAllCopied, "")
			}
			switch {
			case tc.reason == "" && len(status.Claims) > 0:
				t.Errorf("%s: %+v, want nothing to say", tc.why, status.Claims)
			case tc.reason != "" && (len(status.Claims) != 1 || status.Claims[0].Reason != tc.reason || !strings.Contains(status.Claims[0].Message, tc.says)):
				t.Errorf("%s: %+v, want %s with %q", tc.why, status.Claims, tc.reason, tc.says)
			case tc.reason != "" && len(status.Claims[0].Message) > 1024:
				t.Errorf("a message of %d characters, which the API refuses", len(status.Claims[0].Message))
			case tc.reason != "" && !utf8.ValidString(status.Claims[0].Message):
				t.Errorf("half a character at the end of %q: it would be written again at every look", status.Claims[0].Message)
			}
		})
	}
}

// TestWhoJoinsAfterARunHasMissedNothing: a claim that is bound, labelled or opted
// in after the last run has had no part in it. One that it passed over stays told.
func TestWhoJoinsAfterARunHasMissedNothing(t *testing.T) {
	many := func(status *v1alpha1.SnapshotScheduleStatus) {
		for i := range maxClaims {
			status.Claims = append(status.Claims, v1alpha1.ClaimSnapshots{UID: types.UID(fmt.Sprint("c", i)), Reason: v1alpha1.ClaimMissed})
		}
	}
	was := func(reason v1alpha1.ClaimReason) func(*v1alpha1.SnapshotScheduleStatus) {
		return func(status *v1alpha1.SnapshotScheduleStatus) {
			status.Claims = []v1alpha1.ClaimSnapshots{{UID: "b", Reason: reason}}
		}
	}
	for name, tc := range map[string]struct {
		before func(*v1alpha1.SnapshotScheduleStatus)
		copies []copies.Copy
		missed bool
	}{
		"not of the target before":     {},
		"not bound before":             {before: was(v1alpha1.ClaimNotBound)},
		"opted out before":             {before: was(v1alpha1.ClaimOptedOut)},
		"missed":                       {before: was(v1alpha1.ClaimMissed), missed: true},
		"refused":                      {before: was(v1alpha1.ClaimRefused), missed: true},
		"its class was not there":      {before: was(v1alpha1.ClaimClassNotFound), missed: true},
		"it was waiting":               {before: was(v1alpha1.ClaimWaits), missed: true},
		"it may be one too many":       {before: many, missed: true},
		"it has copies of runs before": {copies: []copies.Copy{{Name: "s0", ClaimUID: "b", State: copies.Ready, Asked: today("10:00:00")}}, missed: true},
		"the run is over just now":     {before: func(status *v1alpha1.SnapshotScheduleStatus) { *status = v1alpha1.SnapshotScheduleStatus{} }, missed: true},
	} {
		p := newPlay(t, hourly(), "09:30:00", "a")
		p.every("09:30:00", "11:05:00")
		old := Report(today("11:05:00"), v1alpha1.SnapshotScheduleStatus{}, 7, p.found(p.look("11:05:00")))
		if tc.before != nil {
			tc.before(&old)
		}
		p.claim("b", "00:00:00")
		p.seen.Copies = append(p.seen.Copies, tc.copies...)
		status := Report(today("11:06:00"), old, 7, p.found(p.look("11:06:00")))
		missed := false
		for _, c := range status.Claims {
			missed = missed || c.UID == "b" && c.Reason == v1alpha1.ClaimMissed
		}
		if missed != tc.missed {
			t.Errorf("%s: missed %t, want %t: %+v", name, missed, tc.missed, status.Claims)
		}
	}
}

// TestANightlyFailureStaysTold: a copy that fails has the next one begin in the
// same moment, where the deadline is as long as the time between two runs.
func TestANightlyFailureStaysTold(t *testing.T) {
	p := newPlay(t, v1alpha1.SnapshotScheduleSpec{Schedule: "30 2 * * *"}, "00:00:00", "a")
	p.readyAfter = 0
	first := today("00:00:00").AddDate(0, 0, 1).Add(3 * time.Hour) // the first copy has failed
	for now := today("00:00:00"); now.Before(first.AddDate(0, 0, 7)); now = now.Add(10 * time.Minute) {
		plan := p.lookAt(now, 1<<30)
		status := Report(now, v1alpha1.SnapshotScheduleStatus{}, 7, p.found(plan))
		if ready := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady); !now.Before(first) && ready {
			t.Fatalf("%v: no copy ever became ready, %d of %d failed, and the schedule is Ready", now, status.FailedCount, len(p.seen.Copies))
		}
	}
}

func TestReportListsTheWorstFirst(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00")
	f := Found{Seen: p.seen}
	for i := range 120 {
		name := fmt.Sprintf("c%03d", i)
		f.Excluded = append(f.Excluded, v1alpha1.ClaimSnapshots{UID: types.UID(name), Name: name, Reason: v1alpha1.ClaimOptedOut, Message: "m"})
	}
	f.Excluded = append(f.Excluded, v1alpha1.ClaimSnapshots{UID: "z-bad", Name: "z-bad", Reason: v1alpha1.ClaimNoClass, Message: "m"}, v1alpha1.ClaimSnapshots{UID: "z-worse", Name: "z-worse", Reason: v1alpha1.ClaimNoClass, Message: "m"})
	f.Seen.Copies = []copies.Copy{{ClaimUID: "z-bad", State: copies.Ready, Asked: today("10:00:00")}}
	status := Report(today("11:00:00"), v1alpha1.SnapshotScheduleStatus{}, 7, f)
	if len(status.Claims) != 100 || status.ClaimCount != 122 || status.Claims[0].Name != "z-worse" || status.Claims[1].Name != "z-bad" || status.Claims[2].Name != "c000" {
		t.Errorf("%d listed of %d: %v", len(status.Claims), status.ClaimCount, status.Claims[:3])
	}
	if status.Claims[0].LastReadyTime != nil || !status.Claims[1].LastReadyTime.Time.Equal(today("10:00:00")) {
		t.Errorf("last ready at %v and %v", status.Claims[0].LastReadyTime, status.Claims[1].LastReadyTime)
	}
}

func TestReportOfIdleSchedules(t *testing.T) {
	last := metav1.NewTime(today("10:00:00"))
	old := v1alpha1.SnapshotScheduleStatus{LastScheduleTime: &last, NextScheduleTime: &last, ReadyCount: 3, MissedSlots: 2}
	_, errs := Compile(&v1alpha1.SnapshotScheduleSpec{Schedule: "0 0 30 2 *"})
	status := ReportInvalid(today("11:00:00"), old, 7, errs)
	has(t, status, v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "spec.schedule")
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "nothing is deleted")
	has(t, status, v1alpha1.ConditionDegraded, metav1.ConditionUnknown, v1alpha1.ReasonInvalidSpec, "not judged")
	if status.NextScheduleTime != nil || status.ReadyCount != 3 || status.MissedSlots != 2 || status.LastScheduleTime == nil || old.NextScheduleTime == nil {
		t.Errorf("status %+v: what was known stays, nothing is next", status)
	}
	status = ReportKindsMissing(today("11:00:00").Add(time.Minute), old, 7)
	has(t, status, v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonSpecValid, "")
	has(t, status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotKindsMissing, "snapshot-controller")
}
