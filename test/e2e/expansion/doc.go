// Package expansion grows claims by policy in a real cluster: a Pod fills its
// volume, kubelet tells, the volume grows under it, EC2 counts the modifications.
// The tests have the build tag e2e.
package expansion
