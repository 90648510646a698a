// Package orphans holds the claims that StatefulSets leave behind, and what else
// is forgotten, in a real cluster: real Pods, a real driver and the manager as it is
// installed. It plays examples/27-orphaned-claims. The tests have the build tag e2e.
package orphans
