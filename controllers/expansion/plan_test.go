package expansion

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/usage"
)

const mib = 1 << 20

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// policyOf is an expansion as the API server stores it, with its defaults.
func policyOf(maxSize string, change ...func(*v1alpha1.PolicyExpansion)) *v1alpha1.PolicyExpansion {
	e := &v1alpha1.PolicyExpansion{
		Mode: v1alpha1.ExpansionAuto, Trigger: v1alpha1.ExpansionTrigger{UsedPercent: 80},
		Step:    v1alpha1.ExpansionStep{Percent: 20, Min: quantity("1Gi")},
		MaxSize: resource.MustParse(maxSize), CooldownSeconds: ptr.To[int32](900),
	}
	for _, f := range change {
		f(e)
	}
	return e
}

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

func step(percent int32, least, most string) func(*v1alpha1.PolicyExpansion) {
	return func(e *v1alpha1.PolicyExpansion) {
		e.Step = v1alpha1.ExpansionStep{Percent: percent, Min: quantity(least)}
		if most != "" {
			e.Step.Max = quantity(most)
		}
	}
}

func budget(modifications, windowSeconds, reserve int32) func(*v1alpha1.PolicyExpansion) {
	return func(e *v1alpha1.PolicyExpansion) {
		e.Budget = &v1alpha1.ExpansionBudget{Modifications: modifications, WindowSeconds: windowSeconds, Reserve: reserve}
	}
}

func trigger(t v1alpha1.ExpansionTrigger) func(*v1alpha1.PolicyExpansion) {
	return func(e *v1alpha1.PolicyExpansion) { e.Trigger = t }
}

func approve(e *v1alpha1.PolicyExpansion) { e.Mode = v1alpha1.ExpansionApprove }

// sized is a bound and mounted claim that has what it asks for.
func sized(size string, change ...func(*Claim)) Claim {
	bytes := quantity(size).Value()
	c := Claim{Ready: true, Mounted: true, RequestBytes: bytes, CapacityBytes: bytes, ClassName: "gp3", Expandable: true}
	for _, f := range change {
		f(&c)
	}
	return c
}

func asks(size string) func(*Claim) {
	return func(c *Claim) { c.RequestBytes, c.InFlight = quantity(size).Value(), true }
}

// recorded has a claim carry the modifications.
func recorded(list ...Modification) func(*Claim) {
	return func(c *Claim) {
		c.Record = &Record{RequestBytes: c.RequestBytes, Class: c.Class, Modifications: list}
	}
}

// over is a growth that was over a minute after it was asked for.
func over(ago time.Duration, from, to string, ours bool) Modification {
	done := now.Add(-ago + time.Minute)
	return Modification{At: now.Add(-ago), FromBytes: quantity(from).Value(), ToBytes: quantity(to).Value(), Ours: ours, Done: &done}
}

// used is a sample of a filesystem with that much, of which percent are used.
func used(total string, percent float64) *usage.Sample {
	bytes := quantity(total).Value()
	return &usage.Sample{At: now, Bytes: usage.Amount{Total: bytes, Free: bytes - int64(math.Ceil(float64(bytes)*percent/100))}}
}

func inodes(total, free int64) *usage.Sample {
	s := used("10Gi", 5)
	s.Inodes = usage.Amount{Total: total, Free: free}
	return s
}

// settled is what is remembered of a claim that has been looked at for long.
func settled(c Claim) History {
	return History{Seen: true, RequestBytes: c.RequestBytes, Class: c.Class, Fresh: freshSamples, Sample: usage.Sample{At: now.Add(-time.Minute)}}
}

