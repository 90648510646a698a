package expansion

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/usage"
)

// Bounds of what samples tell.
const (
	// freshSamples is how many samples have to show the new capacity before the
	// next decision: one could have been taken while the filesystem grew.
	freshSamples = 2
	// staleAfter is how long a trigger is believed to hold between two samples, besides
	// the time that is always between them.
	staleAfter = 10 * time.Minute
	// shownWithin is how long a new capacity may go unshown before that is said.
	shownWithin = 15 * time.Minute
	// answerWithin is how long the resizer has to say anew what it makes of a
	// request that was changed.
	answerWithin = 2 * time.Minute
	// refusedFor is how long a patch that was refused is not tried again.
	refusedFor = 10 * time.Minute
)

// Claim is what Decide looks at of a claim.
type Claim struct {
	// Ready: it is bound, and not being deleted.
	Ready bool
	// Block: its volume has no filesystem that could be looked at.
	Block bool
	// Mounted: a node has its volume.
	Mounted bool
	// Successor: it has the name of a claim that was there a moment ago, and its node
	// may still tell of that one.
	Successor bool
	// RequestBytes is what it asks for, CapacityBytes what it has.
	RequestBytes, CapacityBytes int64
	// Class is the attributes class that it asks for, CurrentClass the one it has.
	Class, CurrentClass string
	// InFlight: a resize or a change of attributes is under way.
	InFlight bool
	// Modifying: one of attributes is.
	Modifying bool
	// Infeasible says who found its resize impossible.
	Infeasible Infeasible
	// ClassName is its StorageClass; ClassGone: there is none of the name; Expandable:
	// that lets volumes grow.
	ClassName  string
	ClassGone  bool
	Expandable bool
	// SiblingBytes is the largest capacity among the claims of its set's template.
	SiblingBytes int64
	// MaxSize and Approved are the annotations; empty: not there.
	MaxSize, Approved string
	// Doubt says which policy that cannot be read may have another say; empty: none.
	Doubt string
	// Record is what is kept on it; nil: nothing yet. BadRecord is why it cannot be read.
	Record    *Record
	BadRecord error
}

// Infeasible says who found a resize impossible.
type Infeasible string

// Who found it.
const (
	Feasible             Infeasible = ""
	ControllerInfeasible Infeasible = "the driver's controller"
	NodeInfeasible       Infeasible = "the driver's node"
)

// History is what is remembered of a claim between two looks, and lost with the
// process: a trigger's time begins anew, and so do the samples.
type History struct {
	// Seen: RequestBytes and Class are those of the last look.
	Seen         bool
	RequestBytes int64
	Class        string
	// Pressing is since when a trigger holds; zero: none does.
	Pressing time.Time
	// Sample is the newest one.
	Sample usage.Sample
	// Fresh is how many samples have shown the capacity since it grew.
	Fresh int
	// Refusal is the last patch that was refused.
	Refusal Refusal
}

// Refusal is a patch that somebody refused: a guardrail, a quota.
type Refusal struct {
	TargetBytes int64
	At          time.Time
	Message     string
}

// Note is a condition that a claim is to carry.
type Note struct{ Reason, Message string }

// Decision is what follows for one claim.
type Decision struct {
	// TargetBytes is the size to ask for; 0: leave it.
	TargetBytes int64
	// Record is what is to be on the claim; nil: nothing has to be.
	Record *Record
	// Completed are the growths by the policy that are over as of now.
	Completed []Modification
	// Blocked and Proposed are the conditions; nil: the claim has none.
	Blocked, Proposed *Note
	// Keep leaves the conditions as they are: there is nothing to judge by.
	Keep bool
	// Unknown is why there is no decision, to be said once; empty: there is one.
	Unknown string
	// AtMax: the claim can grow no further.
	AtMax bool
	// BudgetLeft is how many modifications the budget leaves; -1: there is none.
	BudgetLeft int
	// History is what to remember.
	History History
}

