package schedule

import "time"

// Limits bound how many copies are asked for at once.
type Limits struct {
	// Cluster and Class bound the copies that are asked for and not cut yet, in
	// the cluster and of one VolumeSnapshotClass.
	Cluster, Class int
	// Volume bounds, by driver, what is asked of one volume.
	Volume map[string]VolumeLimit
}

// VolumeLimit bounds what is asked of one volume.
type VolumeLimit struct {
	// Every is the shortest time between two copies.
	Every time.Duration
	// Pending is how many copies may be in the making.
	Pending int
}

// DefaultLimits are what drivers can take. The external snapshotter cuts ten at once, so more than these in
// its queue would not be cut sooner. EBS begins one snapshot of a volume in 15
// seconds, and holds five in the making
// (https://docs.aws.amazon.com/ebs/latest/APIReference/API_CreateSnapshot.html,
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-resource-quotas.html).
func DefaultLimits() Limits {
	return Limits{Cluster: 200, Class: 100, Volume: map[string]VolumeLimit{
		"ebs.csi.aws.com": {Every: 15 * time.Second, Pending: 5},
	}}
}

// Load is what is in the making already, by whichever schedule.
type Load struct {
	Cluster int
	Class   map[string]int
}

// VolumeLoad is what is in the making of one claim, by whichever schedule.
type VolumeLoad struct {
	// Pending copies are not ready, and their deadline is ahead.
	Pending int
	// LastAsked is when the newest copy was asked for; zero: there is none.
	LastAsked time.Time
}
