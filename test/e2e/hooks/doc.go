// Package hooks has commands run in real Pods around the cut of real copies, also
// where they fail, hang, or the manager dies between them. The tests have the
// build tag e2e.
package hooks
