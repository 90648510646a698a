// Package node tests the node half of the driver on real NVMe disks, in a
// virtual machine (build tag vm; see package testvm for what it needs). The
// tests themselves are in package guest below.
package node
