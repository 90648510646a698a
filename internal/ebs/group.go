package ebs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// GroupID names the snapshots that were taken together. It is their CSI name:
// whoever knows the one finds the other, in any process.
type GroupID string

// GroupRequest is what a group of snapshots is wanted to be. Name decides identity.
type GroupRequest struct {
	Name string
	// Volumes are those whose snapshots are to be taken at one instant.
	Volumes []VolumeID
	// Tags of each snapshot, among them TagGroupName and TagGroupVolumes.
	Tags map[string]string
	// FastRestoreZones and Lock are as in SnapshotRequest, for each snapshot.
	FastRestoreZones []string
	Lock             *SnapshotLock
}

// GroupVolumes is the value of TagGroupVolumes: it tells whether two groups are
// of the same volumes. The ids themselves would not fit into a tag.
func GroupVolumes(ids []VolumeID) string {
	var all []string
	for _, id := range ids {
		all = append(all, string(id))
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, ",")))
	return hex.EncodeToString(sum[:16])
}

// SnapshotGroup is a group of snapshots as EC2 describes it.
type SnapshotGroup struct {
	ID        GroupID
	Snapshots []Snapshot // by volume
}