// Decide says what one claim is due. sample is nil where no source tells of it.
func Decide(now time.Time, r Rules, c Claim, sample *usage.Sample, h History) Decision {
	d := Decision{History: h, BudgetLeft: -1}
	if !c.Ready {
		d.History = History{}
		return d
	}
	if c.BadRecord != nil {
		d.Blocked = &Note{v1alpha1.ReasonRecordUnreadable, c.BadRecord.Error()}
		return d
	}
	if !c.Mounted || c.Block || c.Successor { // whoever tells of it tells of another time, or another volume
		sample = nil
	}
	now = stamped(now)
	d.Record = seen(now, c, &d.History).until(now).measured(h.Sample)
	if !c.InFlight && c.Infeasible == Feasible && d.Record.open() {
		d.Record, d.Completed = d.Record.done(now)
		d.History.Fresh = 0
	}
	if r.Budget > 0 {
		d.BudgetLeft = max(r.Budget-len(d.Record.within(r.Window, now)), 0)
	}
	limit, invalid := limitOf(r, c)
	base := max(c.RequestBytes, c.CapacityBytes)
	d.AtMax = base >= floor(limit)
	d.History.look(r, d.Record, sample)
	switch {
	case c.Infeasible != Feasible:
		return d.infeasible(now, r, c, limit, invalid)
	case c.InFlight:
		return d
	case sample == nil:
		return d.unknown(c)
	case invalid != nil:
		d.Blocked = invalid
		return d
	}
	d.Unknown = r.untold(*sample)
	follows := min(c.SiblingBytes, floor(limit)) > base
	if !follows && (d.History.Pressing.IsZero() || now.Sub(d.History.Pressing) < r.For) {
		return d
	}
	return d.grow(now, r, c, base, limit, *sample, follows)
}

// stamped is a time as it is kept: in whole seconds, and not before it.
func stamped(now time.Time) time.Time {
	return now.UTC().Add(time.Second - 1).Truncate(time.Second)
}

// seen is the record with the changes since the last look, by whomever.
func seen(now time.Time, c Claim, h *History) *Record {
	record := c.Record
	was := *h
	switch {
	case record != nil:
		was.RequestBytes, was.Class = record.RequestBytes, record.Class
	case !h.Seen && c.InFlight: // at first sight: what is pending
		was.RequestBytes, was.Class = min(c.RequestBytes, c.CapacityBytes), c.CurrentClass
	case !h.Seen:
		was.RequestBytes, was.Class = c.RequestBytes, c.Class
	}
	// A change that is found now is found again until its record is on the claim.
	h.Seen, h.RequestBytes, h.Class = true, was.RequestBytes, was.Class
	if c.RequestBytes != was.RequestBytes {
		from := c.CapacityBytes
		if from >= c.RequestBytes { // it has grown already
			from = was.RequestBytes
		}
		record = record.with(Modification{At: now, FromBytes: from, ToBytes: c.RequestBytes, FilesystemBytes: h.Sample.Bytes.Total}, c.RequestBytes, c.Class)
	}
	if c.Class != was.Class {
		record = record.with(Modification{At: now}, c.RequestBytes, c.Class)
	}
	return record
}

// limitOf is how far a claim may grow.
func limitOf(r Rules, c Claim) (limit int64, invalid *Note) {
	if c.MaxSize == "" {
		return r.MaxBytes, nil
	}
	asked, err := resource.ParseQuantity(c.MaxSize)
	switch {
	case err != nil:
		return r.MaxBytes, &Note{v1alpha1.ReasonInvalidMaxSize, fmt.Sprintf("the claim's annotation %s is %q, want a size such as 50Gi: %v; the claim does not grow until it is put right", v1alpha1.AnnotationMaxSize, c.MaxSize, err)}
	case asked.Sign() <= 0 || bytesOf(&asked) > r.MaxBytes:
		return r.MaxBytes, &Note{v1alpha1.ReasonInvalidMaxSize, fmt.Sprintf("the claim's annotation %s is %s, want a size above 0 and at most the maxSize %s of StoragePolicy %q; the claim does not grow until it is put right", v1alpha1.AnnotationMaxSize, c.MaxSize, text(r.MaxBytes), r.Policy)}
	}
	return bytesOf(&asked), nil
}

// look takes a sample in.
func (h *History) look(r Rules, record *Record, sample *usage.Sample) {
	if sample == nil || sample.At.Equal(h.Sample.At) {
		return
	}
	if since := sample.At.Sub(h.Sample.At); since > staleAfter+r.Between || since < 0 { // the clock went back
		h.Pressing = time.Time{} // what was in between is not known
	}
	h.Sample = *sample
	switch m := record.newestSize(); {
	case m == nil:
		h.Fresh = freshSamples
	case m.Done == nil:
		h.Fresh = 0
	case sample.At.After(*m.Done) && m.shownBy(sample.Bytes.Total):
		h.Fresh++
	}
	switch pressing := r.presses(*sample); {
	case !pressing:
		h.Pressing = time.Time{}
	case h.Pressing.IsZero():
		h.Pressing = sample.At
	}
}

// shownBy says whether a filesystem of that size has taken the modification in.
// It is smaller than its volume, by how much only the filesystem knows: what is
// compared with is its size before. Where that is not known nothing can be asked.
func (m *Modification) shownBy(filesystemBytes int64) bool {
	return m.FilesystemBytes == 0 || filesystemBytes > m.FromBytes || filesystemBytes >= m.FilesystemBytes+(m.ToBytes-m.FromBytes)/2
}

