package policyschedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Bounds of what a condition's message names.
const (
	maxNamed   = 10
	maxMessage = 1024
)

// Report is the conditions of a policy after a plan was carried out. refused is
// what of it was refused; nil: nothing.
func Report(old []metav1.Condition, p *v1alpha1.StoragePolicy, plan Plan, refused error, now time.Time) []metav1.Condition {
	conditions := slices.Clone(old)
	if p.Spec.Snapshots == nil || len(p.Spec.Snapshots.Schedules) == 0 {
		meta.RemoveStatusCondition(&conditions, v1alpha1.ConditionSchedulesGiven)
		meta.RemoveStatusCondition(&conditions, v1alpha1.ConditionSchedulesEdited)
		return conditions
	}
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: is, Reason: reason, Message: cut(message), ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if reason, message := notGiven(plan, refused); reason != "" {
		set(v1alpha1.ConditionSchedulesGiven, metav1.ConditionFalse, reason, message)
	} else {
		set(v1alpha1.ConditionSchedulesGiven, metav1.ConditionTrue, v1alpha1.ReasonSchedulesInStep, "every namespace under the policy has its schedules")
	}
	if len(plan.Edited) > 0 {
		set(v1alpha1.ConditionSchedulesEdited, metav1.ConditionTrue, v1alpha1.ReasonEdited, fmt.Sprintf(
			"%s edited by their owners and left alone; the annotation %s=true on one hands it back", named(plan.Edited, "schedule is", "schedules are"), v1alpha1.AnnotationFollowPolicy))
	} else {
		set(v1alpha1.ConditionSchedulesEdited, metav1.ConditionFalse, v1alpha1.ReasonNoneEdited, "no schedule that the policy gave was edited")
	}
	return conditions
}

// unreadable is the conditions of a policy whose selectors cannot be read.
func unreadable(old []metav1.Condition, p *v1alpha1.StoragePolicy, why error, now time.Time) []metav1.Condition {
	return Report(old, p, Plan{Problems: []Problem{{v1alpha1.ReasonInvalidSelector, "whom the policy is about is not known, and no schedule is touched: " + why.Error()}}}, nil, now)
}

// notGiven says why not every namespace has its schedules; empty: each has.
func notGiven(plan Plan, refused error) (reason, message string) {
	problems := slices.Clone(plan.Problems)
	if len(plan.Taken) > 0 {
		problems = append(problems, Problem{v1alpha1.ReasonNameTaken, named(plan.Taken, "SnapshotSchedule is", "SnapshotSchedules are") +
			" there already and not this policy's, and left alone: rename or delete what is in the way, or name the schedule otherwise"})
	}
	if refused != nil {
		problems = append(problems, Problem{v1alpha1.ReasonWriteRefused, firstLine(refused)})
	}
	if len(problems) == 0 {
		return "", ""
	}
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return problems[0].Reason, strings.Join(messages, "; ")
}

// named is how many there are, and the first of them.
func named(names []string, one, more string) string {
	what := more
	if len(names) == 1 {
		what = one
	}
	listed := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if n := len(names) - maxNamed; n > 0 {
		listed += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d %s (%s)", len(names), what, listed)
}

// firstLine is the first of the errors that were joined, and how many there are.
func firstLine(err error) string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 1 {
		return fmt.Sprintf("%v (and %d more refusals)", joined.Unwrap()[0], len(joined.Unwrap())-1)
	}
	return err.Error()
}

// cut keeps a message within the bounds of the API, at a character's end.
func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}
