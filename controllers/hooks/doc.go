// Package hooks runs commands in Pods around the cut of copies.
//
// What belongs together is one freeze: the copies of a run whose claims share a
// Pod, so that each Pod is frozen once. A freeze goes through these steps:
//
//	record    what is to be undone is written down, before anything is begun
//	before    the hooks run, in order, Pod by Pod. One that fails ends this step:
//	          onError Fail goes on to undo, Continue to the next hook
//	create    the copies are asked for, marked as Pending, for as long as the Pods
//	          may stay frozen
//	await     until all are cut, or maxFreezeSeconds have passed since the first hook
//	undo      the hooks of after run in each Pod in which one of before was begun, in
//	          all of them at once
//	mark      the copies are marked: Yes where all hooks of before had run, the copy
//	          was made by create and its cut was seen before undo began, else No: one
//	          that was there before, or whose creation had no clear answer
//	erase     the record goes
//
// The record is a ConfigMap in the manager's own namespace. It is not on the
// SnapshotSchedule, which may be deleted in the middle, and not on the Pod: who
// may write to a Pod could have the manager run any command in it.
//
// A manager that begins to lead takes up every record that it finds at undo, in
// all Pods of the freeze. So undo may run where nothing was done, and twice.
//
//	a hook of after                what becomes of it
//	ended with exit code 0         done
//	ended otherwise                tried again, 5 times in all, then given up and told;
//	                               for the first minutes where one of before was not
//	                               waited for any longer, since what it does may come yet
//	could not be begun, or took    tried again for as long as the Pod is there; for
//	longer than timeoutSeconds     the first minutes no other freeze of it is begun
//	its Pod is gone, has ended,    there is nothing left to undo
//	or is another of its name
//
// A container that has restarted since is no other case: the file system that it
// froze may still be frozen.
package hooks