// presses says whether a trigger holds.
func (r Rules) presses(s usage.Sample) bool {
	if used, known := s.Bytes.UsedPercent(); known && (r.UsedPercent > 0 && used >= float64(r.UsedPercent) || s.Bytes.Free < r.FreeBytes) {
		return true
	}
	used, known := s.Inodes.UsedPercent()
	return known && r.InodesUsedPercent > 0 && used >= float64(r.InodesUsedPercent)
}

// urgent says whether the budget's reserve may be used.
func urgent(s usage.Sample) bool {
	bytes, _ := s.Bytes.UsedPercent()
	inodes, _ := s.Inodes.UsedPercent()
	return max(bytes, inodes) > urgentPercent
}

// untold is what the policy asks for and the sample does not tell; empty: nothing.
func (r Rules) untold(s usage.Sample) string {
	switch {
	case !s.Bytes.Known() && (r.UsedPercent > 0 || r.FreeBytes > 0):
		return "its filesystem does not tell how many bytes it has free: usedPercent and freeBytes decide nothing"
	case !s.Inodes.Known() && r.InodesUsedPercent > 0:
		return "its filesystem does not tell how many inodes it has: inodesUsedPercent decides nothing"
	}
	return ""
}

// unknown is the decision where there is no sample: none.
func (d Decision) unknown(c Claim) Decision {
	d.Keep = true
	switch {
	case c.Block:
		d.Unknown = "it is a raw block volume: what is used of it only its owner knows"
	case !c.Mounted:
		d.Unknown = "its volume is on no node: how full it is cannot be seen"
	case c.Successor: // soon it is known: nothing to tell
	default:
		d.Unknown = "its node does not tell how full it is"
	}
	return d
}

// infeasible is the decision about a resize that the driver says cannot be. The
// second try keeps to all that holds now: what held when the first one was asked
// for may hold no longer.
func (d Decision) infeasible(now time.Time, r Rules, c Claim, limit int64, invalid *Note) Decision {
	if c.Modifying {
		d.Keep = true
		return d
	}
	m := d.Record.newestSize()
	half := int64(0)
	if m != nil && m.Ours && !m.Retry && c.Infeasible == ControllerInfeasible && c.RequestBytes == m.ToBytes {
		half = min(ceil(c.CapacityBytes+(c.RequestBytes-c.CapacityBytes)/2), floor(limit))
	}
	if half > c.CapacityBytes && half < c.RequestBytes {
		if d.Blocked = doubtful(c); d.Blocked == nil {
			d.Blocked = invalid
		}
		if d.Blocked != nil {
			return d
		}
		if d.Blocked = d.spent(now, r, false); d.Blocked != nil {
			return d
		}
		if d.Blocked = d.refused(now, half); d.Blocked != nil {
			return d
		}
		if r.Approve && approvedOf(c) < half { // the approval of a step is one of half of it
			d.Proposed = &Note{v1alpha1.ReasonAwaitsApproval, fmt.Sprintf("%s says that the volume cannot grow from %s to %s, and StoragePolicy %q proposes to try %s: approve it with the annotation %s",
				c.Infeasible, text(c.CapacityBytes), text(c.RequestBytes), r.Policy, text(half), approval(c, half))}
			return d
		}
		d.TargetBytes = half
		d.Record = d.Record.with(Modification{At: now, FromBytes: c.CapacityBytes, ToBytes: half, FilesystemBytes: m.FilesystemBytes, Ours: true, Retry: true}, half, c.Class)
		return d
	}
	if m != nil && now.Sub(m.At) < answerWithin { // what is said may be about the request before
		d.Keep = true
		return d
	}
	d.Blocked = &Note{v1alpha1.ReasonInfeasible, fmt.Sprintf("%s says that the volume cannot grow from %s to %s (see the claim's events): nothing more is tried until the claim's size or class changes",
		c.Infeasible, text(c.CapacityBytes), text(c.RequestBytes))}
	return d
}

