// Package foreign holds Holdfast's controllers in a cluster with a driver that is
// not ours: block.example.com has another name, no groups of snapshots, no
// VolumeAttributesClasses, a topology of racks and no zones, and other parameters
// in its classes (driver and testdata here). Beside it are volumes that nobody
// can snapshot, and the snapshot kinds come when all of that has begun. The tests
// have the build tag e2e.
package foreign
