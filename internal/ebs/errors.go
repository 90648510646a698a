package ebs

import "errors"

// Sentinel errors. internal/ec2 wraps one of them around what EC2 answered,
// package driver maps each to a gRPC code in one table. Test with errors.Is.
var (
	// ErrNotFound: the volume, snapshot or attachment does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInstanceNotFound: the instance does not exist, or is terminated.
	ErrInstanceNotFound = errors.New("instance not found")
	// ErrAlreadyExists: something of that name exists and differs from what is asked for.
	ErrAlreadyExists = errors.New("already exists with other properties")
	// ErrAttachedElsewhere: the volume is attached to another instance.
	ErrAttachedElsewhere = errors.New("attached to another instance")
	// ErrInUse: the volume or snapshot cannot be deleted while it is used.
	ErrInUse = errors.New("in use")
	// ErrZoneMismatch: volume and instance are in different availability zones.
	ErrZoneMismatch = errors.New("volume and instance are in different availability zones")
	// ErrNoZone: the volume cannot be made in any of the zones that are allowed for it.
	ErrNoZone = errors.New("no zone that is allowed fits")
	// ErrAttachLimit: the instance takes no further volume.
	ErrAttachLimit = errors.New("attachment limit of the instance is reached")
	// ErrLimitExceeded: a quota of the account or of the volume is reached.
	ErrLimitExceeded = errors.New("limit exceeded")
	// ErrInvalid: EC2 or our own check refuses the parameters; a repeat cannot help.
	ErrInvalid = errors.New("invalid")
	// ErrOutOfRange: a size that the volume type does not offer.
	ErrOutOfRange = errors.New("out of range")
	// ErrInvalidToken: the token of a page is none that a list gave.
	ErrInvalidToken = errors.New("the page token is not valid")
	// ErrThrottled: EC2 asks to slow down, after the SDK's own retries.
	ErrThrottled = errors.New("throttled by EC2")
	// ErrModificationRate: the volume was modified too often; the text names the next allowed time where EC2 told it.
	ErrModificationRate = errors.New("volume modification rate exceeded")
	// ErrSnapshotRate: snapshots of the volume are asked for too fast or too many are pending.
	ErrSnapshotRate = errors.New("snapshot rate of the volume exceeded")
	// ErrNotTogether: EC2 cannot take the snapshots of these volumes at one instant.
	ErrNotTogether = errors.New("the volumes cannot be snapshotted together")
	// ErrSnapshotFailed: EC2 took the snapshot and could not complete it; it holds nothing.
	ErrSnapshotFailed = errors.New("EC2 could not complete the snapshot")
	// ErrNotReady: the thing exists and is in a state from which it will move on; repeat later.
	ErrNotReady = errors.New("not ready yet")
	// ErrVanished: EC2 accepted the creation and the volume disappeared again, as with an unusable KMS key.
	ErrVanished = errors.New("volume vanished while it was created")
	// ErrMaybeAccepted: a mutating call was sent and its outcome is unknown; a repeat finds out.
	ErrMaybeAccepted = errors.New("the call may have been accepted")
	// ErrUnauthorized: the credentials may not do this.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnavailable: EC2 does not answer, or answers with a fault of its own.
	ErrUnavailable = errors.New("EC2 is unavailable")
)
