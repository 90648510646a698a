// Package sandbox runs a whole Kubernetes on this machine: the real control plane,
// and nodes with a kubelet, containerd, network and mounts of their own, in
// namespaces; and a simulated EC2 that attaches disks to them.
//
//	s, err := sandbox.Start(ctx, sandbox.Options{Out: os.Stderr})
//	defer s.Down(context.Background())
//	out, err := s.Kubectl(ctx, "get", "nodes")
//
// What it looks like:
//
//	machine ─┬─ your process      127.0.0.1:<port> → API server, 127.0.0.1:<port> → EC2
//	         └─ top               bridge br0 10.200.0.1, 169.254.169.254 (instance metadata)
//	             ├─ etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
//	             │  snapshot-controller, ec2sim, forwarder
//	             ├─ node-a1       10.200.0.11, Pods 10.201.1.0/24, us-east-1a
//	             ├─ node-a2       10.200.0.12, Pods 10.201.2.0/24, us-east-1a
//	             └─ node-b1       10.200.0.13, Pods 10.201.3.0/24, us-east-1b
//	                  containerd, kubelet, kube-proxy, Pods
//
// All state is in one folder, a log file for each process included. Down needs
// neither that folder's contents nor anything that runs: processes are found by
// their cgroup, loop devices by their backing file, and everything else belongs to
// namespaces that die with the processes. So it also cleans up after a kill -9 of
// any of them, or of all.
//
// Needs: Linux, root, runc, the CNI plugins, nft, and the tools kubelet and drivers
// call (mount, mkfs, …). Start names the packages of those that are missing.
//
// What it is not: the nodes share the machine's kernel, CPUs, memory and file
// system outside the folders that they have of their own (machine.Shadowed); Pods
// reach nothing outside; service names do not resolve in Pods (no DNS add-on).
package sandbox
