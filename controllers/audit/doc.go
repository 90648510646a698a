// Package audit judges what exists already by the rules of admission, and
// writes what it found into the status of each StoragePolicy.
//
//	condition           True when
//	Ready               the policy's selectors can be read and a scan has been made
//	Conflicting         another policy of the same priority gives the same claims
//	                    another default class, or the rules of two policies
//	                    cannot both be kept by a claim that is under both
//	DefaultShadowed     a class is marked as the cluster's default, so that the
//	                    policy's default class is never given
//	ExemptionsCurrent   none of the exemptions has ended
//
// A scan reads informers only. It runs once a minute at most, so that a burst of
// changes costs one, and writes only what differs.
package audit
