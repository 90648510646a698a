package expansion

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestOnlySeenWhereItIs: what is told of a volume that is on no node, or that has no
// filesystem, decides nothing.
func TestOnlySeenWhereItIs(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi"), "")
	for name, claim := range map[string]Claim{
		"unattached": sized("10Gi", func(c *Claim) { c.Mounted = false }),
		"raw block":  sized("10Gi", func(c *Claim) { c.Block = true }),
		"sibling":    sized("10Gi", func(c *Claim) { c.Mounted, c.SiblingBytes = false, 20*gib }),
	} {
		if d := Decide(now, rules, claim, used("10Gi", 99), settled(claim)); d.TargetBytes != 0 || d.Unknown == "" {
			t.Errorf("%s: asks for %s, unknown: %q", name, text(d.TargetBytes), d.Unknown)
		}
	}
}

// TestChangeCountsUntilRecorded: a change by hand whose record could not be written
// is found again at the next look, or the budget would be one too large.
func TestChangeCountsUntilRecorded(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi"), "ebs.csi.aws.com")
	for name, claim := range map[string]Claim{
		"size":     sized("12Gi"),
		"class":    sized("10Gi", func(c *Claim) { c.Class, c.CurrentClass = "fast", "fast" }),
		"in haste": sized("10Gi", asks("12Gi")),
	} {
		history := settled(sized("10Gi"))
		for range 3 { // somebody else is always quicker
			d := Decide(now, rules, claim, used("9Gi", 5), history)
			if n := len(d.Record.within(24*time.Hour, now)); n != 1 {
				t.Fatalf("%s: %d modifications, want 1", name, n)
			}
			history = d.History
		}
	}
}

// TestClockGoesBack: what an hour that never was has said neither grows a claim nor
// keeps it from growing for an hour.
func TestClockGoesBack(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi"), "ebs.csi.aws.com")
	claim := sized("10Gi")
	history := settled(claim)
	history.Sample.At, history.Pressing = now.Add(time.Hour), now.Add(time.Hour)
	if d := Decide(now, rules, claim, used("10Gi", 5), history); !d.History.Pressing.IsZero() || d.TargetBytes != 0 {
		t.Errorf("a sample that shows room is not looked at: %+v", d)
	}
	if d := Decide(now, rules, claim, used("10Gi", 90), history); d.TargetBytes != 12*gib {
		t.Errorf("a sample that shows none is not looked at: asks for %s", text(d.TargetBytes))
	}
	waits := rulesOf("tier", policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, ForSeconds: 60})), "")
	if d := Decide(now, waits, claim, used("10Gi", 90), history); d.TargetBytes != 0 || !d.History.Pressing.Equal(now) {
		t.Errorf("what presses since an hour to come does so since %v, want now", d.History.Pressing)
	}

	year := over(-365*24*time.Hour, "8Gi", "10Gi", true)
	claim = sized("10Gi", recorded(year, year, year, year))
	d := Decide(now, rules, claim, used("10Gi", 99), settled(claim))
	for _, m := range d.Record.Modifications {
		if m.At.After(now) || m.Done.After(now) {
			t.Errorf("the record still tells of %v", m.At)
		}
	}
	if d.BudgetLeft != 0 || d.TargetBytes != 0 {
		t.Errorf("modifications of a time to come do not count: %d are left", d.BudgetLeft)
	}
	claim.Record = d.Record
	if again := Decide(now.Add(time.Minute), rules, claim, used("10Gi", 99), d.History); again.Record != claim.Record {
		t.Error("the record is written anew at each look")
	}
	soon := sized("10Gi", recorded(over(-30*time.Second, "8Gi", "10Gi", true)))
	soon.Record.Modifications[0].Done = &soon.Record.Modifications[0].At
	if d := Decide(now, rules, soon, used("10Gi", 5), settled(soon)); d.Record != soon.Record {
		t.Error("clocks that differ by half a minute have the record written anew")
	}
}

// TestInfeasibleIsNotCompleted: after a second try at half the step one growth is
// over, and not two; and the second try knows how large the filesystem was.
func TestInfeasibleIsNotCompleted(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi"), "")
	first := over(time.Hour, "10Gi", "14Gi", true)
	first.Done, first.FilesystemBytes = nil, 9980*mib
	claim := sized("10Gi", asks("14Gi"), recorded(first), func(c *Claim) { c.Infeasible = ControllerInfeasible })
	d := Decide(now, rules, claim, nil, History{})
	if d.TargetBytes != 12*gib || d.Record.newest().FilesystemBytes != first.FilesystemBytes {
		t.Fatalf("the second try is %+v", d.Record.newest())
	}
	grown := sized("12Gi")
	grown.Record = d.Record
	d = Decide(now.Add(time.Minute), rules, grown, used("9980Mi", 95), d.History)
	if len(d.Completed) != 1 || d.Completed[0].ToBytes != 12*gib {
		t.Errorf("completed %+v, want the second try alone", d.Completed)
	}
}

// TestForSecondsWithRareLooks: where usage is looked at more seldom than a trigger is
// believed to hold unseen, it holds from one look to the next all the same.
func TestForSecondsWithRareLooks(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, ForSeconds: 60})), "")
	rules.Between = 15 * time.Minute
	c := sized("10Gi")
	look := func(h History, at time.Time) Decision {
		sample := used("10Gi", 90)
		sample.At = at
		return Decide(at, rules, c, sample, h)
	}
	first := look(settled(c), now)
	if first.TargetBytes != 0 {
		t.Fatalf("it grows to %s at first sight", text(first.TargetBytes))
	}
	if d := look(first.History, now.Add(15*time.Minute+time.Second)); d.TargetBytes != 12*gib {
		t.Errorf("15 minutes later it grows to %s, want 12Gi: %+v", text(d.TargetBytes), d)
	}
	if d := look(first.History, now.Add(time.Hour)); d.TargetBytes != 0 {
		t.Errorf("after an hour unseen it grows to %s", text(d.TargetBytes))
	}
}
