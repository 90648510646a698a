// Package nodes shows what the driver does for nodes as they come and go: the
// startup taint, the wait before the driver of a drained node stops, and the
// attachment limit that follows the instance. Its tests change nodes and the
// driver's own Pods, so they run one after the other.
package nodes
