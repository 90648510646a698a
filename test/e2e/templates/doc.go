// Package templates holds what becomes of a StatefulSet's templates and claims when
// these grow, in a real cluster: claims grow as the set declares, a new replica
// begins at their size, and the set is made anew around its running Pods, with the
// manager killed at each step of it in turn.
//
// It plays examples/26-grown-statefulset. Its tests run in a sandbox: `make test-e2e`.
package templates
