// Command conformance runs Kubernetes' own end-to-end suite for external storage
// drivers against Holdfast, in the sandbox that HOLDFAST_SANDBOX names.
//
// The suite is e2e.test of the Kubernetes version that sandbox/e2e pins, unchanged;
// ginkgo runs its specs side by side. What it is told of the driver is in
// manifests/: volumes of one writer, io2 volumes of many, and groups of volumes.
//
// The suite skips in silence what a manifest does not claim, misspells or has not
// heard of. So what has to run is written down, and a run is held to it both ways:
//
//	specs.txt     the specs that run, one a line
//	reasons.yaml  the specs that do not, and why
//
// The last line of a run is "conformance: N passed, M failed, K skipped". The exit
// code is not 0 if a spec failed, if one of specs.txt did not run, if one ran that
// is not there, if one was skipped without a reason, or if a reason is not needed
// any more.
package main
