package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Bounds of the API on lists and texts.
const (
	maxClaims  = 100
	maxMessage = 1024
)

// Found is what there is to report of a schedule that can be acted on.
type Found struct {
	Seen Observed
	Plan Plan
	// Excluded are claims that the target matches and that cannot be copied.
	Excluded []v1alpha1.ClaimSnapshots
	// Refused are claims whose copy the API server did not let be made.
	Refused []v1alpha1.ClaimSnapshots
}

// Report is the status of a schedule that can be acted on.
func Report(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64, f Found) v1alpha1.SnapshotScheduleStatus {
	status := v1alpha1.SnapshotScheduleStatus{
		Conditions: slices.Clone(old.Conditions), ObservedGeneration: generation,
		ActiveSince: moment(f.Plan.ActiveSince), ObservedScheduleHash: f.Plan.ScheduleHash,
		LastScheduleTime: moment(f.Plan.LastScheduleTime), NextScheduleTime: moment(f.Plan.NextScheduleTime),
		MissedSlots: f.Plan.MissedSlots, LastRunToken: f.Plan.LastRunToken,
		LastSuccessfulTime: old.LastSuccessfulTime,
		ClaimCount:         int32(len(f.Seen.Candidates) + len(f.Excluded)),
	}
	count(&status, f.Seen.Copies)
	if c := f.Seen.Spec.Consistency; c == v1alpha1.GroupCopies || c == v1alpha1.BestEffortGroups {
		status.LastGroupCut = LastCut(f.Seen.Copies, old.LastGroupCut)
	}
	troubled, failing := f.claims(old)
	status.Claims = troubled[:min(len(troubled), maxClaims)]
	c := conditions{status: &status, generation: generation, now: now}
	c.set(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonSpecValid, "the spec can be acted on")
	switch ahead := latest(f.Plan.ActiveSince, f.Plan.LastScheduleTime); {
	case !f.Seen.Spec.Suspend && ahead.After(now.Add(lateAfter)):
		message := fmt.Sprintf("nothing is copied until %s: runs up to then are over, by a clock that was ahead of the manager's (%s now); mend whichever clock is wrong, or make the schedule again under its name, which takes over its copies",
			ahead.UTC().Format(time.RFC3339), now.UTC().Format(time.DateOnly))
		c.set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonClockBehind, message)
		c.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClockBehind, message)
	case len(failing) > 0:
		message := fmt.Sprintf("%d of %d claims are not copied as they should be; claim %s: %s", len(failing), status.ClaimCount, failing[0].Name, failing[0].Message)
		c.set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonClaimsNotCopied, message)
		c.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimsNotCopied, message)
	case f.Seen.Spec.Suspend:
		c.set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "no copies are due")
		c.set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "the schedule is suspended: no copies are taken")
	default:
		c.set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAllCopied, "no claim is behind")
		c.set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonActive, fmt.Sprintf("%d claims, next run at %s", len(f.Seen.Candidates), f.Plan.NextScheduleTime.UTC().Format(time.RFC3339)))
	}
	return status
}

// ReportInvalid is the status of a schedule whose spec cannot be acted on: what
// was known stays, nothing is next.
func ReportInvalid(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64, errs field.ErrorList) v1alpha1.SnapshotScheduleStatus {
	message := "nothing is copied and nothing is deleted: " + errs.ToAggregate().Error()
	return idle(now, old, generation, v1alpha1.ReasonInvalidSpec, message, metav1.ConditionFalse, message)
}

// ReportKindsMissing is the status while the cluster has no VolumeSnapshots.
func ReportKindsMissing(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64) v1alpha1.SnapshotScheduleStatus {
	return idle(now, old, generation, v1alpha1.ReasonSnapshotKindsMissing,
		"the cluster does not know VolumeSnapshots: install the CRDs and the snapshot-controller (https://github.com/kubernetes-csi/external-snapshotter); they are noticed within a minute",
		metav1.ConditionTrue, "the spec can be acted on")
}

// ReportGroupKindsMissing is the status of a schedule with consistency Group while
// the cluster has no VolumeGroupSnapshots: what its owner wants of one instant is
// not copied in another way.
func ReportGroupKindsMissing(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64) v1alpha1.SnapshotScheduleStatus {
	return idle(now, old, generation, v1alpha1.ReasonGroupKindsMissing,
		"nothing is copied: consistency is Group and the cluster does not know VolumeGroupSnapshots (groupsnapshot.storage.k8s.io/v1): install their CRDs and enable the feature gate CSIVolumeGroupSnapshot of the snapshot-controller, they are noticed within a minute; or set consistency to BestEffortGroup or Individual",
		metav1.ConditionTrue, "the spec can be acted on")
}

