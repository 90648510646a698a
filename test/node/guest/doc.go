// Package guest holds the node service's tests on real NVMe disks. It is
// compiled into the test binary that runs inside the machine of package
// testvm; package test/node starts it from outside (build tag vm).
package guest