func TestDecide(t *testing.T) {
	day := budget(3, 86400, 1)
	hand := over(20*time.Hour, "5Gi", "10Gi", false)
	first, second := over(10*time.Hour, "10Gi", "12Gi", true), over(5*time.Hour, "12Gi", "15Gi", true)
	infeasible := func(by Infeasible, from, to string, m Modification) func(*Claim) {
		return func(c *Claim) {
			c.RequestBytes, c.CapacityBytes, c.InFlight, c.Infeasible = quantity(to).Value(), quantity(from).Value(), true, by
			m.Done = nil
			recorded(m)(c)
		}
	}
	for name, tc := range map[string]struct {
		why      string
		policy   *v1alpha1.PolicyExpansion
		driver   string
		claim    Claim
		sample   *usage.Sample
		history  func(*History)
		grows    string // to; empty: it does not
		blocked  string // reason
		says     string // in the message of Blocked or Proposed
		proposed bool
		unknown  string
	}{
		"C14":                     {why: "a tiny ext4: a step of 10 % is a tenth of a GiB, so step.min counts", policy: policyOf("20Gi", step(10, "1Gi", "")), claim: sized("1Gi"), sample: used("973Mi", 80), grows: "2Gi"},
		"C14 empty":               {why: "nothing is due at 5 % used", policy: policyOf("20Gi", step(10, "1Gi", "")), claim: sized("1Gi"), sample: used("973Mi", 5)},
		"C15 asked":               {why: "the first decision", policy: policyOf("50Gi", step(20, "3Gi", "")), claim: sized("10Gi"), sample: used("9980Mi", 95), grows: "13Gi"},
		"C15 pending":             {why: "while the resizer fails, for hours, nothing more is asked for", policy: policyOf("50Gi", step(20, "3Gi", "")), claim: sized("10Gi", asks("13Gi"), recorded(Modification{At: now.Add(-6 * time.Hour), FromBytes: 10 * gib, ToBytes: 13 * gib, Ours: true})), sample: used("9980Mi", 95)},
		"C16 92 %":                {why: "the last modification is kept for more than 95 %", policy: policyOf("50Gi", day), claim: sized("15Gi", recorded(hand, first)), sample: used("15Gi", 92), blocked: v1alpha1.ReasonBudgetSpent, says: "growth goes on at 2026-12-01T16:00:00Z"},
		"C16 three, 92 %":         {why: "three of four by a budget of 4", policy: policyOf("50Gi", budget(4, 86400, 1)), claim: sized("15Gi", recorded(hand, first, second)), sample: used("15Gi", 92), blocked: v1alpha1.ReasonBudgetSpent, says: "growth goes on at 2026-12-01T16:00:00Z"},
		"C16 96 %":                {why: "that is what the reserve is for", policy: policyOf("50Gi", budget(4, 86400, 1)), claim: sized("15Gi", recorded(hand, first, second)), sample: used("15Gi", 96), grows: "18Gi"},
		"C16 99 %, none left":     {why: "EC2 would refuse a fifth", policy: policyOf("50Gi", budget(4, 86400, 1)), claim: sized("18Gi", recorded(hand, first, second, over(time.Hour, "15Gi", "18Gi", true))), sample: used("18Gi", 99), blocked: v1alpha1.ReasonBudgetSpent, says: "growth goes on at 2026-12-01T16:00:00Z"},
		"C16 the window moves on": {why: "the one by hand is more than a day ago", policy: policyOf("50Gi", budget(4, 86400, 1)), claim: sized("18Gi", recorded(over(24*time.Hour, "5Gi", "10Gi", false), first, second, over(time.Hour, "15Gi", "18Gi", true))), sample: used("18Gi", 99), grows: "22Gi"},
		"EBS by default":          {why: "4 in a day, one of them kept", driver: "ebs.csi.aws.com", policy: policyOf("50Gi"), claim: sized("15Gi", recorded(hand, first, second)), sample: used("15Gi", 92), blocked: v1alpha1.ReasonBudgetSpent},
		"in-tree EBS by default":  {why: "the same volumes", driver: "kubernetes.io/aws-ebs", policy: policyOf("50Gi"), claim: sized("15Gi", recorded(hand, first, second)), sample: used("15Gi", 92), blocked: v1alpha1.ReasonBudgetSpent},
		"others by default":       {why: "other drivers have no budget unless it is said", driver: "topolvm.io", policy: policyOf("50Gi"), claim: sized("15Gi", recorded(hand, first, second)), sample: used("15Gi", 92), grows: "18Gi"},
		"all in reserve":          {why: "there is no time at which this goes on by itself", policy: policyOf("50Gi", budget(2, 60, 2)), claim: sized("10Gi"), sample: used("10Gi", 90), blocked: v1alpha1.ReasonBudgetSpent, says: "as full as that"},
		"an attributes class":     {why: "it is a modification to EC2 too", policy: policyOf("50Gi", budget(1, 86400, 0)), claim: sized("10Gi", recorded(Modification{At: now.Add(-time.Hour), Done: ptr.To(now.Add(-time.Hour))})), sample: used("10Gi", 90), blocked: v1alpha1.ReasonBudgetSpent},
		"just below":              {why: "a threshold is where it begins", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: used("10Gi", 79.9)},
		"just at":                 {why: "and there it has begun", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: used("10Gi", 80), grows: "12Gi"},
		"free bytes":              {why: "less than 2 GiB are free", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{FreeBytes: quantity("2Gi")})), claim: sized("10Gi"), sample: used("10Gi", 81), grows: "12Gi"},
		"enough free bytes":       {why: "2 GiB are not less than that", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{FreeBytes: quantity("2Gi")})), claim: sized("10Gi"), sample: used("10Gi", 80)},
		"inodes":                  {why: "a filesystem without inodes is full too", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{InodesUsedPercent: 90})), claim: sized("10Gi"), sample: inodes(1000, 100), grows: "12Gi"},
		"inodes, not asked":       {why: "what the policy does not name does not count", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: inodes(1000, 1)},
		"no inodes":               {why: "a filesystem that counts none is not out of them", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{InodesUsedPercent: 90})), claim: sized("10Gi"), sample: inodes(0, 0), unknown: "inodes"},
		"inodes and bytes":        {why: "what one trigger does not know the other decides", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, InodesUsedPercent: 90})), claim: sized("10Gi"), sample: used("10Gi", 90), grows: "12Gi", unknown: "inodes"},
		"no bytes":                {why: "unknown is not zero", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: &usage.Sample{At: now}, unknown: "bytes"},
		"no sample":               {why: "unknown is not zero", policy: policyOf("50Gi"), claim: sized("10Gi"), unknown: "does not tell"},
		"unattached":              {why: "nobody sees how full it is", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Mounted = false }), unknown: "on no node"},
		"raw block":               {why: "it has no filesystem to look at", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Block = true }), unknown: "raw block"},
		"not bound":               {why: "there is no volume", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Ready = false }), sample: used("10Gi", 90)},
		"for a while":             {why: "the trigger has not held long enough", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, ForSeconds: 60})), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Pressing = now.Add(-59 * time.Second) }},
		"for long enough":         {why: "now it has", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, ForSeconds: 60})), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Pressing = now.Add(-60 * time.Second) }, grows: "12Gi"},
		"not without a break":     {why: "what was between two samples that are far apart is not known", policy: policyOf("50Gi", trigger(v1alpha1.ExpansionTrigger{UsedPercent: 80, ForSeconds: 60})), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Pressing, h.Sample.At = now.Add(-time.Hour), now.Add(-time.Hour) }},
		"percent of the size":     {why: "20 % of 100 GiB", policy: policyOf("500Gi"), claim: sized("100Gi"), sample: used("100Gi", 90), grows: "120Gi"},
		"at most the step's max":  {why: "a large volume does not grow by a fifth", policy: policyOf("5Ti", step(20, "1Gi", "50Gi")), claim: sized("1Ti"), sample: used("1Ti", 90), grows: "1074Gi"},
		"whole GiB":               {why: "drivers round up: so is what is asked for", policy: policyOf("50Gi"), claim: sized("10300Mi"), sample: used("10Gi", 90), grows: "13Gi"},
		"whole GiB below max":     {why: "rounding up does not pass step.max", policy: policyOf("50Gi", step(20, "1Gi", "1Gi")), claim: sized("10300Mi"), sample: used("10Gi", 90), grows: "11Gi"},
		"the last step":           {why: "up to maxSize, though that is less than a step", policy: policyOf("11Gi", step(20, "5Gi", "")), claim: sized("10Gi"), sample: used("10Gi", 90), grows: "11Gi"},
		"maxSize of no whole GiB": {why: "down to whole GiB, never above", policy: policyOf("11800Mi"), claim: sized("10Gi"), sample: used("10Gi", 90), grows: "11Gi"},
		"at maxSize":              {why: "there it stops, and says so", policy: policyOf("10Gi"), claim: sized("10Gi"), sample: used("10Gi", 90), blocked: v1alpha1.ReasonAtMaximum, says: `the maxSize of StoragePolicy "tier" is 10Gi`},
		"at maxSize and empty":    {why: "nothing is asked for, so nothing is blocked", policy: policyOf("10Gi"), claim: sized("10Gi"), sample: used("10Gi", 50)},
		"above maxSize":           {why: "made larger by hand: nothing to do", policy: policyOf("10Gi"), claim: sized("20Gi"), sample: used("20Gi", 90), blocked: v1alpha1.ReasonAtMaximum},
		"more than was asked for": {why: "the base is what the volume has", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.RequestBytes = 9 * gib }), sample: used("10Gi", 90), grows: "12Gi"},
		"its own maximum":         {why: "a team holds its claim to less", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "11Gi" }), sample: used("10Gi", 90), grows: "11Gi"},
		"at its own maximum":      {why: "and is told whose bound it is", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "10Gi" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonAtMaximum, says: "annotation holdfast.dev/max-size is 10Gi"},
		"maximum of nothing":      {why: "what cannot be read is no decision", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "lots" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidMaxSize, says: `"lots"`},
		"maximum above policy's":  {why: "a team cannot lift the policy's bound", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "51Gi" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidMaxSize, says: "at most the maxSize 50Gi"},
		"maximum beyond int64":    {why: "10E is not a size of 0 bytes", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "10E" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidMaxSize, says: "is 10E, want"},
		"maxSize beyond int64":    {why: "nor is the policy's", policy: policyOf("10E"), claim: sized("10Gi"), sample: used("10Gi", 90), grows: "12Gi"},
		"near the end of int64":   {why: "no step goes round to below 0", policy: policyOf("7900Pi", step(1000, "1Gi", "")), claim: sized("7Ei"), sample: used("7Ei", 90), grows: "7900Pi"},
		"a step beyond int64":     {why: "likewise", policy: policyOf("7900Pi", step(10, "9E", "")), claim: sized("7Ei"), sample: used("7Ei", 90), grows: "7900Pi"},
		"maximum said early":      {why: "a bad annotation is said before the volume is full", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.MaxSize = "-1" }), sample: used("10Gi", 5), blocked: v1alpha1.ReasonInvalidMaxSize},
		"class forbids":           {why: "the API server would refuse it", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Expandable = false }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonClassForbids, says: `"gp3"`},
		"class is gone":           {why: "there is nothing of the name to change", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.ClassGone, c.Expandable = true, false }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonClassForbids, says: `"gp3" is not there`},
		"no class":                {why: "nor is there anything to make", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.ClassName, c.ClassGone, c.Expandable = "", true, false }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonClassForbids, says: "has no StorageClass"},
		"in doubt":                {why: "what cannot be read may forbid it", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Doubt = "a policy is not valid" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidPolicy, says: "a policy is not valid"},
		"in doubt, to a sibling":  {why: "likewise", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Doubt, c.SiblingBytes = "a policy is not valid", 20*gib }), sample: used("10Gi", 5), blocked: v1alpha1.ReasonInvalidPolicy},
		"in doubt, not due":       {why: "nothing is asked for, so nothing is blocked", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.Doubt = "a policy is not valid" }), sample: used("10Gi", 5)},
		"resize condition":        {why: "a resize is under way though the sizes agree", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.InFlight = true }), sample: used("10Gi", 99)},
		"cooldown":                {why: "it has just grown", policy: policyOf("50Gi"), claim: sized("12Gi", recorded(over(15*time.Minute, "10Gi", "12Gi", true))), sample: used("12Gi", 90)},
		"after the cooldown":      {why: "which runs from when it had grown", policy: policyOf("50Gi"), claim: sized("12Gi", recorded(over(16*time.Minute, "10Gi", "12Gi", true))), sample: used("12Gi", 90), grows: "15Gi"},
		"one fresh sample":        {why: "the second one decides", policy: policyOf("50Gi"), claim: sized("12Gi", recorded(over(time.Hour, "10Gi", "12Gi", true))), sample: used("12Gi", 90), history: func(h *History) { h.Fresh = 0 }},
		"two fresh samples":       {why: "this is the second one", policy: policyOf("50Gi"), claim: sized("12Gi", recorded(over(time.Hour, "10Gi", "12Gi", true))), sample: used("12Gi", 90), history: func(h *History) { h.Fresh = 1 }, grows: "15Gi"},
		"never shown": {why: "a filesystem that does not grow is told, and not grown again", policy: policyOf("50Gi"), claim: sized("12Gi", recorded(func() Modification {
			m := over(time.Hour, "10Gi", "12Gi", true)
			m.FilesystemBytes = 10180 * mib
			return m
		}())), sample: used("10180Mi", 90), history: func(h *History) { h.Fresh = 0 }, blocked: v1alpha1.ReasonCapacityNotShown},
		"larger sibling":            {why: "claims of one template have one size", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.SiblingBytes = 20 * gib }), sample: used("10Gi", 5), grows: "20Gi"},
		"sibling, full":             {why: "in one modification", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.SiblingBytes = 20 * gib }), sample: used("10Gi", 99), grows: "20Gi"},
		"sibling above maxSize":     {why: "never above it", policy: policyOf("15Gi"), claim: sized("10Gi", func(c *Claim) { c.SiblingBytes = 20 * gib }), sample: used("10Gi", 5), grows: "15Gi"},
		"sibling of an unused":      {why: "a claim that nobody mounts is left: it may be nobody's", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.SiblingBytes, c.Mounted = 20*gib, false }), unknown: "on no node"},
		"proposed":                  {why: "somebody has to approve", policy: policyOf("50Gi", approve), claim: sized("10Gi"), sample: used("10Gi", 90), proposed: true, says: "holdfast.dev/approve-size=12Gi"},
		"approved":                  {why: "somebody has", policy: policyOf("50Gi", approve), claim: sized("10Gi", func(c *Claim) { c.Approved = "12Gi" }), sample: used("10Gi", 90), grows: "12Gi"},
		"approved, other words":     {why: "it is a size, not a text", policy: policyOf("50Gi", approve), claim: sized("10Gi", func(c *Claim) { c.Approved = "12288Mi" }), sample: used("10Gi", 90), grows: "12Gi"},
		"approved something else":   {why: "an approval of old is none of this", policy: policyOf("50Gi", approve), claim: sized("12Gi", func(c *Claim) { c.Approved = "12Gi" }), sample: used("12Gi", 90), proposed: true, says: `holdfast.dev/approve-size=15Gi, which is "12Gi" now`},
		"approved, not in Gi":       {why: "a slip of the finger must be seen", policy: policyOf("50Gi", approve), claim: sized("10Gi", func(c *Claim) { c.Approved = "12G" }), sample: used("10Gi", 90), proposed: true, says: `holdfast.dev/approve-size=12Gi, which is "12G" now`},
		"proposed and spent":        {why: "what cannot be done is not proposed", policy: policyOf("50Gi", approve, budget(1, 86400, 0)), claim: sized("10Gi", recorded(hand)), sample: used("10Gi", 90), blocked: v1alpha1.ReasonBudgetSpent},
		"infeasible":                {why: "once more at half the step", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), sample: used("10Gi", 90), grows: "12Gi"},
		"infeasible, approved":      {why: "who approved a step approved half of it", policy: policyOf("50Gi", approve), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.Approved = "14Gi" }), sample: used("10Gi", 90), grows: "12Gi"},
		"infeasible, half approved": {why: "or that alone", policy: policyOf("50Gi", approve), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.Approved = "12Gi" }), sample: used("10Gi", 90), grows: "12Gi"},
		"infeasible, taken back":    {why: "the approval is gone, or was of something else", policy: policyOf("50Gi", approve), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.Approved = "11Gi" }), sample: used("10Gi", 90), proposed: true, says: "holdfast.dev/approve-size=12Gi"},
		"infeasible, lower maxSize": {why: "maxSize may have come down since", policy: policyOf("11Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), sample: used("10Gi", 90), grows: "11Gi"},
		"infeasible, at maxSize":    {why: "there is no room for a second try", policy: policyOf("10Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInfeasible},
		"infeasible, own maximum":   {why: "a team has held its claim to less since", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.MaxSize = "11Gi" }), sample: used("10Gi", 90), grows: "11Gi"},
		"infeasible, bad maximum":   {why: "what the team wants is not known", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.MaxSize = "lots" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidMaxSize},
		"infeasible, in doubt":      {why: "a second try is growth too", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.Doubt = "a policy is not valid" }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInvalidPolicy},
		"infeasible, modifying":     {why: "its attributes are being changed: a second try comes after that", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true)), func(c *Claim) { c.Modifying = true }), sample: used("10Gi", 90)},
		"infeasible again":          {why: "and that was the last try", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "12Gi", func() Modification { m := over(time.Hour, "10Gi", "12Gi", true); m.Retry = true; return m }())), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInfeasible, says: "from 10Gi to 12Gi"},
		"infeasible, smallest step": {why: "there is no smaller one", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "11Gi", over(time.Hour, "10Gi", "11Gi", true))), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInfeasible},
		"infeasible by hand":        {why: "what somebody asked for is theirs to take back", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", false))), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInfeasible},
		"infeasible on the node":    {why: "the volume has grown already: a smaller size helps nobody", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(NodeInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), sample: used("10Gi", 90), blocked: v1alpha1.ReasonInfeasible, says: "the driver's node"},
		"infeasible, unseen":        {why: "the ladder needs no sample", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), grows: "12Gi"},
		"infeasible, just retried":  {why: "what is said may still be about the first try", policy: policyOf("50Gi"), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "12Gi", func() Modification { m := over(time.Minute, "10Gi", "12Gi", true); m.Retry = true; return m }())), sample: used("10Gi", 90)},
		"infeasible, spent":         {why: "the second try is a modification", policy: policyOf("50Gi", budget(1, 86400, 0)), claim: sized("10Gi", infeasible(ControllerInfeasible, "10Gi", "14Gi", over(time.Hour, "10Gi", "14Gi", true))), sample: used("10Gi", 90), blocked: v1alpha1.ReasonBudgetSpent},
		"refused":                   {why: "a guardrail said no a moment ago: it is not asked again and again", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Refusal = Refusal{12 * gib, now.Add(-9 * time.Minute), "too large"} }, blocked: v1alpha1.ReasonRefused, says: "too large"},
		"refused long ago":          {why: "the guardrail may be another by now", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Refusal = Refusal{12 * gib, now.Add(-10 * time.Minute), "too large"} }, grows: "12Gi"},
		"refused something else":    {why: "that was another size", policy: policyOf("50Gi"), claim: sized("10Gi"), sample: used("10Gi", 90), history: func(h *History) { h.Refusal = Refusal{13 * gib, now, "too large"} }, grows: "12Gi"},
		"bad record":                {why: "without it the budget is not known", policy: policyOf("50Gi"), claim: sized("10Gi", func(c *Claim) { c.BadRecord = errors.New("the annotation cannot be read") }), sample: used("10Gi", 90), blocked: v1alpha1.ReasonRecordUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			h := settled(tc.claim)
			if tc.history != nil {
				tc.history(&h)
			}
			d := Decide(now, rulesOf("tier", tc.policy, tc.driver), tc.claim, tc.sample, h)
			grows := ""
			if d.TargetBytes > 0 {
				grows = text(d.TargetBytes)
			}
			if want := tc.grows; grows != want && (want == "" || quantity(want).Value() != d.TargetBytes) {
				t.Errorf("%s: grows to %q, want %q (%+v)", tc.why, grows, want, d)
			}
			var note Note
			switch {
			case d.Blocked != nil:
				note = *d.Blocked
			case d.Proposed != nil:
				note = *d.Proposed
			}
			if d.Blocked == nil && tc.blocked != "" || d.Blocked != nil && d.Blocked.Reason != tc.blocked || (d.Proposed != nil) != tc.proposed || !strings.Contains(note.Message, tc.says) {
				t.Errorf("%s: blocked %+v, proposed %+v; want reason %q, proposed %v, with %q", tc.why, d.Blocked, d.Proposed, tc.blocked, tc.proposed, tc.says)
			}
			if (d.Unknown == "") != (tc.unknown == "") || !strings.Contains(d.Unknown, tc.unknown) {
				t.Errorf("%s: unknown %q, want %q", tc.why, d.Unknown, tc.unknown)
			}
			if d.TargetBytes > 0 && (d.Record.newest().ToBytes != d.TargetBytes || !d.Record.newest().Ours || d.Record.RequestBytes != d.TargetBytes) {
				t.Errorf("%s: the size is asked for and not recorded: %s", tc.why, d.Record)
			}
		})
	}
}

