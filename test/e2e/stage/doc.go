// Package stage is what the e2e tests stand on: the shared sandbox cluster, a
// namespace of its own for each test, EC2 as an operator sees it, the
// simulator's control API, and the question that ends every test: did anything
// leak?
//
// The cluster is the one that HOLDFAST_SANDBOX names; `make test-e2e` brings
// it up, runs every package of test/e2e in it and takes it down.
package stage
