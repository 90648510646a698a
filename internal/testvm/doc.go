// Package testvm runs a Go test binary as the only program of a small virtual
// machine, with disks that come and go at the test's request.
//
// Tests of block devices want what a build machine does not have: real NVMe
// disks with serial numbers, hot-plug, disks that fail, all rights of root and
// a kernel of their own to crash. The machine is QEMU, by default without KVM,
// so that it runs where virtualization is not to be had; it is up in a few
// seconds. It has no network and no disk but those that a test attaches.
//
//	host (package testvm)                      guest (package testvm/guest)
//	kernel of the distribution, not installed  /init = the test binary itself:
//	initramfs: test binary, tools, modules       as pid 1 it mounts /proc ..., loads
//	                                             modules, runs itself as the tests
//	console, line by line               <───── ttyS0: what the tests print
//	disks by QMP: attach, detach        <────> ttyS1: requests and answers, JSON lines
//
// Needs the programs qemu-system-x86_64 (Debian: qemu-system-x86), and for the
// kernel apt-get, apt-cache and dpkg, which fetch linux-image-cloud-amd64 into
// the cache folder without installing it. HOLDFAST_VM_KERNEL and
// HOLDFAST_VM_MODULES name a kernel image and its folder of modules to be used
// instead; HOLDFAST_VM_ACCEL=kvm uses KVM.
package testvm
