// Command sandbox runs a whole Kubernetes on this machine, in namespaces, with a
// simulated EC2 for its disks: for tests, for a demonstration, and to try things
// by hand. See docs/sandbox.md.
package main
