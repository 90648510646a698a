// Package machine makes the machines of a sandbox out of namespaces of this one.
//
// There are two kinds, both with a first process of their own (package initd):
//
//	top    pid, mount, network, UTS and IPC namespaces. Its network namespace is
//	       the switch that the nodes are plugged into (bridge br0), and it runs the
//	       control plane and the simulated EC2.
//	node   the same and a cgroup namespace, as a child of top: /var/lib, /var/log,
//	       /run, /dev, /proc, /sys and the cgroups are its own, at their usual
//	       places, so that kubelet, containerd and drivers need no special flags.
//
// Nothing is mounted or named in the namespaces of the machine itself: when top
// dies, by whatever signal, the kernel ends every process in its pid namespace,
// the nodes' included, and with the last process of a namespace go its mounts and
// its network links.
//
// A machine is born in two stages, because it has to be put into its cgroup and
// plugged in from outside before it may run:
//
//	parent: clone → write the pid to the cgroups → plug the link in → open the gate
//	child:  wait at the gate → unshare the cgroup namespace → exec itself → set up → serve
//
// A parent that dies before it opens the gate leaves a closed pipe there, and the
// child goes with it.
package machine