// TestChangesByHand: each change of size or class is recorded once, whoever made
// it and whenever the manager looks.
func TestChangesByHand(t *testing.T) {
	rules := rulesOf("tier", policyOf("50Gi"), "ebs.csi.aws.com")
	for name, tc := range map[string]struct {
		why     string
		claim   Claim
		history History
		want    int
	}{
		"as before":                 {"nothing has changed", sized("10Gi"), settled(sized("10Gi")), 0},
		"first sight":               {"a claim was made with its size", sized("10Gi"), History{}, 0},
		"more than was asked for":   {"a driver rounds up", sized("10Gi", func(c *Claim) { c.RequestBytes = 9 * gib }), History{}, 0},
		"first sight of a resize":   {"what is pending is a modification", sized("10Gi", asks("12Gi")), History{}, 1},
		"first sight of attributes": {"likewise", sized("10Gi", func(c *Claim) { c.Class, c.CurrentClass, c.InFlight = "fast", "slow", true }), History{}, 1},
		"grown":                     {"by hand, between two looks", sized("12Gi"), settled(sized("10Gi")), 1},
		"asked for":                 {"by hand, and under way", sized("10Gi", asks("12Gi")), settled(sized("10Gi")), 1},
		"another class":             {"EC2 counts it as well", sized("10Gi", func(c *Claim) { c.Class, c.CurrentClass = "fast", "fast" }), settled(sized("10Gi")), 1},
		"both":                      {"these are two", sized("12Gi", func(c *Claim) { c.Class, c.CurrentClass = "fast", "fast" }), settled(sized("10Gi")), 2},
		"after a restart":           {"the record tells what was seen last", sized("12Gi", func(c *Claim) { recorded(over(time.Hour, "8Gi", "10Gi", true))(c); c.Record.RequestBytes = 10 * gib }), History{}, 2},
		"restart, nothing new":      {"and counts nothing twice", sized("10Gi", recorded(over(time.Hour, "8Gi", "10Gi", true))), History{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(now, rules, tc.claim, used("9Gi", 5), tc.history)
			if n := len(d.Record.within(24*time.Hour, now)); n != tc.want {
				t.Errorf("%s: %d modifications, want %d: %v", tc.why, n, tc.want, d.Record)
			}
			if want := 4 - tc.want; d.BudgetLeft != want {
				t.Errorf("%s: the budget leaves %d, want %d", tc.why, d.BudgetLeft, want)
			}
			tc.claim.Record = d.Record
			again := Decide(now.Add(time.Minute), rules, tc.claim, used("9Gi", 5), d.History)
			if n := len(again.Record.within(24*time.Hour, now)); n != tc.want {
				t.Errorf("%s: a second look makes it %d, want %d", tc.why, n, tc.want)
			}
		})
	}
}