// ReportHooksNotEnabled is the status of a schedule with hooks where the install
// runs none: a copy that its owner wants quiesced is not made as it comes.
func ReportHooksNotEnabled(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64) v1alpha1.SnapshotScheduleStatus {
	return idle(now, old, generation, v1alpha1.ReasonHooksNotEnabled,
		"nothing is copied: spec.hooks is set and this install runs no hooks; enable them (config/components/hooks, or hooks.enabled in the chart), or take them out",
		metav1.ConditionTrue, "the spec can be acted on")
}

// idle is the status of a schedule that does nothing.
func idle(now time.Time, old v1alpha1.SnapshotScheduleStatus, generation int64, reason, message string, valid metav1.ConditionStatus, validMessage string) v1alpha1.SnapshotScheduleStatus {
	status := *old.DeepCopy()
	status.ObservedGeneration, status.NextScheduleTime = generation, nil
	c := conditions{status: &status, generation: generation, now: now}
	validReason := v1alpha1.ReasonSpecValid
	if valid != metav1.ConditionTrue {
		validReason = reason
	}
	c.set(v1alpha1.ConditionValid, valid, validReason, validMessage)
	c.set(v1alpha1.ConditionDegraded, metav1.ConditionUnknown, reason, "not judged")
	c.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	return status
}

// conditions sets those of one status.
type conditions struct {
	status     *v1alpha1.SnapshotScheduleStatus
	generation int64
	now        time.Time
}

func (c conditions) set(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: cut(message), ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now),
	})
}

// cut shortens a text to what the API takes, at a whole character: half of one
// would be stored as another text, and be written again at every look.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "") }

// moment is a time as the API has it: none for the zero time.
func moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// count counts copies. The time of the last success stays when its copy has gone.
func count(status *v1alpha1.SnapshotScheduleStatus, all []copies.Copy) {
	for _, c := range all {
		switch {
		case c.Deleting:
		case c.State == copies.Failed:
			status.FailedCount++
		case c.State == copies.Making:
			status.PendingCount++
		default:
			status.ReadyCount++
			if status.LastSuccessfulTime == nil || c.At().After(status.LastSuccessfulTime.Time) {
				status.LastSuccessfulTime = moment(c.At())
			}
		}
	}
}

