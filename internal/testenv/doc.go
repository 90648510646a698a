// Package testenv is what tests on a real cluster, the demo and the benchmarks
// start with: a sandbox with Holdfast installed in it from config/, a client
// for its API, and waiting with a deadline that says what it waited for.
package testenv
