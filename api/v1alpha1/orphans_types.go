package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyOrphans say what becomes of orphans: claims that a StatefulSet has left
// behind, since its replicas went down or it was deleted. Only a claim that the
// manager stamped while its set lived is ever one, and only while no Pod names it
// and its volume is attached to no node.
type PolicyOrphans struct {
	// afterSeconds is how long a claim must have been an orphan, without a break,
	// before action is taken; by default a week.
	// +kubebuilder:default=604800
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=315360000
	// +optional
	AfterSeconds int32 `json:"afterSeconds,omitempty"`
	// action is what becomes of it then. Report leaves it alone. SnapshotThenDelete
	// takes a VolumeSnapshot and deletes the claim once that is ready. Delete
	// deletes the claim. Guardrails for deletion hold for the manager too, and
	// where they refuse, the claim stays.
	// +kubebuilder:default=Report
	// +optional
	Action OrphanAction `json:"action,omitempty"`
}

// OrphanAction is what becomes of an orphaned claim.
//
// +kubebuilder:validation:Enum=Report;SnapshotThenDelete;Delete
type OrphanAction string

// What becomes of an orphaned claim.
const (
	// ReportOrphans lists it, and no more.
	ReportOrphans OrphanAction = "Report"
	// SnapshotThenDelete deletes it once a snapshot of it is ready that was taken
	// after it became an orphan.
	SnapshotThenDelete OrphanAction = "SnapshotThenDelete"
	// DeleteOrphans deletes it.
	DeleteOrphans OrphanAction = "Delete"
)

// OrphanReport are the orphans that a policy acts on.
type OrphanReport struct {
	// count is how many there are, listed or not.
	// +optional
	Count int32 `json:"count"`
	// totalSize is the capacity of their volumes together.
	// +optional
	TotalSize *resource.Quantity `json:"totalSize,omitempty"`
	// claims are the first 50, by namespace and name.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Claims []OrphanedClaim `json:"claims,omitempty"`
}

// OrphanedClaim is one claim that a StatefulSet left behind.
type OrphanedClaim struct {
	// namespace is the namespace of the claim.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the claim.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
	// statefulSet is the name of the set that it was of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	StatefulSet string `json:"statefulSet,omitempty"`
	// since is when it was first seen to be an orphan.
	// +required
	Since metav1.Time `json:"since"`
	// size is the capacity of its volume.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// message says what happens to it next, or what keeps it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// Annotations on claims that StatefulSets leave behind.
const (
	// AnnotationOrphanedSince is written by the manager: since when the claim has
	// been an orphan, in RFC 3339. It is taken off when the claim is none any more.
	AnnotationOrphanedSince = "holdfast.dev/orphaned-since"
	// AnnotationKeepOrphan on a claim, with a reason as its value, keeps it from
	// ever being taken for an orphan.
	AnnotationKeepOrphan = "holdfast.dev/keep-orphan"
)

// LabelOrphanOf is on the VolumeSnapshots that the manager takes of orphans
// before it deletes them: the name of the StatefulSet that the claim was of. They
// carry LabelClaimUID, AnnotationClaim and the claim's stamp as well.
const LabelOrphanOf = "holdfast.dev/orphan-of"
