package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Cover is whether a schedule copies a claim.
type Cover int

// Whether a schedule copies a claim.
const (
	// NotAsked: no policy that the claim is under asks for it, or the cluster has
	// no snapshots, so that nobody could do anything about it.
	NotAsked Cover = iota
	// Covered: a schedule does.
	Covered
	// NotCovered: none does.
	NotCovered
	// OptedOut: the claim's own annotation keeps it out of every schedule. Whether
	// it may is the policy's to say, by an exemption.
	OptedOut
)

// CoverOf says whether a schedule copies a claim, where one of the policies asks.
// A claim that is new is looked at as it will be: the manager stamps those of a
// StatefulSet once they are there. For a new claim that no schedule covers the
// schedules are read live, since they may have been applied a moment before it.
func CoverOf(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim, of policy.Claim, isNew bool) (Cover, error) {
	asks := func(p *policy.Policy) bool { return p.RequiresSnapshots() && p.MatchesClaim(of) }
	if !slices.ContainsFunc(policies, asks) {
		return NotAsked, nil
	}
	there, err := w.HasSnapshots(ctx)
	if err != nil || !there {
		return NotAsked, err
	}
	if _, out := claim.Annotations[v1alpha1.AnnotationNoSnapshots]; out {
		return OptedOut, nil
	}
	schedules, err := w.Schedules(ctx, claim.Namespace)
	if err != nil {
		return NotAsked, err
	}
	cover := coverBy(policies, schedules, claim, of, isNew)
	if cover == Covered || !isNew {
		return cover, nil
	}
	schedules, asked, err := w.LiveSchedules(ctx, claim.Namespace)
	if err != nil || !asked {
		return cover, err
	}
	return coverBy(policies, schedules, claim, of, isNew), nil
}

// coverBy decides by the schedules of the claim's namespace.
//
//	a schedule that is there      covers what its target matches, while it is valid,
//	                              not suspended and not being deleted
//	one that a policy gives and   covers what its target matches of the claims under
//	that is not there yet         the policy: it comes
//	one that a policy gives and   what is there decides: its owner may have edited it,
//	that is there                 or have taken the name
func coverBy(policies []*policy.Policy, schedules []v1alpha1.SnapshotSchedule, claim *corev1.PersistentVolumeClaim, of policy.Claim, isNew bool) Cover {
	has := map[string]bool{}
	for i := range schedules {
		s := &schedules[i]
		has[s.Name] = true
		if s.DeletionTimestamp == nil && covers(&s.Spec, claim, isNew) {
			return Covered
		}
	}
	for _, p := range policies {
		if !p.MatchesClaim(of) {
			continue
		}
		for _, g := range p.Given() {
			if !has[g.Object] && covers(g.Asked, claim, isNew) {
				return Covered
			}
		}
	}
	return NotCovered
}

// covers says whether a schedule copies a claim.
func covers(spec *v1alpha1.SnapshotScheduleSpec, claim *corev1.PersistentVolumeClaim, isNew bool) bool {
	if spec.Suspend {
		return false
	}
	target, err := schedule.TargetOf(&spec.Target)
	if err != nil {
		return false
	}
	if isNew {
		claim = stamped(claim, spec.Target.StatefulSetName)
	}
	if !target.Matches(claim) {
		return false
	}
	_, errs := schedule.Compile(spec) // which takes its time: last
	return len(errs) == 0
}

// stamped is a new claim with the name of its set, where it has the name that
// the claims of that set have: <template>-<set>-<ordinal>.
func stamped(claim *corev1.PersistentVolumeClaim, set string) *corev1.PersistentVolumeClaim {
	at := strings.LastIndexByte(claim.Name, '-')
	if set == "" || claim.Annotations[v1alpha1.AnnotationSetName] != "" || at < 0 {
		return claim
	}
	if _, err := strconv.ParseUint(claim.Name[at+1:], 10, 31); err != nil || !strings.HasSuffix(claim.Name[:at], "-"+set) {
		return claim
	}
	out := *claim
	out.Annotations = map[string]string{v1alpha1.AnnotationSetName: set}
	return &out
}

// snapshots judges whether a schedule covers the claim.
func snapshots(p *policy.Policy, s Subject) []policy.Breach {
	if !p.RequiresSnapshots() {
		return nil
	}
	switch s.Cover {
	case NotCovered:
		return []policy.Breach{notCovered(s.Name)}
	case OptedOut:
		return []policy.Breach{{
			Rule: v1alpha1.RuleSnapshotsRequired, Field: fmt.Sprintf("metadata.annotations[%s]", v1alpha1.AnnotationNoSnapshots), Found: "set", Wanted: "not set",
			Todo: "take it off, so that a schedule copies the claim, or let the platform team exempt the claim",
		}}
	case NotAsked, Covered:
	}
	return nil
}

// notCovered is what is wrong with a claim that no schedule copies.
func notCovered(claim string) policy.Breach {
	return policy.Breach{
		Rule: v1alpha1.RuleSnapshotsRequired, Field: "a SnapshotSchedule for claim " + claim, Found: "not there", Wanted: "one",
		Todo: "make one in its namespace whose target matches the claim and that is not suspended, or let the platform team exempt the claim",
	}
}