// TestStaleUsage is C15: after a success two samples have to show the new capacity,
// and a free figure that stays as it was for ten minutes grows nothing.
func TestStaleUsage(t *testing.T) {
	p := policyOf("50Gi", step(20, "3Gi", ""))
	p.CooldownSeconds = ptr.To[int32](0)
	rules := rulesOf("tier", p, "")
	claim := sized("10Gi")
	at := now
	look := func(s *usage.Sample, h History) Decision {
		t.Helper()
		at = at.Add(time.Minute)
		s.At = at
		d := Decide(at, rules, claim, s, h)
		claim.Record = d.Record
		return d
	}
	d := look(used("9980Mi", 95), settled(claim))
	if d.TargetBytes != 13*gib {
		t.Fatalf("asks for %s, want 13Gi", text(d.TargetBytes))
	}
	claim.RequestBytes, claim.InFlight = 13*gib, true
	for range 6 * 60 {
		if d = look(used("9980Mi", 95), d.History); d.TargetBytes != 0 {
			t.Fatal("asks again while the resizer fails")
		}
	}
	claim.CapacityBytes, claim.InFlight = 13*gib, false
	d = look(used("9980Mi", 95), d.History)
	if len(d.Completed) != 1 || d.Completed[0].ToBytes != 13*gib {
		t.Errorf("completed %+v, want the growth to 13Gi", d.Completed)
	}
	for range 10 {
		if d = look(used("9980Mi", 95), d.History); d.TargetBytes != 0 || len(d.Completed) != 0 {
			t.Fatal("grows by a stale free figure, or tells of completion twice")
		}
	}
	if d = look(used("12980Mi", 95), d.History); d.TargetBytes != 0 {
		t.Error("grows by the first sample of the new capacity")
	}
	if d = look(used("12980Mi", 95), d.History); d.TargetBytes != 16*gib {
		t.Errorf("asks for %s after two fresh samples, want 16Gi", text(d.TargetBytes))
	}
}
