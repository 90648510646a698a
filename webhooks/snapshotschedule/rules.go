package snapshotschedule

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// Refusals are why a spec cannot be acted on, as far as the request brings it:
// was is the spec that is stored; nil: there is none.
func Refusals(spec, was *v1alpha1.SnapshotScheduleSpec) field.ErrorList {
	_, errs := schedule.Compile(spec)
	if was == nil || len(errs) == 0 {
		return errs
	}
	_, old := schedule.Compile(was)
	told := map[string]bool{}
	for _, e := range old {
		told[e.Error()] = true
	}
	// An error that was hidden behind another one is no new one either.
	return slices.DeleteFunc(errs, func(e *field.Error) bool { return told[e.Error()] || !changed(e.Field, spec, was) })
}

// changed says whether the field of an error of Compile has another value than
// it had. A field that is not known here counts as changed.
func changed(name string, spec, was *v1alpha1.SnapshotScheduleSpec) bool {
	switch name {
	case "spec.schedule":
		return spec.Schedule != was.Schedule
	case "spec.timeZone":
		return spec.TimeZone != was.TimeZone
	case "spec.target.claimSelector":
		return !reflect.DeepEqual(spec.Target.ClaimSelector, was.Target.ClaimSelector)
	case "spec.template.labels":
		return !maps.Equal(spec.Template.Labels, was.Template.Labels)
	case "spec.template.annotations":
		return !maps.Equal(spec.Template.Annotations, was.Template.Annotations)
	}
	if strings.HasPrefix(name, "spec.hooks") {
		return !reflect.DeepEqual(spec.Hooks, was.Hooks)
	}
	return true
}

const (
	// seldomest is the shortest time between two runs that nobody is warned of.
	// Block stores copy a volume in minutes, and limit how many copies of one
	// are made at once: EBS makes five.
	seldomest = 5 * time.Minute
	// lookedAt are the runs that are looked at for the shortest time between two:
	// more than a day of those that are that often.
	lookedAt = 400
)

// Warnings tell what of a spec that can be acted on may not be what was meant.
func Warnings(spec *v1alpha1.SnapshotScheduleSpec, now time.Time) []string {
	ready, errs := schedule.Compile(spec)
	if len(errs) > 0 {
		return nil // stored so before, and its status says it
	}
	var warnings []string
	gap, at := shortest(ready.Cron, now)
	if gap < seldomest {
		warnings = append(warnings, fmt.Sprintf("spec.schedule: %q is due twice within %v (%s): a copy of a claim may take longer, then runs are left out; %v or more between two is usual", spec.Schedule, gap, at.Format(time.RFC3339), seldomest))
	}
	if jitter := time.Duration(spec.JitterSeconds) * time.Second; jitter > gap/2 {
		warnings = append(warnings, fmt.Sprintf("spec.jitterSeconds: %d is more than half of the %v between two runs (%s): there the claims are spread over %v", spec.JitterSeconds, gap, at.Format(time.RFC3339), gap/2))
	}
	if ready.Cron.EitherDay() {
		warnings = append(warnings, fmt.Sprintf("spec.schedule: %q names days of the month and days of the week: it is due on days that fit either; name one of them where both were meant", spec.Schedule))
	}
	return warnings
}

// shortest is the shortest time between two of the next runs, and when the
// first of these two is.
func shortest(c *cron.Schedule, now time.Time) (gap time.Duration, at time.Time) {
	runs := c.Upcoming(now, lookedAt)
	gap, at = runs[1].Sub(runs[0]), runs[0]
	for i := range runs[1:] {
		if d := runs[i+1].Sub(runs[i]); d < gap {
			gap, at = d, runs[i]
		}
	}
	return gap, at
}
