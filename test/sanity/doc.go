// Package sanity runs Kubernetes' csi-sanity, all of it, against the two
// processes of the driver as they are installed, with a simulated EC2 whose
// volumes are real loop devices.
//
// The tests have the build tag "sanity" and need root, HOLDFAST_BIN (the folder
// that "go run ./cmd/sandbox build" prints) and the tools of the node image.
// They run in a mount namespace of their own and leave nothing behind. What is
// skipped, and why, is in skipped.txt.
//
// All of it runs again in each kind of trouble that EC2 makes: it throttles, it
// shows changes late, it takes its time, it fails. csi-sanity repeats nothing,
// so what the driver does not overcome within one request shows here; answers
// that get lost, which are for the sidecars to repeat, are test/crash's.
package sanity
