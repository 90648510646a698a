// Package schedule decides which copies a SnapshotSchedule is due.
//
// A run is known by its slot: the instant, in UTC, at which the schedule is due.
// The name of a claim's copy follows from claim, schedule and slot, so whoever
// looks, however often and after whatever crash, asks for the same object.
//
//	activeSince      moves at creation and at each change of schedule, timeZone
//	                 or suspend, seen by a hash in status; nothing before it is due
//	a run begins     when it is the newest one due after activeSince and after
//	                 lastScheduleTime; older ones of which there is no copy were missed
//	a run is over    when each claim has its copy, or had its time. Then it becomes
//	                 lastScheduleTime. One of which there is no copy was missed
//	the clock goes   nothing is due until it passes lastScheduleTime again
//	back
//
//	a claim's copy   is asked for at slot + jitter, and until startingDeadlineSeconds
//	of a run         later, as soon as
//	                   concurrencyPolicy Forbid: no copy of the claim is being made
//	                   the caps of cluster, class and volume leave room
//	                   it was not refused a moment ago: 5 seconds to 5 minutes
//	not asked for    the claim was made after the slot
//	                 catchUp None: nobody looked within a minute of its time
//
// With consistency Group or BestEffortGroup claims that a running Pod mounts are
// one unit: they have one place in the jitter, wait for each other, and are asked
// for together, as one VolumeGroupSnapshot or as a series. Pods are listed while
// such a run is due, and at no other time. A group is made in this order:
//
//	written, in this order            killed right after it
//	a label on each of its claims,    the next look writes them again; or, where the
//	 with a key of the group's own     group is not asked for any more, takes them off
//	the VolumeGroupSnapshot,          it has the same name for the same claims
//	 with the claims and their UIDs
//	(the snapshot-controller picks    the labels go, whoever looks
//	 the claims, the driver cuts,
//	 members are made)
//	marks on the members              each look marks what is not marked
//
// As long as a member is not there, or has no marks, the group itself stands for
// the copy of the claim: so a claim has one copy of a run, and a group that is
// never cut fails as a copy does.
//
// A run by hand (annotation holdfast.dev/run-now) differs: it is due at once and
// for all claims, also while the schedule is suspended, and has no deadline.
//
// Decide and Report are pure; the Reconciler does the rest. It plans one schedule
// at a time, and books what it plans before it is created, so that the caps hold
// though informers lag. Bookings and refusals are lost with the process; names of
// copies are not, so all that costs is to ask for one twice.
//
// What is written of a run, besides its copies, does not grow with its claims:
//
//	copies were asked for        the status says so at once, without waiting for the
//	                             informers to show them
//	its claims wait, its copies  that is progress, and written after a minute
//	become ready
//	something else, or none is   at once, with the progress
//	in the making any more
//
//	spec cannot be acted on    Valid=False; nothing until the spec changes
//	namespace or schedule      nothing is created, nothing is written
//	is being deleted
//	no snapshot kinds          Ready=False; goes on when they come
//	Group, no kinds of groups  the same
//	creation is refused        the claim's entry in status, the others go on
//	a stranger has the name    the same; the stranger is left alone
//	the status has changed     nothing is written; looked at again in a second
package schedule