// claims are those that need a look, worst first, and of these the failing ones:
// they are not copied, and nobody wanted it so.
func (f Found) claims(old v1alpha1.SnapshotScheduleStatus) (troubled, failing []v1alpha1.ClaimSnapshots) {
	newest, judged := map[types.UID]copies.Copy{}, map[types.UID]copies.Copy{}
	ready, done := map[types.UID]time.Time{}, map[types.UID]bool{}
	for _, c := range f.Seen.Copies {
		if c.Deleting {
			continue
		}
		done[c.ClaimUID] = done[c.ClaimUID] || c.Slot == copies.SlotOf(f.Plan.LastScheduleTime)
		if !c.Asked.Before(newest[c.ClaimUID].Asked) {
			newest[c.ClaimUID] = c
		}
		if c.State != copies.Making && !c.Asked.Before(judged[c.ClaimUID].Asked) {
			judged[c.ClaimUID] = c
		}
		if c.State == copies.Ready {
			ready[c.ClaimUID] = latest(ready[c.ClaimUID], c.At())
		}
	}
	byUID, joined := map[types.UID]v1alpha1.ClaimSnapshots{}, f.joined(old)
	for _, c := range f.Seen.Candidates {
		excused := done[c.Claim.UID] || newest[c.Claim.UID].Asked.IsZero() && joined(c.Claim.UID)
		if trouble := f.trouble(c, newest[c.Claim.UID], judged[c.Claim.UID], excused); trouble != nil {
			byUID[c.Claim.UID] = *trouble
		}
	}
	for _, told := range [][]v1alpha1.ClaimSnapshots{f.Excluded, f.Plan.Waiting, f.Refused} {
		for _, t := range told {
			if _, known := byUID[t.UID]; !known || t.Reason == v1alpha1.ClaimRefused || t.Reason == v1alpha1.ClaimHookFailed {
				byUID[t.UID] = t
			}
		}
	}
	for uid, t := range byUID {
		t.LastReadyTime, t.Message = moment(ready[uid]), cut(t.Message)
		troubled = append(troubled, t)
	}
	slices.SortFunc(troubled, func(a, b v1alpha1.ClaimSnapshots) int {
		return cmp.Or(cmp.Compare(mildness(a), mildness(b)), ready[a.UID].Compare(ready[b.UID]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	n, _ := slices.BinarySearchFunc(troubled, mild, func(t v1alpha1.ClaimSnapshots, m int) int { return cmp.Compare(mildness(t), m) })
	return troubled, troubled[:n]
}

// joined says of a claim without any copy whether it came to the schedule after
// the last run: bound since, or brought under the target, or opted in. What was
// missed was told when that run was over, and is in the status since.
func (f Found) joined(old v1alpha1.SnapshotScheduleStatus) func(types.UID) bool {
	told := map[types.UID]bool{}
	for _, c := range old.Claims {
		switch c.Reason {
		case v1alpha1.ClaimNotBound, v1alpha1.ClaimOptedOut, v1alpha1.ClaimDeleting:
		default:
			told[c.UID] = true
		}
	}
	justOver := !moment(f.Plan.LastScheduleTime).Equal(old.LastScheduleTime)
	unlisted := len(old.Claims) == maxClaims // it may be one that is not listed
	return func(claim types.UID) bool { return !justOver && !unlisted && !told[claim] }
}

// mild is the least mildness of what is no failure.
const mild = 1

// mildness is 0 for what somebody must mend, and more for what passes or is wanted.
func mildness(t v1alpha1.ClaimSnapshots) int {
	switch t.Reason {
	case v1alpha1.ClaimWaits, v1alpha1.ClaimNotBound, v1alpha1.ClaimNotMounted:
		return mild
	case v1alpha1.ClaimDeleting, v1alpha1.ClaimOptedOut:
		return mild + 1
	}
	return 0
}

// kindAndName is a copy for people: as long as a group has no members, it is
// the group itself.
func kindAndName(c copies.Copy) string {
	if c.Whole && c.Name == c.With {
		return "VolumeGroupSnapshot " + c.Name
	}
	return "VolumeSnapshot " + c.Name
}

// trouble says what is wrong with a claim's newest copy, or that it is missing.
// judged is the newest one that is ready or has failed: one that is only being
// made is no success, and ends no failure. done: the claim has a copy of the last
// run, whatever the clock of the API server says of when that was made, or had no
// part in that run.
func (f Found) trouble(c Candidate, newest, judged copies.Copy, done bool) *v1alpha1.ClaimSnapshots {
	t := &v1alpha1.ClaimSnapshots{UID: c.Claim.UID, Name: c.Claim.Name}
	last := f.Plan.LastScheduleTime
	switch {
	case judged.State == copies.Failed:
		t.Reason = v1alpha1.ClaimFailed
		t.Message = fmt.Sprintf("%s was not ready by %s (readyDeadlineSeconds %d), and no later one is ready; the snapshot-controller says: %s", kindAndName(judged),
			judged.Deadline.UTC().Format(time.RFC3339), f.Seen.Spec.ReadyDeadlineSeconds, cmp.Or(judged.LastError, "nothing"))
	case !done && !last.IsZero() && newest.Asked.Before(last) && !c.Claim.CreationTimestamp.After(last):
		t.Reason = v1alpha1.ClaimMissed
		t.Message = fmt.Sprintf("the claim has no copy of the run of %s: it could not be asked for within startingDeadlineSeconds (%d)",
			last.UTC().Format(time.RFC3339), f.Seen.Spec.StartingDeadlineSeconds)
		if f.Seen.Spec.Consistency == v1alpha1.GroupCopies {
			t.Message += "; with consistency Group a claim is copied only while a running Pod mounts it"
		}
	case newest.NotQuiesced:
		t.Reason = v1alpha1.ClaimNotQuiesced
		t.Message = fmt.Sprintf("%s was cut while its Pods were not quiesced: a hook of before failed (onError Continue), or the cut came after hooks.maxFreezeSeconds; see the events of the schedule", kindAndName(newest))
	default:
		return nil
	}
	return t
}
