package policyschedule

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Refusals are all that is wrong with the schedules of a policy, by the path of
// the policy's field.
func Refusals(p *policy.Policy) field.ErrorList {
	var errs field.ErrorList
	for i := range p.Given() {
		errs = append(errs, refusals(p, i)...)
	}
	return errs
}

// refusals are what is wrong with one schedule: what a SnapshotSchedule would be
// refused for, and a target of which no claim is under the policy.
func refusals(p *policy.Policy, i int) field.ErrorList {
	g := p.Given()[i]
	_, errs := schedule.Compile(g.Asked)
	for _, e := range errs { // their paths begin with spec
		e.Field = fmt.Sprintf("spec.snapshots.schedules[%d].%s", i, e.Field)
	}
	if g.Contradiction != nil {
		errs = append(errs, g.Contradiction)
	}
	return errs
}
