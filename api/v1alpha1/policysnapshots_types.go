package v1alpha1

// PolicySnapshots say which SnapshotSchedules every namespace under the policy
// is given, and whether each claim must be covered by one.
//
// +kubebuilder:validation:XValidation:rule="has(self.required) || size(self.?schedules.orValue([])) > 0",message="snapshots without required and schedules do nothing: give one of them"
type PolicySnapshots struct {
	// required says what happens where no schedule covers a claim under the
	// policy, one of the policy or one that its namespace made: Deny refuses the
	// claim, Warn warns of it, Audit lists it alone. Covered is a claim that the
	// target of a schedule matches which is valid and not suspended. By default
	// nothing is asked.
	// +optional
	Required Action `json:"required,omitempty"`
	// schedules are made as SnapshotSchedules in every namespace that the policy
	// matches, and kept in step with the policy. One that its owner edits is left
	// alone from then on; one that is deleted comes back.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Schedules []PolicySchedule `json:"schedules,omitempty"`
}

// PolicySchedule is a SnapshotSchedule that a policy gives to namespaces.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spec.hooks)",fieldPath=".spec.hooks",message="a schedule that a policy gives has no hooks: they would run commands in Pods of every namespace that it matches; let the namespaces' owners write schedules with hooks"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.onScheduleDelete) || self.spec.onScheduleDelete != 'Delete'",fieldPath=".spec.onScheduleDelete",message="a schedule that a policy gives goes when its namespace is no longer matched: Delete would then delete every copy; leave it at Retain"
type PolicySchedule struct {
	// name tells the schedules of the policy apart. The SnapshotSchedule is
	// called <policy>-<name>; where that is longer than 63 characters it is cut,
	// and ends with a hash of the whole.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`
	// spec of the SnapshotSchedule. Its target is narrowed to the claims that the
	// policy's match is about.
	// +required
	Spec SnapshotScheduleSpec `json:"spec"`
}

// Labels and annotations of the SnapshotSchedules that a policy gives.
const (
	// LabelPolicy is the name of the StoragePolicy that gave the schedule. A value
	// that would be longer than 63 characters is cut and ends with a hash.
	LabelPolicy = "holdfast.dev/policy"
	// AnnotationPolicyGeneration is the metadata.generation that the schedule had
	// when the manager last wrote it. Another generation is somebody's edit.
	AnnotationPolicyGeneration = "holdfast.dev/policy-generation"
	// AnnotationFollowPolicy on a schedule that was edited hands it back: the
	// manager writes the policy's spec over it and takes the annotation off.
	AnnotationFollowPolicy = "holdfast.dev/follow-policy"
)

// Conditions of a StoragePolicy that gives schedules.
const (
	// ConditionSchedulesGiven: every namespace under the policy has its schedules,
	// in step with the policy or edited by an owner.
	ConditionSchedulesGiven = "SchedulesGiven"
	// ConditionSchedulesEdited: owners have edited schedules that the policy gave.
	// They are left alone.
	ConditionSchedulesEdited = "SchedulesEdited"
)

// Reasons of these conditions.
const (
	ReasonSchedulesInStep     = "InStep"
	ReasonInvalidSchedule     = "InvalidSchedule"
	ReasonContradictoryTarget = "ContradictoryTarget"
	ReasonNoStorageClass      = "NoStorageClass"
	ReasonTooManyClasses      = "TooManyStorageClasses"
	ReasonNameTaken           = "NameTaken"
	ReasonWriteRefused        = "WriteRefused"
	ReasonEdited              = "EditedByOwner"
	ReasonNoneEdited          = "NoneEdited"
)
