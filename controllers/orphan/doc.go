// Package orphan finds the claims that StatefulSets leave behind, tells of them,
// and retires those that a policy wants gone.
//
// An orphan is a claim that the manager stamped (controllers/stamp) while its set
// lived, and that no set would mount now. Names alone make no orphan, but they
// spare one: the StatefulSet controller goes by names.
//
//	claim                                            is an orphan
//	being deleted, or its namespace is               no
//	annotation holdfast.dev/keep-orphan              no
//	no stamp, or one that does not fit its name      no
//	the set of the stamp lives and has its ordinal   no
//	a set has a Pod that takes it by its name        no: also a set made again, that
//	                                                 has not been stamped yet
//	no policy with orphans is about it               no
//	a Pod names it, whatever the Pod does            no
//	its volume is, or is to be, attached             no
//	a claim is to be made from it, and is not yet    no
//	condition Unused is False                        no
//	else                                             yes
//
// Since when it is one stands in its annotation holdfast.dev/orphaned-since, which
// is written once and taken off when it is none any more.
//
//	an orphan                                        step
//	its set is being made anew (controllers/         none: it is not marked, and where it
//	template has a record of it)                     is, it waits
//	no mark, one that cannot be read, is older       marked: it begins anew
//	than the claim (put back from a backup) or
//	is more than a minute ahead
//	used since the mark                              marked: it begins anew
//	action Report                                    told of
//	younger than afterSeconds, without what the      waits
//	clock leapt over; for Delete: it has not been
//	certain for as long that nobody uses it
//	policies refuse its deletion, with a snapshot    blocked
//	or, for Delete, as it is
//	Delete                                           deleted
//	SnapshotThenDelete
//	  no snapshot                                    one is taken, a minute after it is
//	                                                 certain that nobody uses the claim
//	  none can be taken: no class, opted out, …      blocked
//	  snapshot with an error, or a stranger's        blocked
//	  snapshot not ready                             waits; after a day blocked
//	  snapshot ready, cut before it was certain      blocked
//	  that nobody uses the claim
//	  snapshot ready                                 deleted
//	to be deleted, and this process has not watched  waits
//	it for 10 minutes, or afterSeconds where that is
//	less
//
// Decide is pure, and is asked twice: once by what the informers show, and for
// what it wants deleted once more by what the API server answers: policies, claims,
// records, sets, Pods, attachments and snapshot are read live, and only where the
// answer is the same the claim is deleted, by its UID and resourceVersion.
//
// # Where data can be lost
//
//	branch                                    what keeps the data
//	claim deleted, SnapshotThenDelete         the snapshot, cut after the last use. CSI has
//	                                          volumes go without harm to their snapshots
//	                                          (spec of DeleteVolume)
//	claim deleted, Delete                     nothing but a PersistentVolume that is retained,
//	                                          and the guardrails, which can ask for a snapshot
//	set scaled up between the last read and   Kubernetes lets the Pod that has begun end first,
//	the deletion                              and no other begins; then as above
//	claim used while no manager ran           the condition Unused tells (Kubernetes 1.37 and
//	                                          newer): it begins anew. Before that the
//	                                          snapshot must be younger than this process,
//	                                          and Delete waits afterSeconds from its start
//	a set is made anew, and cannot be made    its record, without which it is never deleted:
//	for longer than afterSeconds              while it is there no claim is touched
//	a policy that keeps claims is not valid   nothing is deleted until it is, or is gone
//	snapshot of a class that deletes          goes with the VolumeSnapshot, as when its
//	                                          namespace is deleted
//	the clock leaps ahead                     the time that went by on a clock that nobody
//	                                          sets, for what this process has watched; for
//	                                          10 minutes the data of a new leader whose clock
//	                                          is ahead, and not for longer
//	a former leader goes on                   the same reads and preconditions; a mark that was
//	                                          written meanwhile changes the resourceVersion
//
//	written, in this order    killed right after it
//	mark                      it is there, and counts
//	snapshot                  the next one finds it by its name, where Kubernetes tells that
//	                          nobody has used the claim meanwhile; else takes another
//	deletion                  nothing is left to do
//
// A sweep takes at most 5 snapshots and deletes at most 5 claims: those first that
// have failed least, then those that were left behind first. What is refused or
// fails is told, and tried again after a minute, then after twice as long, up to an
// hour. What cannot be looked up is left as it was.
package orphan
