// Package template keeps the volumeClaimTemplates of StatefulSets in step with
// their claims that have grown. The API does not let a template be changed, so
// what becomes of it is up to the policy's expansion.statefulSetTemplate:
//
//	RaiseAtCreate  nothing here: the claim webhook gives a claim of a new replica
//	               the size of its siblings
//	Report         an event on the set that they differ, and a metric
//	Recreate       the set is made anew around its running Pods, as below
//
// A set is made anew only where all of this holds. Each is told where it does not.
//
//	its policy is the one        no policy that cannot be read may say otherwise
//	nobody else keeps the set    no owner, and no mark of Argo CD, Flux, Helm or the
//	                             like; holdfast.dev/allow-recreate with a reason lets
//	                             it be done all the same
//	it has no finalizers         they would hold it up half-way
//	its claims are at one size   bound, and no change of one under way
//	it is stable                 observed, all Pods there, ready, of its newest
//	                             revision and under its control
//	no hash collision was seen   another set would give its Pods another revision
//	dry runs pass                of the deletion and of the creation, and nothing but
//	                             the size differs in what the API server would make
//
// Then, one write at a time. What was done is found in the cluster, and in the
// record: a Secret in the manager's namespace. So whoever leads goes on.
//
//	stage     the set                        next
//	–         as it was                      save it, with the UIDs of its Pods, as Saved
//	Saved     changed by its user            saved again
//	          whenDeleted Delete             set to Retain
//	          a claim names it as its owner  the reference is taken off the claim
//	          else                           the stage is Deleting, then it is deleted
//	                                         with Orphan, by UID and resourceVersion
//	          may not be made anew any more  whenDeleted is put back, the record goes
//	          gone, going, or another        the record goes: its user deleted it
//	Deleting  as it was                      the stage is Saved: the deletion was refused,
//	                                         or never asked for. Refused, it goes as where
//	                                         the set may not be made anew any more
//	          going, with the finalizer      wait: the garbage collector lets go its Pods
//	          orphan
//	          going, without                 the record goes: its user deleted it
//	          gone, and all its Pods still   the record goes: its user deleted it
//	          name an owner
//	          gone                           created with the new sizes and whenDeleted
//	                                         Retain; where that is refused, as it was
//	          another, with our mark         the stage is Created
//	          another, without               the stage is Superseded: it is somebody
//	                                         else's and left alone; the record stays
//	                                         for people, and nothing is done by it
//	Created   Pods are not under its control wait
//	          gone, going, or another        the record goes: its user deleted it
//	          else                           whenDeleted and the owners of its fields are
//	                                         put back, the record goes
//
// No step overwrites a set: it is only created, which fails where there is one of
// its name. A claim can only be deleted with a set that it names as its owner, so
// none may do so when the set goes. A set without which nobody knows what to do is
// made again rather than not: one too many is deleted once more, one too few is an
// outage.
package template
