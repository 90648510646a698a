// Package audit judges what exists already by the rules of admission, and
// writes what it found into the status of each StoragePolicy.
//
//	condition           True when
//	Ready               the policy's selectors can be read and a scan has been made
//	Conflicting         another policy of the same priority gives the same claims
//	                    another default class or says otherwise of orphans, or
//	                    the rules of two policies cannot both be kept by a claim
//	                    that is under both
//	DefaultShadowed     a class is marked as the cluster's default, so that the
//	                    policy's default class is never given
//	ExemptionsCurrent   none of the exemptions has ended
//
// Claims that were left behind are listed as controllers/orphan has marked them,
// with what it says of each: it writes no status itself.
//
// A scan reads informers only. It runs once a minute, and three seconds after the
// spec of a policy changes, so that a burst of changes costs one. A status is
// written only where it differs, and at most once a minute while the spec of its
// policy stays as it is.
package audit
