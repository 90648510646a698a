// Package certs makes and rotates the certificates of Holdfast's webhooks, and
// tells the API server whom to trust. No request may fail for a certificate
// during a change, so nothing is replaced before everybody trusts what comes:
//
//	state                                     step
//	no usable certificate                     make a CA and a serving certificate; who was
//	                                          trusted before is so for a while still
//	CA past two thirds of its life, or        add the next CA to those trusted
//	 a rotation is asked for
//	next CA trusted for a while               serve a certificate of the next CA
//	serving certificate past two thirds,      issue another from the same CA
//	 or for other names
//	a CA that signs nothing any more, for     trust it no longer
//	 a while
//
// All of it is in one Secret, so a crash between two steps loses nothing: the
// next look goes on from what the Secret says. Every replica serves what the
// Secret says; one of them, the leader, changes it, but for the first step, which
// any replica takes that finds nothing to serve: no certificate, one without its
// key, or one that has ended. One that is not yet valid it leaves alone, for its
// own clock may be behind. "A while" is longer than an API server and a replica
// take to see a change.
//
// cert-manager can do this instead (config/components/cert-manager): then the
// manager is told of the mounted folder and this package is not used.
package certs
