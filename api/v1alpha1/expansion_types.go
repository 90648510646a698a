package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PolicyExpansion says when and how far the volumes of claims grow online. Of the
// policies with an expansion that match a claim only the first acts: the one with
// the highest priority, and at a tie the one whose name sorts first.
//
// +kubebuilder:validation:XValidation:rule="!has(self.step) || !has(self.step.min) || quantity(string(self.step.min)).compareTo(quantity(string(self.maxSize))) <= 0",fieldPath=".step.min",message="step.min is above maxSize: no claim could ever grow"
type PolicyExpansion struct {
	// mode says who decides: Auto grows claims by itself; Approve proposes the
	// size in the claim's condition holdfast.dev/ExpansionProposed and waits for
	// the annotation holdfast.dev/approve-size with that size.
	// +kubebuilder:default=Auto
	// +optional
	Mode ExpansionMode `json:"mode,omitempty"`
	// trigger says when a claim is to grow; by default from 80 percent used.
	// +kubebuilder:default={usedPercent: 80}
	// +optional
	Trigger ExpansionTrigger `json:"trigger,omitzero"`
	// step says by how much a claim grows at once.
	// +kubebuilder:default={}
	// +optional
	Step ExpansionStep `json:"step,omitzero"`
	// maxSize is the size that no claim is grown above. A claim can be held to
	// less by its annotation holdfast.dev/max-size, never let to more.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="maxSize is no quantity: write it as 500Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1Gi')) >= 0",message="maxSize must be at least 1Gi: claims grow to whole GiB"
	// +required
	MaxSize resource.Quantity `json:"maxSize,omitempty"`
	// cooldownSeconds is how long a claim is left alone after it has grown.
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`
	// budget bounds how often a volume is modified. By default there is none,
	// but for ebs.csi.aws.com, whose volumes take few modifications a day: 4 in
	// 86400 seconds, of which 1 is kept in reserve.
	// +optional
	Budget *ExpansionBudget `json:"budget,omitempty"`
	// statefulSetTemplate says what becomes of the volumeClaimTemplate of a
	// StatefulSet whose claims have grown. RaiseAtCreate leaves the set alone and
	// gives a claim that is made later for a new replica the size of its
	// siblings. Recreate writes the size into the template, by making the set
	// anew around its running Pods. Report only says that they differ.
	// +kubebuilder:default=RaiseAtCreate
	// +optional
	StatefulSetTemplate TemplateAction `json:"statefulSetTemplate,omitempty"`
}

// ExpansionMode says who decides that a claim grows.
//
// +kubebuilder:validation:Enum=Auto;Approve
type ExpansionMode string

// Who decides.
const (
	// ExpansionAuto: the manager does.
	ExpansionAuto ExpansionMode = "Auto"
	// ExpansionApprove: the manager proposes, a person approves.
	ExpansionApprove ExpansionMode = "Approve"
)

// ExpansionTrigger says when a claim is to grow: when any of what it names holds.
// What is not known (a driver that tells no inodes, a volume on no node) is never
// taken for zero: it decides nothing.
//
// +kubebuilder:validation:XValidation:rule="has(self.usedPercent) || has(self.freeBytes) || has(self.inodesUsedPercent)",message="a trigger without usedPercent, freeBytes and inodesUsedPercent never fires: give one of them"
type ExpansionTrigger struct {
	// usedPercent of the filesystem's bytes in use, from which on the claim grows.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	UsedPercent int32 `json:"usedPercent,omitempty"`
	// freeBytes is the free space below which the claim grows. It is no default:
	// it fires at once on every claim that is smaller.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="freeBytes is no quantity: write it as 10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="freeBytes must be above 0"
	// +optional
	FreeBytes *resource.Quantity `json:"freeBytes,omitempty"`
	// inodesUsedPercent of the filesystem's inodes in use, from which on the claim
	// grows.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	InodesUsedPercent int32 `json:"inodesUsedPercent,omitempty"`
	// forSeconds is how long it must hold without a break; by default the first
	// sight of it is enough.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ForSeconds int32 `json:"forSeconds,omitempty"`
}

// ExpansionStep says by how much a claim grows at once: percent of its size, at
// least min and at most max, rounded up to whole GiB.
//
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.min) || quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",fieldPath=".min",message="min is above max: no step could keep both"
type ExpansionStep struct {
	// percent of the claim's size.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Percent int32 `json:"percent,omitempty"`
	// min is the least that a claim grows by.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="min is no quantity: write it as 5Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="min must be above 0"
	// +optional
	Min *resource.Quantity `json:"min,omitempty"`
	// max is the most that a claim grows by; by default only maxSize bounds it.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="max is no quantity: write it as 500Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1Gi')) >= 0",message="max must be at least 1Gi: claims grow to whole GiB"
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`
}

