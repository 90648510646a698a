// Package policy makes StoragePolicies ready to judge with, and says which of
// them an object is under and what follows from a rule that does not hold. It
// decides and does no more: no client, no clock, no cache. The rules
// themselves are in the packages of webhooks, one a kind.
//
//	object         is under a policy when all of this holds that the policy names
//	claim          namespace labels · claim labels · class name · provisioner
//	StorageClass   its name · its provisioner; and the policy has neither a
//	               namespaceSelector nor a claimSelector
//	StatefulSet    namespace labels · and for one template: labels · class · provisioner
//	snapshot       namespace labels · and for its source: labels · class · provisioner
//	namespace      its labels; the claims in it decide the rest
//
// System namespaces are under no policy.
package policy
