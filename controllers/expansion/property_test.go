package expansion

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/usage"
)

// volume is a claim and the cluster around it, as slow and as faulty as chance
// has it: what Decide asks for is done some time later, or found infeasible.
type volume struct {
	claim      Claim
	filesystem int64 // bytes
	used       int64
	due        time.Time // when the resize that is pending is over
	modified   time.Time // when the change of attributes is
}

// TestDecideByChance plays random policies, claims, writers, changes by hand and of
// the policy, restarts and faults. Whatever happens, no claim is asked to grow above
// its limit, by less than nothing, while something is in flight, beyond the budget,
// in doubt, or without the approval that the policy wants; and where nobody writes any more,
// growth comes to an end.
func TestDecideByChance(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func play(t *testing.T, r *rand.Rand) {
	t.Helper()
	p := policyOf(fmt.Sprintf("%dGi", 1+r.IntN(60)), step(1+r.Int32N(100), fmt.Sprintf("%dMi", 1+r.IntN(3000)), ""),
		budget(1+r.Int32N(5), 600+r.Int32N(86400), 0), trigger(v1alpha1.ExpansionTrigger{UsedPercent: 50 + r.Int32N(49), ForSeconds: r.Int32N(120)}))
	p.Budget.Reserve = r.Int32N(p.Budget.Modifications + 1)
	p.CooldownSeconds = ptr.To(r.Int32N(1800))
	rules := rulesOf("tier", p, "")
	v := &volume{claim: sized(fmt.Sprintf("%dMi", 100+r.IntN(20000)))}
	v.filesystem = v.claim.CapacityBytes * 97 / 100
	rules.Approve = r.IntN(4) == 0
	proposed := ""
	var h History
	at, asked := now, []time.Time(nil)
	last := at                              // when it was last asked to grow
	silence := now.Add(2 * 24 * time.Hour)  // from then on nobody writes
	end := silence.Add(60 * 24 * time.Hour) // which even a budget of 1 a day has to get by with
	for every := time.Minute; at.Before(end); {
		at = at.Add(every)
		writes := at.Before(silence)
		if !writes {
			every = 9 * time.Minute
		}
		v.live(r, at, writes)
		if r.IntN(500) == 0 {
			h = History{} // a restart
		}
		var sample *usage.Sample
		if r.IntN(20) > 0 {
			sample = &usage.Sample{At: at.Add(-time.Second), Bytes: usage.Amount{Total: v.filesystem, Free: v.filesystem - v.used}}
		}
		if writes && r.IntN(1000) == 0 && !v.claim.InFlight { // by hand
			v.claim.RequestBytes += int64(1+r.IntN(3)) * gib
			v.claim.InFlight, v.due = true, at.Add(5*time.Minute)
			asked = append(asked, at)
		}
		if writes && r.IntN(1000) == 0 { // by hand too, on top of whatever is under way
			v.claim.Class = fmt.Sprint("class-", at.Unix())
			v.claim.InFlight, v.claim.Modifying, v.modified = true, true, at.Add(5*time.Minute)
			asked = append(asked, at)
		}
		if v.claim.Doubt = ""; writes && at.Hour()%7 == 0 { // somebody breaks a policy, and puts it right
			v.claim.Doubt = "a policy is not valid"
		}
		if writes && r.IntN(3000) == 0 { // somebody holds claims to less, or to more
			rules.MaxBytes = int64(1+r.IntN(60)) * gib
		}
		if rules.Approve && writes && r.IntN(30) == 0 { // somebody approves what was proposed a while ago, or takes it back
			v.claim.Approved = proposed
		}
		before := v.claim
		d := Decide(at, rules, v.claim, sample, h)
		h, v.claim.Record = d.History, d.Record
		if proposed = ""; d.Proposed != nil {
			_, proposed, _ = strings.Cut(d.Proposed.Message, v1alpha1.AnnotationApproveSize+"=")
			proposed, _, _ = strings.Cut(proposed, ",")
		}
		if d.TargetBytes == 0 {
			continue
		}
		last = at
		check(t, rules, before, d, at, asked)
		asked = append(asked, at)
		v.claim.RequestBytes, v.claim.InFlight, v.claim.Infeasible = d.TargetBytes, true, Feasible
		v.due = at.Add(time.Duration(r.IntN(60)) * time.Minute)
	}
	if rest := end.Sub(last); rest < 5*24*time.Hour {
		t.Errorf("growth goes on though nobody writes: the last one was %v before the end", rest)
	}
}

// live lets a minute pass.
func (v *volume) live(r *rand.Rand, at time.Time, writes bool) {
	if writes {
		v.used = min(v.used+r.Int64N(20*mib), v.filesystem)
	}
	resizing := v.claim.RequestBytes > v.claim.CapacityBytes
	if v.claim.Modifying && !at.Before(v.modified) {
		v.claim.Modifying, v.claim.CurrentClass, v.claim.InFlight = false, v.claim.Class, resizing
	}
	if !resizing || at.Before(v.due) {
		return
	}
	if v.claim.Infeasible == Feasible && r.IntN(10) == 0 {
		v.claim.Infeasible = ControllerInfeasible
		return
	}
	if v.claim.Infeasible != Feasible && r.IntN(100) > 0 {
		return
	}
	v.claim.InFlight, v.claim.Infeasible = v.claim.Modifying, Feasible
	v.claim.CapacityBytes = ceil(v.claim.RequestBytes)
	v.filesystem = v.claim.CapacityBytes * 97 / 100
}

// check holds one request to grow to the rules.
func check(t *testing.T, rules Rules, c Claim, d Decision, at time.Time, asked []time.Time) {
	t.Helper()
	retry := c.Infeasible == ControllerInfeasible
	switch {
	case c.Modifying, c.Doubt != "":
		t.Errorf("asks for %s while attributes are being changed: %v, or in doubt: %q", text(d.TargetBytes), c.Modifying, c.Doubt)
	case d.TargetBytes > rules.MaxBytes:
		t.Errorf("asks for %s, above %s", text(d.TargetBytes), text(rules.MaxBytes))
	case d.TargetBytes%gib != 0:
		t.Errorf("asks for %d bytes: not whole GiB", d.TargetBytes)
	case d.TargetBytes <= c.CapacityBytes:
		t.Errorf("asks for %s of a volume of %s", text(d.TargetBytes), text(c.CapacityBytes))
	case !retry && (c.InFlight || d.TargetBytes <= c.RequestBytes):
		t.Errorf("asks for %s while %s are asked for (in flight: %v)", text(d.TargetBytes), text(c.RequestBytes), c.InFlight)
	case rules.Approve && approvedOf(c) != d.TargetBytes && (!retry || approvedOf(c) < d.TargetBytes):
		t.Errorf("asks for %s, approved is %q", text(d.TargetBytes), c.Approved)
	case retry && d.TargetBytes >= c.RequestBytes:
		t.Errorf("tries %s after %s was infeasible", text(d.TargetBytes), text(c.RequestBytes))
	}
	n := 1
	for _, a := range asked {
		if a.After(at.Add(-rules.Window)) {
			n++
		}
	}
	if n > rules.Budget {
		t.Errorf("asks for modification %d of %d within %v", n, rules.Budget, rules.Window)
	}
}
