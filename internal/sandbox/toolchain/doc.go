// Package toolchain builds programs from their pinned Go modules: those that a
// sandbox is made of (control plane, node runtime, CSI sidecars), and Kubernetes'
// end-to-end suite.
//
// The pins are the go.mod and go.sum files below sandbox/ in this repository, one
// module for each group of programs that must agree on their dependencies. The
// results go to a cache folder whose name is a hash of those files, of the build
// flags and of the Go version, so that nothing is built twice and nothing stale is
// used:
//
//	$HOLDFAST_CACHE/bin/<key>/{etcd,kube-apiserver,…}
//	$HOLDFAST_CACHE/bin/<key>/crd/*.yaml     the VolumeSnapshot definitions
//	$HOLDFAST_CACHE/bin/<key of the suite>/{e2e.test,agnhost,ginkgo}
//
// Each program appears there by a rename once it is whole: a build that was
// interrupted goes on where it stopped. Two builders of one key take turns.
package toolchain
