// Package snapshotschedule judges SnapshotSchedules by what the API server
// cannot: the schedule, its time zone, selectors, and the labels and annotations
// of copies.
//
//	created               judged whole
//	updated               judged for the fields that are changed: what was stored
//	                      before stays editable
//	brings hooks          refused unless the install has hooks enabled and the user
//	                      may create pods/exec in the namespace. Another target
//	                      is other Pods, so it counts too
//	being deleted         not judged: finalizers come off
//	cannot be read        refused, since one that is stored would keep the
//	                      manager's informer from all of them
//
// The webhook fails open outside of strict namespaces: a schedule that slipped
// through copies nothing and deletes nothing, and says so in its condition Valid.
// For what brings hooks it fails closed in all namespaces, those of the system
// too: whoever gets one in unasked runs commands in Pods of others. A review of
// access that fails is a refusal for the same reason.
package snapshotschedule
