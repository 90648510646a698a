package policy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Held is what the protection of one claim hangs on.
type Held struct {
	Name  string
	Bound bool
	// NewestCut is when the newest ready snapshot of this very claim was cut;
	// zero: there is none. One that is older than the claim is another's.
	NewestCut time.Time
}

// Deletion says whether the deletion of a claim breaks the policy; who may, can
// override that (Override).
//
//	protect  Never                         let through
//	         WhenBound, claim not bound    let through
//	allow    RecentSnapshot, cut in time   let through
//	         RecentSnapshot, none or old   a breach that tells the age
//	         OverrideOnly                  a breach
func Deletion(r *v1alpha1.DeletionRules, h Held, now time.Time) []Breach {
	switch {
	case r == nil, r.Protect == v1alpha1.ProtectNever, r.Protect == v1alpha1.ProtectWhenBound && !h.Bound:
		return nil
	}
	override := fmt.Sprintf("who may override the policy can let one deletion through with the annotation %s=<reason>", v1alpha1.AnnotationOverrideDeletion)
	if r.Allow == v1alpha1.AllowOverrideOnly {
		return []Breach{{
			Rule: v1alpha1.RuleDeletion, Field: "the deletion of claim " + h.Name, Found: "not overridden",
			Wanted: "an override", Todo: override,
		}}
	}
	most := SnapshotAge(r.SnapshotNotOlderThanSeconds)
	if fresh(h.NewestCut, most, now) {
		return nil
	}
	return []Breach{{
		Rule: v1alpha1.RuleDeletion, Field: "the newest ready snapshot of claim " + h.Name, Found: age(h.NewestCut, now),
		Wanted: "at most " + most.String() + " old", Todo: "take a VolumeSnapshot and wait until it is ready; or " + override,
	}}
}

// ScaleDown says whether taking its Pod from a claim breaks the policy; who may,
// can override that on the claim. A claim that is not bound has no volume: there
// is nothing to copy.
func ScaleDown(r *v1alpha1.ScaleDownRules, h Held, now time.Time) []Breach {
	if r == nil || !h.Bound {
		return nil
	}
	most := time.Duration(r.SnapshotNotOlderThanSeconds) * time.Second
	if fresh(h.NewestCut, most, now) {
		return nil
	}
	return []Breach{{
		Rule: v1alpha1.RuleScaleDown, Field: "the newest ready snapshot of claim " + h.Name, Found: age(h.NewestCut, now),
		Wanted: "at most " + most.String() + " old", Todo: fmt.Sprintf("take a VolumeSnapshot, wait until it is ready, then scale down; or who may override the policy can let it through with the annotation %s=<reason> on the claim", v1alpha1.AnnotationOverrideDeletion),
	}}
}

// SnapshotAge is how old a snapshot may be that lets a deletion through; 0: the
// policy does not say.
func SnapshotAge(seconds int32) time.Duration {
	return time.Duration(cmp.Or(seconds, v1alpha1.DefaultSnapshotAgeSeconds)) * time.Second
}

// fresh judges a cut. One in the future, by clocks that differ, is fresh.
func fresh(cut time.Time, most time.Duration, now time.Time) bool {
	return !cut.IsZero() && now.Sub(cut) <= most
}

func age(cut, now time.Time) string {
	if cut.IsZero() {
		return "not there"
	}
	return fmt.Sprintf("%s old (cut at %s)", now.Sub(cut).Round(time.Second), cut.UTC().Format(time.RFC3339))
}
