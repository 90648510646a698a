// Package retention decides which copies of a schedule are kept, and deletes the
// others. Every claim is judged by itself, known by its UID: one that was made again under the same
// name is another.
//
//	copy                                              kept
//	held, or the source of a claim that is not Bound  always
//	being made, its deadline ahead                    always
//	ready, claim lives                                among the keepLast newest; newest of one of the
//	                                                  newest hourly, daily, … periods that have a copy;
//	                                                  younger than keepWithinSeconds
//	ready, claim gone, KeepAll                        always
//	ready, claim gone, KeepNewest                     the newest; newest of its period, while that is one of
//	                                                  the last hourly, daily, … ones up to now, since no new
//	                                                  copies push it out; younger than keepWithinSeconds
//	ready, claim gone, Expire                         the same without the newest
//	failed, claim is being deleted                    never: it holds the claim back
//	failed                                            among the failed.keep newest failed ones, and failed
//	                                                  less than failed.deleteAfterSeconds ago
//
// A schedule that is suspended or degraded keeps the keepLast newest ready copies
// of claims that are gone, too. One that cannot be read deletes nothing. Members
// of a group are kept as long as any of them is. A group that was never cut is known
// by the claims that it was asked for, and fails like a copy. A copy that is being deleted is
// not there any more: it stands in for none that is kept.
//
// # Deletion
//
// Informers only say that there may be something to delete. Schedule, snapshots
// and claims are then read from the API server, and what a plan by these wants
// gone is deleted, each by UID and resourceVersion, oldest first, 20 a minute over
// all schedules. A group goes whole, by its VolumeGroupSnapshot,
// and only where neither it nor a member has changed since it was judged. What is refused
// is tried again after a minute, then after twice as long, up to an hour, and the
// condition CopiesOverdue says so; held copies and those in use are told there, too.
//
// A VolumeSnapshotContent with deletionPolicy Retain would outlive its snapshot,
// and its cloud snapshot be paid for ever. So it is marked before the snapshot is
// deleted, and what the mark says is done after the snapshot has gone: until then
// its policy is what it was, and a copy that stays after all has lost nothing.
//
//	written, in this order           killed right after it
//	mark on the content              the next look marks anew and goes on; where the copy is
//	                                 kept, the mark comes off after 10 minutes
//	deletion of the snapshot         the mark is read, and the content goes
//	deletionPolicy Delete            likewise
//	deletion of the content          the snapshotter deletes the cloud snapshot
//
// With contents FollowClass the mark keeps the content, and lets it be counted.
package retention
