// Package policyschedule gives namespaces the SnapshotSchedules of the
// StoragePolicies that they are under, and keeps them in step.
//
//	a schedule of a policy, for each       what becomes of it
//	namespace that the policy matches
//	it is not there                        made, also where somebody deleted it
//	of that name, without our label        a namesake: never touched, told by SchedulesGiven
//	being deleted                          waited for, then made again
//	as the policy has it                   left
//	as we wrote it last, the policy has    written
//	changed
//	edited by somebody since               left alone, told by SchedulesEdited and an event
//	edited, and handed back with the       written
//	annotation holdfast.dev/follow-policy
//	it cannot be given: invalid, no claim  what is there stays as it is, nothing is
//	is of its target and the match         made, told by SchedulesGiven
//
//	a schedule with our label that no      what becomes of it
//	policy gives to its namespace (any more)
//	as we wrote it last                    deleted
//	edited by somebody since               stays: it is its owner's
//	the policy's selectors cannot be read  stays: who is matched is not known
//	its namespace is being deleted         stays: it goes with it
//
// Nothing that happens to a policy deletes a copy of data. A schedule goes
// without its snapshots: they stay, none ages out any more, and a schedule of the
// same name that comes later knows them by their label. To suspend schedules
// instead would go on to delete copies in the name of a policy that is gone, and
// leave objects behind that nobody asked for.
//
// Edits are told by metadata.generation, which the API server raises with each
// change of the spec: what we wrote carries the generation that it made. A hash
// of the spec would take fields that a new version gives a default for edits of
// an owner's. Server-side apply would take an owner's new field, such as suspend,
// for no edit at all, and what tells fields' owners is stripped from the cache.
// So schedules are created, and patched with an optimistic lock.
package policyschedule
