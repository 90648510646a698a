package ec2sim

import (
	"maps"
	"slices"
	"time"
)

// The states of volumes, attachments, modifications, snapshots and instances,
// spelled as EC2 spells them.
const (
	stateCreating  = "creating"
	stateAvailable = "available"
	stateInUse     = "in-use"
	stateDeleting  = "deleting"
	stateError     = "error"

	attachAttaching = "attaching"
	attachAttached  = "attached"
	attachDetaching = "detaching"
	attachBusy      = "busy"

	modModifying  = "modifying"
	modOptimizing = "optimizing"
	modCompleted  = "completed"

	snapPending   = "pending"
	snapCompleted = "completed"
	snapError     = "error"

	fastEnabling   = "enabling"
	fastOptimizing = "optimizing"
	fastEnabled    = "enabled"
	fastDisabling  = "disabling"
	fastDisabled   = "disabled"

	lockGovernance = "governance"
	lockCompliance = "compliance"
	lockCoolOff    = "compliance-cooloff"
	lockExpired    = "expired"

	instanceRunning    = "running"
	instanceStopped    = "stopped"
	instanceTerminated = "terminated"
)

// Volume is all the simulator knows of a volume. Records are what the state
// folder keeps and what /_sim/state and the Go methods show.
type Volume struct {
	ID             string `json:"id"`
	Zone           string `json:"zone"`
	SizeGiB        int32  `json:"sizeGiB"`
	Type           string `json:"type"`
	IOPS           int32  `json:"iops,omitempty"`
	ThroughputMiBs int32  `json:"throughputMiBs,omitempty"`
	Encrypted      bool   `json:"encrypted,omitempty"`
	KMSKeyID       string `json:"kmsKeyId,omitempty"`
	SnapshotID     string `json:"snapshotId,omitempty"`
	// SourceVolumeID is the volume that this one was copied from.
	SourceVolumeID string    `json:"sourceVolumeId,omitempty"`
	MultiAttach    bool      `json:"multiAttach,omitempty"`
	InitRateMiBs   int32     `json:"initRateMiBs,omitempty"`
	Initialized    time.Time `json:"initialized,omitzero"` // when the content of a snapshot or source volume has arrived
	Created        time.Time `json:"created"`
	// FastRestored: made from a snapshot with fast restore in the zone.
	FastRestored bool `json:"fastRestored,omitempty"`
	// Doomed: it vanishes when its creation ends.
	Doomed bool `json:"doomed,omitempty"`
	// Failing: it is in state error when its creation ends.
	Failing bool `json:"failing,omitempty"`
	// RootOf names the instance whose root disk this is: it exists so that
	// limits and device names count right, and has no file behind it.
	RootOf string `json:"rootOf,omitempty"`
	// Trouble is what its status tells besides; the zero value is a healthy volume.
	Trouble Trouble `json:"trouble,omitzero"`
	// State is creating, available, in-use, deleting or error.
	State string `json:"state"`
	// Until is when a passing state (creating, deleting) ends.
	Until         time.Time         `json:"until,omitzero"`
	Attachments   []Attachment      `json:"attachments,omitempty"`
	Modifications []Modification    `json:"modifications,omitempty"`
	LastSnapshot  time.Time         `json:"lastSnapshot,omitzero"`
	Tags          map[string]string `json:"tags,omitempty"`
}

// Attachment is a volume at an instance.
type Attachment struct {
	InstanceID          string    `json:"instanceId"`
	Device              string    `json:"device"`
	State               string    `json:"state"`
	Until               time.Time `json:"until,omitzero"`
	Since               time.Time `json:"since"`
	DeleteOnTermination bool      `json:"deleteOnTermination,omitempty"`
	CardIndex           int32     `json:"cardIndex,omitempty"`
	// Force is set by DetachVolume with Force: a disk in use is torn away.
	Force bool `json:"force,omitempty"`
	// Stuck: it is attaching until it is detached.
	Stuck bool `json:"stuck,omitempty"`
	// Trouble is what the machine said when the disk could not be attached
	// or detached; the simulator goes on trying.
	Trouble string `json:"trouble,omitempty"`
}

// Shape is what ModifyVolume can change.
type Shape struct {
	SizeGiB        int32  `json:"sizeGiB"`
	Type           string `json:"type"`
	IOPS           int32  `json:"iops,omitempty"`
	ThroughputMiBs int32  `json:"throughputMiBs,omitempty"`
	MultiAttach    bool   `json:"multiAttach,omitempty"`
}

// Modification is one ModifyVolume and how far it is.
type Modification struct {
	State string `json:"state"`
	// Begun, Usable and Done bound the states modifying and optimizing.
	Begun  time.Time `json:"begun"`
	Usable time.Time `json:"usable"`
	Done   time.Time `json:"done"`
	From   Shape     `json:"from"`
	To     Shape     `json:"to"`
	// Trouble is what the machine said when the disk could not grow.
	Trouble string `json:"trouble,omitempty"`
}

