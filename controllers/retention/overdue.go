package retention

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Overdue are the copies that the plan keeps only since they are held or in use,
// or are in a group with one that is: without that they would go now.
func Overdue(now time.Time, seen Observed, plan Plan) []Verdict {
	seen.Copies = slices.Clone(seen.Copies)
	kept := false
	for i, m := range seen.Copies {
		kept = kept || m.Hold != "" || m.Source != ""
		seen.Copies[i].Hold, seen.Copies[i].Source = "", ""
	}
	if !kept {
		return nil
	}
	goes := map[types.UID]bool{}
	for _, v := range Decide(now, seen).Delete {
		goes[v.UID] = true
	}
	return slices.DeleteFunc(slices.Clone(plan.Keep), func(v Verdict) bool { return !goes[v.UID] })
}

// Release decides about the copies of a schedule that is deleted with
// onScheduleDelete Delete.
//
//	held, or in a group with one that is         stays behind
//	the source of a claim that is not Bound, or  waits, and the schedule with it
//	 in a group with one that is
//	on its way out                               waits: the schedule goes last, so that
//	                                             whoever waits for it finds no copy left
//	else, ready or not                           goes
func Release(seen Observed) (plan Plan, waits bool) {
	held, used := map[string]bool{}, map[string]bool{}
	for _, m := range seen.Copies {
		if m.Group != "" && !m.Deleting {
			held[m.Group] = held[m.Group] || m.Hold != ""
			used[m.Group] = used[m.Group] || m.Source != ""
		}
	}
	for _, m := range seen.Copies {
		switch {
		case m.Deleting:
			waits = true
		case m.Hold != "":
			plan.Keep = append(plan.Keep, Verdict{m, "held: " + m.Hold})
		case held[m.Group]:
			plan.Keep = append(plan.Keep, Verdict{m, "one of its group " + m.Group + " is held"})
		case m.Source != "":
			waits = true
			plan.Keep = append(plan.Keep, Verdict{m, "claim " + m.Source + " is being filled from it"})
		case used[m.Group]:
			waits = true
			plan.Keep = append(plan.Keep, Verdict{m, "a claim is being filled from one of its group " + m.Group})
		default:
			plan.Delete = append(plan.Delete, Verdict{m, "its schedule is deleted, and onScheduleDelete is Delete"})
		}
	}
	plan.sort()
	return plan, waits
}
