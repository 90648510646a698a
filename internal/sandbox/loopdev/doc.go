// Package loopdev finds and frees the loop devices that belong to a folder: those
// whose backing file lies in it, and those on top of such a device (kubelet puts
// one on every raw block volume).
//
// Loop devices belong to the whole machine and outlive the namespaces of who made
// them. Their name for the backing file is of no use: the kernel shows the path
// as the one who attached it saw it. So a file is known by its device and inode
// numbers.
package loopdev
