// Package cgroup puts the processes of a sandbox into control groups of their
// own, finds them there again, and removes the groups.
//
// A sandbox owns one folder, named after it, in every hierarchy of the machine:
//
//	/sys/fs/cgroup/<controller>/<sandbox>/{top,<node>}   cgroup v1 and hybrid
//	/sys/fs/cgroup/<sandbox>/{top,<node>}                cgroup v2
//
// Every process of the sandbox is in it before it runs a line of the sandbox's
// own code, and what it starts is born there. The folder is therefore an index
// of the sandbox's processes that needs no state file and survives the death of
// whoever wrote it: Processes reads it, Kill empties it, Remove deletes it.
//
// On cgroup v2 processes may live only in leaves once controllers are handed
// down (https://docs.kernel.org/admin-guide/cgroup-v2.html, "No Internal Process
// Constraint"); PrepareV2Node makes such a leaf inside a node.
package cgroup
