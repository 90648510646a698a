// Package sanity runs Kubernetes' csi-sanity, all of it, against the two
// processes of the driver as they are installed, with a simulated EC2 whose
// volumes are real loop devices.
//
// The tests have the build tag "sanity" and need root, HOLDFAST_BIN (the folder
// that "go run ./cmd/sandbox build" prints) and the tools of the node image.
// They run in a mount namespace of their own and leave nothing behind. What is
// skipped, and why, is in skipped.txt.
package sanity
