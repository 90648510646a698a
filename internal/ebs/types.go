package ebs

import "time"

// VolumeID is EC2's id of a volume, "vol-" and hexadecimal digits.
type VolumeID string

// InstanceID is EC2's id of an instance, "i-" and hexadecimal digits.
type InstanceID string

// SnapshotID is EC2's id of a snapshot, "snap-" and hexadecimal digits.
type SnapshotID string

// GiB is a size in binary gigabytes, EC2's only unit for sizes.
type GiB int32

// Bytes is the size in bytes.
func (g GiB) Bytes() int64 { return int64(g) << 30 }

// VolumeType is the EBS volume type as EC2 spells it.
type VolumeType string

// The volume types of EBS.
const (
	GP3      VolumeType = "gp3"
	GP2      VolumeType = "gp2"
	IO1      VolumeType = "io1"
	IO2      VolumeType = "io2"
	ST1      VolumeType = "st1"
	SC1      VolumeType = "sc1"
	Standard VolumeType = "standard"
)

// Zone names an availability zone by name ("us-east-1a") or by id ("use1-az1").
// A request carries one of them, what EC2 answers carries both.
type Zone struct {
	Name string
	ID   string
}

// VolumeRequest is what a volume is wanted to be. Name decides identity: the
// same name is the same volume.
type VolumeRequest struct {
	Name            string
	Size            GiB // 0: as large as the snapshot or the volume that it is made from
	Type            VolumeType
	IOPS            int32 // 0: EC2's default for the type
	ThroughputMiBps int32 // 0: EC2's default for the type
	Encrypted       bool
	KMSKeyID        string
	// MultiAttach: several instances of the zone may have it at once; io2 only.
	MultiAttach bool
	// Zone is where a new volume is made; the zero value leaves the choice open.
	Zone Zone
	// AllowedZones holds the names (or ids) of the zones in which an existing
	// volume of that name is as good; empty: any.
	AllowedZones []Zone
	// Snapshot or Source is where the content comes from; both are empty for an
	// empty volume, and never both are set.
	Snapshot SnapshotID
	// Source is the volume that is copied. The copy is in its zone, whatever Zone says.
	Source VolumeID
	// InitializationMiBps is the rate at which EC2 fetches a snapshot's content;
	// 0: EC2's default. Without a snapshot it is not asked for.
	InitializationMiBps int32
	Tags                map[string]string
}

// VolumeState is EC2's state of a volume.
type VolumeState string

// The states of a volume.
const (
	VolumeCreating  VolumeState = "creating"
	VolumeAvailable VolumeState = "available"
	VolumeInUse     VolumeState = "in-use"
	VolumeDeleting  VolumeState = "deleting"
	VolumeDeleted   VolumeState = "deleted"
	VolumeError     VolumeState = "error"
)

// Volume is a volume as EC2 describes it.
type Volume struct {
	ID              VolumeID
	Size            GiB
	Type            VolumeType
	IOPS            int32
	ThroughputMiBps int32
	Encrypted       bool
	KMSKeyID        string
	MultiAttach     bool // several instances of the zone may have it at once
	Zone            Zone
	State           VolumeState
	Snapshot        SnapshotID
	Source          VolumeID // of which it is a copy
	Attachments     []Attachment
	Tags            map[string]string
}

// Exists says whether a volume is there to stay: one that is being deleted is not.
func (v Volume) Exists() bool { return v.State != VolumeDeleting && v.State != VolumeDeleted }

// VolumeQuery says which page of the list of volumes is wanted.
type VolumeQuery struct {
	MaxEntries int32  // 0: as many as EC2 gives at once
	Token      string // from the page before
}

// VolumePage is one page of a list of volumes.
type VolumePage struct {
	Volumes   []Volume
	NextToken string // empty: the last page
}

// AttachmentState is EC2's state of an attachment.
type AttachmentState string

// The states of an attachment; one that is gone has none.
const (
	Attaching AttachmentState = "attaching"
	Attached  AttachmentState = "attached"
	Detaching AttachmentState = "detaching"
	Busy      AttachmentState = "busy"
)

// Holds says whether the volume is the instance's to use: until EC2 has detached
// it, it can be nobody else's.
func (s AttachmentState) Holds() bool { return s == Attached || s == Detaching || s == Busy }

// Attachment joins a volume to an instance.
type Attachment struct {
	Volume     VolumeID
	Instance   InstanceID
	DeviceName string // as given to AttachVolume, e.g. "/dev/xvdaa"; not the node's own name of it
	State      AttachmentState
	Since      time.Time
	// Others are the other instances that hold the volume, as Multi-Attach allows.
	Others []InstanceID
}

// SnapshotRequest is what a snapshot is wanted to be. Name decides identity.
type SnapshotRequest struct {
	Name   string
	Volume VolumeID
	Tags   map[string]string
	// FastRestoreZones are the names of the zones in which volumes made from
	// the snapshot are to be fast from the start.
	FastRestoreZones []string
	// Lock keeps the snapshot from being deleted; nil for none.
	Lock *SnapshotLock
}

// SnapshotState is EC2's state of a snapshot.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotPending   SnapshotState = "pending"
	SnapshotCompleted SnapshotState = "completed"
	SnapshotFailed    SnapshotState = "error"
)

// Snapshot is a snapshot as EC2 describes it.
type Snapshot struct {
	ID        SnapshotID
	Volume    VolumeID
	Size      GiB
	State     SnapshotState
	StartTime time.Time
	Tags      map[string]string
}

// SnapshotQuery says which snapshots to list; the zero value means all of the account.
type SnapshotQuery struct {
	ID         SnapshotID
	Volume     VolumeID
	MaxEntries int32  // 0: as many as EC2 gives at once
	Token      string // from the page before
}

// SnapshotPage is one page of a list of snapshots.
type SnapshotPage struct {
	Snapshots []Snapshot
	NextToken string // empty: the last page
}
