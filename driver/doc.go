// Package driver holds the gRPC services of the Container Storage Interface
// for Amazon EBS: identity, controller and node, and the server they run in.
//
// It knows CSI and Holdfast's own words for the cloud (package internal/ebs),
// and neither Kubernetes kinds nor the EC2 API. Each RPC is three steps: parse
// the request, do it, answer. What crosses all of them are interceptors of the
// server: one log line per request without its secrets, a panic turned into
// INTERNAL, and a lock per volume that answers ABORTED when a call for the same
// volume is still under way.
//
// The controller service of this package remembers nothing: a repeated request
// finds what earlier ones did in EC2, by client token and tags, so it may be
// answered by another process.
//
// # gRPC codes
//
// One table (errors.go) turns errors into codes. What the sidecars do with a
// code decides which it is: csi-provisioner keeps a volume that may exist only
// on CANCELED, DEADLINE_EXCEEDED, UNAVAILABLE and ABORTED; csi-resizer takes
// INVALID_ARGUMENT, OUT_OF_RANGE and NOT_FOUND for "can never work". Hence once
// a call that changes EC2 may have been accepted, the answer is ABORTED.
package driver