// Snapshot is all the simulator knows of a snapshot.
type Snapshot struct {
	ID          string    `json:"id"`
	VolumeID    string    `json:"volumeId"`
	SizeGiB     int32     `json:"sizeGiB"`
	Encrypted   bool      `json:"encrypted,omitempty"`
	KMSKeyID    string    `json:"kmsKeyId,omitempty"`
	Description string    `json:"description,omitempty"`
	Started     time.Time `json:"started"`
	State       string    `json:"state"`
	Until       time.Time `json:"until,omitzero"`
	Completed   time.Time `json:"completed,omitzero"`
	// Doomed: it ends in state error.
	Doomed bool `json:"doomed,omitempty"`
	// FastRestores are the zones in which fast restore is on, or was.
	FastRestores []FastRestore `json:"fastRestores,omitempty"`
	// Lock is the newest lock, nil if the snapshot was never locked.
	Lock *Lock             `json:"lock,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
}

// FastRestore is fast snapshot restore of a snapshot in one zone.
type FastRestore struct {
	Zone  string `json:"zone"`
	State string `json:"state"`
	// Until is when a passing state (enabling, optimizing, disabling) ends.
	Until time.Time `json:"until,omitzero"`
	// Entered is when each state was entered last.
	Entered map[string]time.Time `json:"entered"`
}

// Lock keeps a snapshot from being deleted.
type Lock struct {
	// Mode is governance or compliance.
	Mode    string    `json:"mode"`
	Created time.Time `json:"created"`
	// Days is for how long it lasts, 0 if it was given an end.
	Days int32 `json:"days,omitempty"`
	// Starts is when the days begin to count; zero while the snapshot is pending.
	Starts time.Time `json:"starts,omitzero"`
	// Expires is when it ends; zero while that is open.
	Expires time.Time `json:"expires,omitzero"`
	// CoolOffHours is for how long a compliance lock can still be changed,
	// CoolOffEnds until when.
	CoolOffHours int32     `json:"coolOffHours,omitempty"`
	CoolOffEnds  time.Time `json:"coolOffEnds,omitzero"`
}

// Instance is a machine that volumes can be attached to. Its fields are also
// the instances file of `ec2sim serve` and the body of POST /_sim/instances.
type Instance struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// Type is the instance type, m5.large when empty.
	Type string `json:"type,omitempty"`
	// Sources are addresses or CIDRs from which IMDS is asked by this instance.
	Sources []string `json:"sources,omitempty"`
	// DevDir is the folder that the instance sees as /dev; empty: attached
	// volumes show no device.
	DevDir string `json:"devDir,omitempty"`
	// NetworkInterfaces is how many the instance has, 1 when 0. On types whose
	// limit is shared each one after the first takes the place of a volume.
	NetworkInterfaces int `json:"networkInterfaces,omitempty"`
	// State is running, stopped or terminated; running when empty.
	State    string            `json:"state,omitempty"`
	Launched time.Time         `json:"launched,omitzero"`
	RootID   string            `json:"rootId,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
}

// clientToken remembers what a client token was used for.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
type clientToken struct {
	ID       string    `json:"id"` // token and scope
	Params   string    `json:"params"`
	VolumeID string    `json:"volumeId"`
	Used     time.Time `json:"used"`
}

func (v *Volume) clone() Volume {
	c := *v
	c.Attachments = slices.Clone(v.Attachments)
	c.Modifications = slices.Clone(v.Modifications)
	c.Tags = maps.Clone(v.Tags)
	return c
}

func (sn *Snapshot) clone() Snapshot {
	c := *sn
	c.Tags = maps.Clone(sn.Tags)
	c.FastRestores = slices.Clone(sn.FastRestores)
	for i := range c.FastRestores {
		c.FastRestores[i].Entered = maps.Clone(sn.FastRestores[i].Entered)
	}
	if sn.Lock != nil {
		lock := *sn.Lock
		c.Lock = &lock
	}
	return c
}

func (i *Instance) clone() Instance {
	c := *i
	c.Sources = slices.Clone(i.Sources)
	c.Tags = maps.Clone(i.Tags)
	return c
}

// shape is what the volume is now, in the words of a modification.
func (v *Volume) shape() Shape {
	return Shape{SizeGiB: v.SizeGiB, Type: v.Type, IOPS: v.IOPS, ThroughputMiBs: v.ThroughputMiBs, MultiAttach: v.MultiAttach}
}

func (v *Volume) attachment(instanceID string) *Attachment {
	for i := range v.Attachments {
		if v.Attachments[i].InstanceID == instanceID {
			return &v.Attachments[i]
		}
	}
	return nil
}

// modification is the newest one, nil if the volume was never modified.
func (v *Volume) modification() *Modification {
	if len(v.Modifications) == 0 {
		return nil
	}
	return &v.Modifications[len(v.Modifications)-1]
}

// enis is the number of network interfaces.
func (i *Instance) enis() int { return max(1, i.NetworkInterfaces) }
