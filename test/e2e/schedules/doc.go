// Package schedules holds SnapshotSchedules in a real cluster: real claims are
// copied by a real driver when they are due, also when the manager dies in the
// middle. The tests have the build tag e2e.
package schedules