// grow is the decision about a claim that is to grow.
func (d Decision) grow(now time.Time, r Rules, c Claim, base, limit int64, s usage.Sample, follows bool) Decision {
	target := min(c.SiblingBytes, floor(limit))
	why := fmt.Sprintf("the largest claim of its StatefulSet's template has %s", text(c.SiblingBytes))
	if !follows {
		target = r.next(base, limit)
		why = "the policy's trigger holds"
	}
	m := d.Record.newestSize()
	if d.Blocked = doubtful(c); d.Blocked != nil {
		return d
	}
	switch {
	case c.ClassGone:
		d.Blocked = &Note{v1alpha1.ReasonClassForbids, fmt.Sprintf("StorageClass %q is not there, and Kubernetes lets no volume grow without its class: make it again, with allowVolumeExpansion true", c.ClassName)}
		if c.ClassName == "" {
			d.Blocked.Message = "the claim has no StorageClass, and Kubernetes lets no volume grow without one: it can only grow as a claim that is made anew, of a class"
		}
		return d
	case !c.Expandable:
		d.Blocked = &Note{v1alpha1.ReasonClassForbids, fmt.Sprintf("StorageClass %q does not let volumes grow: set its allowVolumeExpansion to true if the driver can", c.ClassName)}
		return d
	case d.History.Fresh < freshSamples:
		if m != nil && m.Done != nil && now.Sub(*m.Done) > shownWithin && !m.shownBy(s.Bytes.Total) {
			d.Blocked = &Note{v1alpha1.ReasonCapacityNotShown, fmt.Sprintf("the claim has %s since %s, and its filesystem still does not show it: see the events of its Pod for why it has not grown", text(c.CapacityBytes), m.Done.Format(time.RFC3339))}
		}
		return d
	case m != nil && m.Done != nil && now.Sub(*m.Done) < r.Cooldown:
		return d
	case target <= base:
		from := fmt.Sprintf("the maxSize of StoragePolicy %q", r.Policy)
		if limit < r.MaxBytes {
			from = "the claim's annotation " + v1alpha1.AnnotationMaxSize
		}
		d.Blocked = &Note{v1alpha1.ReasonAtMaximum, fmt.Sprintf("the claim has %s, and %s is %s: raise it, or make room in the volume", text(base), from, text(limit))}
		return d
	}
	if d.Blocked = d.spent(now, r, urgent(s)); d.Blocked != nil {
		return d
	}
	if d.Blocked = d.refused(now, target); d.Blocked != nil {
		return d
	}
	if r.Approve && approvedOf(c) != target {
		d.Proposed = &Note{v1alpha1.ReasonAwaitsApproval, fmt.Sprintf("StoragePolicy %q proposes to grow the claim from %s to %s, since %s: approve it with the annotation %s", r.Policy, text(base), text(target), why, approval(c, target))}
		return d
	}
	d.TargetBytes = target
	d.Record = d.Record.with(Modification{At: now, FromBytes: c.CapacityBytes, ToBytes: target, FilesystemBytes: s.Bytes.Total, Ours: true}, target, c.Class)
	return d
}

// doubtful says that nobody knows by which rules the claim is to grow.
func doubtful(c Claim) *Note {
	if c.Doubt == "" {
		return nil
	}
	return &Note{v1alpha1.ReasonInvalidPolicy, "the claim does not grow: " + c.Doubt}
}

// approval is the annotation that approves a size, and what it says instead.
func approval(c Claim, bytes int64) string {
	wanted := v1alpha1.AnnotationApproveSize + "=" + text(bytes)
	if c.Approved == "" {
		return wanted
	}
	return fmt.Sprintf("%s, which is %q now", wanted, c.Approved)
}

// approvedOf is the size that somebody approves; 0: none.
func approvedOf(c Claim) int64 {
	size, err := resource.ParseQuantity(c.Approved)
	if err != nil {
		return 0
	}
	return bytesOf(&size)
}

// spent says that the budget leaves no modification now, and when it does again.
func (d Decision) spent(now time.Time, r Rules, urgent bool) *Note {
	if r.Budget == 0 {
		return nil
	}
	allowed, kept := r.Budget, ""
	if !urgent && r.Reserve > 0 {
		allowed -= r.Reserve
		kept = fmt.Sprintf(", %d of them kept for volumes above %d %% used", r.Reserve, urgentPercent)
	}
	times := d.Record.within(r.Window, now)
	if len(times) < allowed {
		return nil
	}
	if allowed == 0 {
		return &Note{v1alpha1.ReasonBudgetSpent, fmt.Sprintf("the budget of StoragePolicy %q is %d modifications in %d s%s: the claim grows when it is as full as that", r.Policy, r.Budget, int(r.Window.Seconds()), kept)}
	}
	budget := fmt.Sprintf("the budget of StoragePolicy %q is %d%s", r.Policy, r.Budget, kept)
	if r.Policy == "" {
		budget = fmt.Sprintf("EC2 takes no more than %d", r.Budget)
	}
	again := times[len(times)-allowed].Add(r.Window)
	return &Note{v1alpha1.ReasonBudgetSpent, fmt.Sprintf("%d modifications of the volume within %d s, and %s: growth goes on at %s",
		len(times), int(r.Window.Seconds()), budget, again.UTC().Format(time.RFC3339))}
}

// refused says that the same patch was refused a moment ago.
func (d Decision) refused(now time.Time, target int64) *Note {
	if r := d.History.Refusal; r.TargetBytes == target && now.Sub(r.At) < refusedFor {
		return &Note{v1alpha1.ReasonRefused, fmt.Sprintf("growing the claim to %s was refused: %s", text(target), r.Message)}
	}
	return nil
}
