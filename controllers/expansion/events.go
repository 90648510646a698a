package expansion

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Reasons of events on a claim. Where growth is blocked the reason is the condition's.
const (
	eventExpanded = "Expanded"
	eventProposed = "ExpansionProposed"
	eventUnknown  = "UsageUnknown"
)

// maxEventNote is what the API server takes of an event's note, in bytes.
const maxEventNote = 1024

// tellCompleted tells of a growth that is over, not of one that was asked for.
func (g *Grower) tellCompleted(c *guarded, m Modification) {
	g.event(c, corev1.EventTypeNormal, eventExpanded, "Expand to "+text(m.ToBytes), "the claim has grown from "+text(m.FromBytes)+" to "+text(c.claim.CapacityBytes)+" by StoragePolicy "+c.rules.Policy)
}

// tellUnknown tells once why there is no decision.
func (g *Grower) tellUnknown(c *guarded, why string) {
	g.event(c, corev1.EventTypeNormal, eventUnknown, "Look", "StoragePolicy "+c.rules.Policy+" cannot grow the claim by what is used of it: "+why)
}

// tellNotes tells of conditions that are there for the first time, or for another reason.
func (g *Grower) tellNotes(c *guarded, d Decision) {
	if old := conditionOf(c.object, v1alpha1.ConditionExpansionBlocked); d.Blocked != nil && (old == nil || old.Reason != d.Blocked.Reason) {
		if d.Blocked.Reason == v1alpha1.ReasonInfeasible {
			g.metrics.results.WithLabelValues(resultInfeasible).Inc()
		}
		g.event(c, corev1.EventTypeWarning, d.Blocked.Reason, "Block", d.Blocked.Message)
	}
	if old := conditionOf(c.object, v1alpha1.ConditionExpansionProposed); d.Proposed != nil && (old == nil || old.Message != d.Proposed.Message) {
		g.event(c, corev1.EventTypeNormal, eventProposed, "Propose", d.Proposed.Message)
	}
}

// event writes an event on a claim.
func (g *Grower) event(c *guarded, kind, reason, action, note string) {
	g.events.Eventf(c.object, nil, kind, reason, action, "%s", policy.Short(note, maxEventNote))
}
