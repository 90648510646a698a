// Package declared grows the claims of a StatefulSet to the sizes that its
// annotation holdfast.dev/size declares, by template: "data=20Gi,wal=5Gi". It is
// for people who do not want automation, and needs no StoragePolicy; where one is,
// its bounds hold.
//
// Of these the first that holds decides for a template:
//
//	annotation unreadable               blocked: nothing of it is done
//	above the maxSize of the policy     blocked
//	whose expansion the claims are under
//
// and for each of its claims, which are the set's by their stamp and of an ordinal
// that it has:
//
//	being deleted, not bound            left alone
//	asks for that size, or for more,    done: claims never shrink
//	and has it
//	the driver cannot give it that      blocked, until another size is declared: one
//	                                    that is above what the claim has is asked for
//	a change of it is under way         waited for
//	a policy that cannot be read may    blocked
//	be the one that bounds it
//	above the maxSize of its own        blocked
//	policy, by its labels and class
//	its class does not let it grow      blocked
//	its own holdfast.dev/max-size       blocked
//	holds it to less, or is no size
//	the policy's budget is spent, or    blocked until it goes on
//	without one EC2's, for EBS
//	refused a moment ago                blocked, with what was said: a guardrail, a quota
//	else                                asked to grow
//
// All claims of a template go to one size, and one claim's failure does not stop the
// others. Only spec.resources.requests.storage and the record of modifications are
// patched, in one patch and with the resourceVersion that was judged: no data is lost
// on any branch, and no crash keeps the budget from counting the growth, as one by
// hand. What becomes of the template
// is up to the policy (controllers/template). Events on the set tell when growth
// begins, what blocks it, and when it is over; each once.
package declared
