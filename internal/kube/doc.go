// Package kube does what the driver's own processes need of Kubernetes, so that
// package driver need not know its kinds:
//
//   - the controller half takes the startup taint from nodes on which the driver
//     is registered, and tells by event where EC2's attachment limit of an
//     instance type differs from the table that node processes use (Chores);
//   - the node half reads its own Node where the instance metadata service does
//     not answer (NodeMetadata), and waits before it stops until the volumes of a
//     node that is being drained are detached (PreStop). It writes nothing.
//
// It talks to the API server through client-go's REST client about four kinds
// alone, and keeps of each object the few fields that it reads: the clientset of
// all kinds, and whole Nodes in a cache, would be most of the process's memory.
package kube
