package v1alpha1

// Labels and annotations that people set.
const (
	// LabelEnforce on a Namespace, with EnforceStrict, makes Holdfast's webhook
	// fail closed there: while no manager answers, claims, sets and snapshots
	// are refused rather than let through unjudged.
	LabelEnforce = "holdfast.dev/enforce"
	// EnforceStrict is the value of LabelEnforce that fails closed.
	EnforceStrict = "strict"
	// AnnotationOverrideDeletion on a protected object, with a reason as its
	// value, lets one deletion of it through. It may be written only by who has
	// the verb "override" on the StoragePolicies that protect the object.
	AnnotationOverrideDeletion = "holdfast.dev/override-deletion"
)

// Annotations that the manager sets on the claims of a living StatefulSet. They
// outlive the set: names alone do not tell whose a claim is.
const (
	// AnnotationSetUID is the UID of the StatefulSet.
	AnnotationSetUID = "holdfast.dev/statefulset-uid"
	// AnnotationSetName is the name of the StatefulSet.
	AnnotationSetName = "holdfast.dev/statefulset-name"
	// AnnotationSetTemplate is the name of the volumeClaimTemplate.
	AnnotationSetTemplate = "holdfast.dev/statefulset-template"
	// AnnotationSetOrdinal is the ordinal of the Pod, in decimal digits.
	AnnotationSetOrdinal = "holdfast.dev/statefulset-ordinal"
)

// SystemNamespaces are never matched by any policy: what runs a cluster must
// come up however its policies are broken.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "holdfast-system"}
}

// Annotations on snapshots and claims, by which people say what becomes of them.
const (
	// AnnotationHold on a VolumeSnapshot, with a reason as its value, keeps it
	// from ageing out; also without a reason.
	AnnotationHold = "holdfast.dev/hold"
	// AnnotationNoSnapshots on a claim, with a reason as its value, leaves it out
	// of every schedule.
	AnnotationNoSnapshots = "holdfast.dev/no-snapshots"
	// AnnotationSnapshotClass on a claim names the VolumeSnapshotClass of its
	// copies, before what a schedule says.
	AnnotationSnapshotClass = "holdfast.dev/snapshot-class"
	// AnnotationRunNow on a SnapshotSchedule runs it once for each new value.
	AnnotationRunNow = "holdfast.dev/run-now"
)

// Labels of the VolumeSnapshots that a schedule makes. A value that would be
// longer than 63 characters is cut and ends with a hash of the whole.
const (
	// LabelSchedule is the name of the SnapshotSchedule, by which it knows its
	// own, also after it was deleted and made again.
	LabelSchedule = "holdfast.dev/schedule"
	// LabelClaimUID is the UID of the claim.
	LabelClaimUID = "holdfast.dev/claim-uid"
	// LabelSlot is the run that the copy belongs to: its time in UTC, or for a
	// run by hand a hash of its token.
	LabelSlot = "holdfast.dev/slot"
)

// AnnotationClaim on a VolumeSnapshot that a schedule made is the full name of
// the claim, for people.
const AnnotationClaim = "holdfast.dev/claim"

// Names by which groups are known.
const (
	// LabelGroupPrefix begins the key of the label by which a VolumeGroupSnapshot
	// picks its claims: each group has a key of its own, and its name as the
	// value. The label goes when the claims are picked; one that is left behind
	// picks nothing later.
	LabelGroupPrefix = "holdfast.dev/group-"
	// AnnotationGroup on a VolumeSnapshot names what it was cut with: its
	// VolumeGroupSnapshot or, with BestEffortGroup, the series of single ones.
	AnnotationGroup = "holdfast.dev/group"
	// AnnotationClaims on a VolumeGroupSnapshot are its claims, by name and UID:
	// one that was never cut has no VolumeSnapshots that could tell.
	AnnotationClaims = "holdfast.dev/claims"
)

// FinalizerSnapshots on a SnapshotSchedule with onScheduleDelete Delete keeps it
// until its copies are deleted.
const FinalizerSnapshots = "holdfast.dev/snapshots"

// What the manager writes on a VolumeSnapshotContent (or VolumeGroupSnapshotContent)
// that retains its cloud snapshot, right before it deletes the snapshot: who comes
// later knows by it what is to become of the cloud snapshot, and whose copy it was.
// The label LabelSchedule is written with them.
const (
	// LabelContents is spec.retention.contents of the schedule.
	LabelContents = "holdfast.dev/contents"
	// AnnotationExpiredUID is the UID of the snapshot that is deleted.
	AnnotationExpiredUID = "holdfast.dev/expired-uid"
	// AnnotationExpiredAt is when that was, in RFC 3339.
	AnnotationExpiredAt = "holdfast.dev/expired-at"
)

// AnnotationQuiesced on a VolumeSnapshot of a schedule with hooks says whether
// its cut fell between them.
const AnnotationQuiesced = "holdfast.dev/quiesced"

// Values of AnnotationQuiesced.
const (
	// QuiescedPending: it is not known yet.
	QuiescedPending = "Pending"
	// Quiesced: all hooks of before had run, and none of after had begun.
	Quiesced = "Yes"
	// NotQuiesced: a hook failed, or the cut came too late.
	NotQuiesced = "No"
)

// Annotations on StatefulSets about the sizes of their claims.
const (
	// AnnotationSize declares the sizes that the claims of a set are to have, by
	// template: "data=20Gi,wal=5Gi". Claims grow to it, and never shrink.
	AnnotationSize = "holdfast.dev/size"
	// AnnotationAllowRecreate, with a reason as its value, lets a set be made anew
	// that is marked as kept in step by another tool.
	AnnotationAllowRecreate = "holdfast.dev/allow-recreate"
	// AnnotationRecreatedFrom is on a set that the manager has made anew: the UID
	// that it had before.
	AnnotationRecreatedFrom = "holdfast.dev/recreated-from"
)