// ExpansionBudget bounds how often a volume is modified within a sliding window.
// Every change of a claim's size or attributes class counts, also one by hand.
//
// +kubebuilder:validation:XValidation:rule="!has(self.reserve) || self.reserve <= self.modifications",fieldPath=".reserve",message="reserve is above modifications: there are no more to keep back"
type ExpansionBudget struct {
	// modifications is how many there may be within the window.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +required
	Modifications int32 `json:"modifications,omitempty"`
	// windowSeconds is how long the window is; by default a day.
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	WindowSeconds int32 `json:"windowSeconds,omitempty"`
	// reserve is how many of the modifications are kept for volumes that are more
	// than 95 percent full; by default none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Reserve int32 `json:"reserve,omitempty"`
}

// TemplateAction says what becomes of a volumeClaimTemplate whose claims have grown.
//
// +kubebuilder:validation:Enum=RaiseAtCreate;Recreate;Report
type TemplateAction string

// What becomes of the template.
const (
	// RaiseAtCreate: claims of new replicas are given their siblings' size.
	RaiseAtCreate TemplateAction = "RaiseAtCreate"
	// RecreateSet: the set is made anew, with the size in its template.
	RecreateSet TemplateAction = "Recreate"
	// ReportTemplate: that they differ is said, and no more.
	ReportTemplate TemplateAction = "Report"
)

// Annotations on claims about their growth. People write the first two.
const (
	// AnnotationMaxSize holds a claim to less than the maxSize of its policy. A
	// value that cannot be read, or above the policy's, stops the growth of the
	// claim until it is put right.
	AnnotationMaxSize = "holdfast.dev/max-size"
	// AnnotationApproveSize approves the size that the condition
	// holdfast.dev/ExpansionProposed proposes, by naming it.
	AnnotationApproveSize = "holdfast.dev/approve-size"
	// AnnotationModifications is the manager's record of the changes of a claim's
	// size and attributes class, by which it keeps the budget.
	AnnotationModifications = "holdfast.dev/modifications"
)

// Conditions of a claim that is under an expansion. They are there while they are
// true, and gone else.
const (
	// ConditionExpansionBlocked: the claim is to grow, and something stops it. The
	// message says what, what to do, and when it goes on by itself.
	ConditionExpansionBlocked corev1.PersistentVolumeClaimConditionType = "holdfast.dev/ExpansionBlocked"
	// ConditionExpansionProposed: the claim is to grow to the size in the message,
	// and waits for somebody to approve that.
	ConditionExpansionProposed corev1.PersistentVolumeClaimConditionType = "holdfast.dev/ExpansionProposed"
)

// Reasons of these conditions.
const (
	// ReasonAtMaximum: it has the size that it may grow to.
	ReasonAtMaximum = "AtMaximum"
	// ReasonBudgetSpent: it was modified too often lately.
	ReasonBudgetSpent = "BudgetSpent"
	// ReasonInfeasible: the driver cannot make it that large.
	ReasonInfeasible = "Infeasible"
	// ReasonRefused: a guardrail, a quota or another admission refuses the size.
	ReasonRefused = "Refused"
	// ReasonClassForbids: its StorageClass does not let volumes grow.
	ReasonClassForbids = "ClassForbidsExpansion"
	// ReasonCapacityNotShown: it has grown, and its filesystem has not.
	ReasonCapacityNotShown = "CapacityNotShown"
	// ReasonInvalidMaxSize: its annotation holdfast.dev/max-size is not valid.
	ReasonInvalidMaxSize = "InvalidMaxSize"
	// ReasonInvalidPolicy: a StoragePolicy that cannot be read may be the one that
	// bounds its growth.
	ReasonInvalidPolicy = "InvalidPolicy"
	// ReasonRecordUnreadable: its annotation holdfast.dev/modifications cannot be read.
	ReasonRecordUnreadable = "RecordUnreadable"
	// ReasonAwaitsApproval: the policy asks for approval.
	ReasonAwaitsApproval = "AwaitsApproval"
)
