package main

import (
	"fmt"
	"slices"
)

// verdict is what a run comes to.
type verdict struct {
	passed, failed, skipped int
	// ran are the names of the specs that ran, sorted.
	ran []string
	// problems are sentences about what is wrong.
	problems []string
}

// sum is the last line of a run.
func (v verdict) sum() string {
	return fmt.Sprintf("conformance: %d passed, %d failed, %d skipped", v.passed, v.failed, v.skipped)
}

// ok says whether the run is as it has to be.
func (v verdict) ok() bool { return v.failed == 0 && len(v.problems) == 0 }

// judge holds a report to the plan. Every spec that is meant has passed, failed, or
// been skipped for a reason; those that ran are those of specs.txt.
func judge(p *plan, r report) verdict {
	v := verdict{problems: slices.Clone(r.broken)}
	listed := map[string]bool{}
	for _, name := range p.listed {
		listed[name] = true
	}
	used := newUse(p)
	for _, s := range r.specs {
		if !p.meant(s.name) {
			continue
		}
		switch out := p.leftOut(s.name); {
		case s.outcome == passed || s.outcome == failed:
			v.count(s, listed[s.name])
			delete(listed, s.name)
		case s.outcome == skipped:
			v.skipped++
			if !used.says(s.message) {
				v.problem("%s\n    skipped itself, and reasons.yaml has no reason: %s", s.name, firstLine(s.message))
			}
		case out >= 0:
			v.skipped++
			used.leftOut[out] = true
			delete(listed, s.name)
		default:
			v.problem("%s\n    did not run: the suite ended before its turn", s.name)
			delete(listed, s.name)
		}
	}
	for _, name := range p.expected() {
		if listed[name] {
			v.problem("%s\n    is in specs.txt and did not run: it is not defined any more, or skipped itself", name)
		}
	}
	if p.whole() {
		v.problems = append(v.problems, used.stale()...)
	}
	slices.Sort(v.ran)
	return v
}

// count takes in a spec that ran.
func (v *verdict) count(s spec, listed bool) {
	v.ran = append(v.ran, s.name)
	if s.outcome == passed {
		v.passed++
	} else {
		v.failed++
	}
	if !listed {
		v.problem("%s\n    ran, and specs.txt does not have it: add it, so that it is missed when it does not run", s.name)
	}
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// use is which reasons a run needed.
type use struct {
	plan             *plan
	leftOut, skipped []bool
}

func newUse(p *plan) *use {
	return &use{plan: p, leftOut: make([]bool, len(p.reasons.LeftOut)), skipped: make([]bool, len(p.reasons.Skipped))}
}

// says looks for the reason of what a spec said when it skipped itself.
func (u *use) says(message string) bool {
	for i, r := range u.plan.reasons.Skipped {
		if r.Says.MatchString(message) {
			u.skipped[i] = true
			return true
		}
	}
	return false
}

// stale are sentences about reasons that nothing needed.
func (u *use) stale() []string {
	var out []string
	for i, r := range u.plan.reasons.LeftOut {
		if !u.leftOut[i] && (r.Without == "" || u.plan.lacks(r.Without)) {
			out = append(out, fmt.Sprintf("reasons.yaml leaves out %v, and there is no such spec: remove the entry", r.Specs))
		}
	}
	for i, r := range u.plan.reasons.Skipped {
		if !u.skipped[i] {
			out = append(out, fmt.Sprintf("reasons.yaml explains %v, which no spec said: remove the entry", r.Says))
		}
	}
	return out
}
