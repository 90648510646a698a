// Package expansion grows claims before they are full, by the expansion of the
// StoragePolicy that they are under: the first that matches, by priority and name.
//
// One replica, the leader, goes round: what the informers hold is read, the nodes
// that have guarded claims are asked how full these are (internal/usage), Decide
// judges each claim, and what differs is written. Decide is pure.
//
//	base       the larger of the claim's request and its capacity
//	limit      the policy's maxSize or the claim's annotation holdfast.dev/max-size,
//	           whichever is less, down to whole GiB
//	target     base + step.percent of it, at least step.min and at most step.max more,
//	           up to whole GiB, and never above limit; the last step may be smaller
//	siblings   a claim of a StatefulSet (by its stamp) goes to the largest capacity of
//	           its template's claims at once, once it is mounted
//
// Of these the first that holds decides:
//
//	not bound, being deleted             nothing
//	record on the claim cannot be read   blocked
//	a resize that is infeasible          once more at half the step, where the step was
//	                                     ours and the driver's controller said no, as far
//	                                     as limit, budget and approval let it; else
//	                                     blocked until size, class or spec change
//	in flight                            nothing: the request is above the capacity,
//	                                     a resize or modify condition is true,
//	                                     allocatedResourceStatuses is set, or an
//	                                     attributes class is asked for that the volume
//	                                     has not, and that is not infeasible
//	no sample, or on no node             nothing: unknown is not zero. Said once
//	a claim of its name was there        nothing: its node may still tell of that one
//	within two minutes
//	max-size that is not valid           blocked
//	no trigger, or not for forSeconds,   nothing
//	and no larger sibling
//	a policy that cannot be read may     blocked
//	be the one that bounds its growth
//	capacity just grown                  nothing until two samples show it
//	class does not let volumes grow      blocked
//	within cooldownSeconds               nothing
//	target is not above base             blocked: at the maximum
//	budget spent                         blocked, with the time when it goes on
//	refused a moment ago                 blocked, with what was said
//	mode Approve, not approved           proposed
//	else                                 grown
//
// The budget counts every change of size or attributes class that is seen on a
// claim, whoever made it. It is kept in the claim's annotation
// holdfast.dev/modifications, which is written in one patch with the size: no crash
// comes between. A change by hand is found by comparing with what was seen last.
//
// Only spec.resources.requests.storage and that annotation are patched, with the
// resourceVersion that was judged; and the conditions holdfast.dev/ExpansionBlocked
// and holdfast.dev/ExpansionProposed of the claim's status, where they differ. No
// data is lost on any branch: volumes never shrink. A request comes down once, for
// a resize that the driver has refused, and never below what the volume has.
package expansion
