package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SnapshotSchedule says when the claims of its namespace are copied as
// VolumeSnapshots, and how long the copies live.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=snapsched,categories=holdfast
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Last success",type=date,JSONPath=`.status.lastSuccessfulTime`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.claimCount`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyCount`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failedCount`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.timeZone`,priority=1
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingCount`,priority=1
// +kubebuilder:printcolumn:name="Missed",type=integer,JSONPath=`.status.missedSlots`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type SnapshotSchedule struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec says when copies are taken and how long they live.
	// +required
	Spec SnapshotScheduleSpec `json:"spec"`
	// status is what the manager did and found. It is written on change alone.
	// +optional
	Status SnapshotScheduleStatus `json:"status,omitzero"`
}

// SnapshotScheduleList is a list of SnapshotSchedules.
//
// +kubebuilder:object:root=true
type SnapshotScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SnapshotSchedule `json:"items"`
}

// SnapshotScheduleSpec says when copies of claims are taken and how long they live.
//
// +kubebuilder:validation:XValidation:rule="!has(self.groupSnapshotClassName) || self.consistency != 'Individual'",message="groupSnapshotClassName needs consistency Group or BestEffortGroup: leave it out, or set consistency"
// +kubebuilder:validation:XValidation:rule="self.consistency != 'Group' || (!has(self.snapshotClassName) && !has(self.snapshotClassNamesByDriver))",message="with consistency Group no VolumeSnapshotClass is used: leave out snapshotClassName and snapshotClassNamesByDriver, and name a VolumeGroupSnapshotClass in groupSnapshotClassName"
type SnapshotScheduleSpec struct {
	// schedule says when: minute, hour, day of month, month and day of week, such
	// as "30 2 * * *", or one of @hourly, @daily, @weekly, @monthly, @yearly.
	// Nothing runs at creation or at a change: the first run is the first one
	// that is due from then on.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Schedule string `json:"schedule,omitempty"`
	// timeZone is the IANA name of the zone whose clock the schedule follows. A
	// named hour that a change of the clocks skips runs once, right after it; one
	// that is repeated runs in the first pass; * and */n hours follow elapsed time.
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// jitterSeconds spreads the claims of a run over this time, at most half of
	// the time to the next run. A claim has the same place in it each time.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	JitterSeconds int32 `json:"jitterSeconds,omitempty"`
	// startingDeadlineSeconds is how long after its time a copy may still be
	// begun: after an outage, or while something stood in its way.
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=2678400
	// +optional
	StartingDeadlineSeconds int32 `json:"startingDeadlineSeconds,omitempty"`
	// catchUp says what becomes of runs that were missed: of all of them Latest
	// makes up for the newest one within startingDeadlineSeconds, None for none.
	// +kubebuilder:default=Latest
	// +optional
	CatchUp CatchUp `json:"catchUp,omitempty"`
	// suspend stops the taking of copies; old ones go on to age out, but never
	// below retention.keepLast. What was due meanwhile is not made up for.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// concurrencyPolicy says, for each claim by itself, whether a copy may be
	// begun while another one is still being made: Forbid waits for it, within
	// startingDeadlineSeconds; Allow does not.
	// +kubebuilder:default=Forbid
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// target says which claims of the namespace are copied; empty: all. All that
	// is given must hold. A claim with the annotation holdfast.dev/no-snapshots is
	// left out, and listed in the status.
	// +optional
	Target SnapshotTarget `json:"target,omitempty"`
	// consistency says what is copied at one instant. Individual copies each claim
	// by itself. Group copies all claims that a Pod mounts as one
	// VolumeGroupSnapshot, and those of which there can be none not at all.
	// BestEffortGroup copies those one by one, as close together as it can, and
	// the status says how close that was. A Pod's claims of several drivers are
	// one group each.
	// +kubebuilder:default=Individual
	// +optional
	Consistency Consistency `json:"consistency,omitempty"`
	// groupSnapshotClassName is the VolumeGroupSnapshotClass of groups. By default
	// it is the one that is marked as the default of the driver.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	GroupSnapshotClassName string `json:"groupSnapshotClassName,omitempty"`
	// snapshotClassName is the VolumeSnapshotClass of claims whose driver is not
	// in snapshotClassNamesByDriver. By default it is the one that is marked as
	// the default of the driver. A claim's annotation
	// holdfast.dev/snapshot-class comes before all of these.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SnapshotClassName string `json:"snapshotClassName,omitempty"`
	// snapshotClassNamesByDriver are the VolumeSnapshotClasses by CSI driver.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=driver
	// +optional
	SnapshotClassNamesByDriver []DriverSnapshotClass `json:"snapshotClassNamesByDriver,omitempty"`
	// template is what copies carry besides Holdfast's own labels.
	// +optional
	Template SnapshotTemplate `json:"template,omitempty"`
	// hooks are commands that run in Pods around the cut of the copies. Who writes
	// them must have the right to create pods/exec in the namespace, and the
	// install must have hooks enabled.
	// +optional
	Hooks *SnapshotHooks `json:"hooks,omitempty"`
	// readyDeadlineSeconds is how long a copy may take to become ready. After it
	// the copy counts as failed, until it becomes ready after all.
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=2678400
	// +optional
	ReadyDeadlineSeconds int32 `json:"readyDeadlineSeconds,omitempty"`
	// retention says which copies are kept.
	// +kubebuilder:default={}
	// +optional
	Retention SnapshotRetention `json:"retention,omitempty"`
	// onClaimDelete says what becomes of the copies of a claim that is gone:
	// KeepNewest keeps the newest ready one, KeepAll all, Expire none.
	// +kubebuilder:default=KeepNewest
	// +optional
	OnClaimDelete OnClaimDelete `json:"onClaimDelete,omitempty"`
	// onScheduleDelete says what becomes of the copies when the schedule is
	// deleted: Retain leaves them all, and one that is made again under the same
	// name takes them over; Delete deletes them first, as retention.contents says,
	// but those that are held. It may still be changed while that goes on.
	// +kubebuilder:default=Retain
	// +optional
	OnScheduleDelete OnScheduleDelete `json:"onScheduleDelete,omitempty"`
}

// CatchUp says what becomes of missed runs.
//
// +kubebuilder:validation:Enum=Latest;None
type CatchUp string

// What becomes of missed runs.
const (
	CatchUpLatest CatchUp = "Latest"
	CatchUpNone   CatchUp = "None"
)

// ConcurrencyPolicy says whether copies of one claim may be made at once.
//
// +kubebuilder:validation:Enum=Forbid;Allow
type ConcurrencyPolicy string

// Whether copies of one claim may be made at once.
const (
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	AllowConcurrent  ConcurrencyPolicy = "Allow"
)

// OnClaimDelete says what becomes of the copies of a claim that is gone.
//
// +kubebuilder:validation:Enum=KeepNewest;KeepAll;Expire
type OnClaimDelete string

// What becomes of the copies of a claim that is gone.
const (
	KeepNewestCopy OnClaimDelete = "KeepNewest"
	KeepAllCopies  OnClaimDelete = "KeepAll"
	ExpireCopies   OnClaimDelete = "Expire"
)

// OnScheduleDelete says what becomes of the copies of a schedule that is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type OnScheduleDelete string

// What becomes of the copies of a schedule that is deleted.
const (
	RetainCopies OnScheduleDelete = "Retain"
	DeleteCopies OnScheduleDelete = "Delete"
)

// SnapshotTarget says which claims of the schedule's namespace are copied.
type SnapshotTarget struct {
	// claimSelector picks by the labels of the claim.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`
	// statefulSetName picks the claims that a StatefulSet of this name made.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StatefulSetName string `json:"statefulSetName,omitempty"`
	// storageClassNames picks by the class of the claim.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	StorageClassNames []string `json:"storageClassNames,omitempty"`
}

// DriverSnapshotClass is the VolumeSnapshotClass for one driver.
type DriverSnapshotClass struct {
	// driver is the name of the CSI driver, such as ebs.csi.aws.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Driver string `json:"driver,omitempty"`
	// name of the VolumeSnapshotClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
}

// SnapshotTemplate is what copies carry besides Holdfast's own labels.
type SnapshotTemplate struct {
	// labels of each copy. Those under holdfast.dev/ are Holdfast's.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of each copy. Those under holdfast.dev/ are Holdfast's.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SnapshotRetention says which copies are kept, for each claim by itself. A copy
// is kept if any of the rules keeps it; a copy that is held (annotation
// holdfast.dev/hold), that a claim is still being filled from, or that is still
// being made is kept whatever they say.
type SnapshotRetention struct {
	// keepLast is how many of the newest ready copies are kept at least.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	KeepLast int32 `json:"keepLast,omitempty"`
	// keepWithinSeconds keeps every copy that is younger than this.
	// +kubebuilder:validation:Minimum=0
	// +optional
	KeepWithinSeconds int32 `json:"keepWithinSeconds,omitempty"`
	// hourly is of how many hours the newest ready copy is kept. Hours, days and
	// so on are those of the schedule's time zone, and only those that have a
	// copy are counted, from the newest backwards.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Hourly int32 `json:"hourly,omitempty"`
	// daily is of how many days the newest ready copy is kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Daily int32 `json:"daily,omitempty"`
	// weekly is of how many weeks the newest ready copy is kept. Weeks begin on
	// Monday (ISO 8601).
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Weekly int32 `json:"weekly,omitempty"`
	// monthly is of how many months the newest ready copy is kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Monthly int32 `json:"monthly,omitempty"`
	// yearly is of how many years the newest ready copy is kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Yearly int32 `json:"yearly,omitempty"`
	// failed bounds the failed copies, which never push out a ready one.
	// +kubebuilder:default={}
	// +optional
	Failed FailedRetention `json:"failed,omitempty"`
	// contents says what becomes of the cloud snapshot when a copy ages out:
	// Delete deletes it too, FollowClass leaves that to the deletionPolicy of its
	// VolumeSnapshotContent. What is left so is counted in the condition
	// ContentsRetained: the cloud charges for it until somebody deletes it.
	// +kubebuilder:default=Delete
	// +optional
	Contents ContentRetention `json:"contents,omitempty"`
}

// FailedRetention bounds the failed copies of each claim.
type FailedRetention struct {
	// keep is how many failed copies are kept to look at.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Keep *int32 `json:"keep,omitempty"`
	// deleteAfterSeconds is how old a failed copy becomes.
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=60
	// +optional
	DeleteAfterSeconds int32 `json:"deleteAfterSeconds,omitempty"`
}

// DefaultFailedKeep is FailedRetention's keep where it is not said.
const DefaultFailedKeep = 3

// ContentRetention says what becomes of the cloud snapshot of a copy that ages out.
//
// +kubebuilder:validation:Enum=Delete;FollowClass
type ContentRetention string

// What becomes of the cloud snapshot of a copy that ages out.
const (
	DeleteContents ContentRetention = "Delete"
	FollowClass    ContentRetention = "FollowClass"
)

// SnapshotScheduleStatus is what the manager did and found.
type SnapshotScheduleStatus struct {
	// conditions say how the schedule does: Ready, Valid, Degraded, and how its
	// copies age out: CopiesOverdue, ContentsRetained.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the rest is about.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// activeSince is since when the schedule runs as it stands: its creation, or
	// the last change of schedule, timeZone or suspend. Nothing before it is due.
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`
	// observedScheduleHash is of the schedule, timeZone and suspend that
	// activeSince is about.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ObservedScheduleHash string `json:"observedScheduleHash,omitempty"`
	// lastScheduleTime is the time of the last run that is over: each claim has
	// its copy, or its time to get one has passed.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// lastSuccessfulTime is when the newest ready copy was cut.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
	// nextScheduleTime is when the next run is due; none while suspended.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
	// missedSlots is how many runs were missed since the schedule was made.
	// +optional
	MissedSlots int32 `json:"missedSlots"`
	// lastRunToken is the value of the annotation holdfast.dev/run-now that was
	// last acted on.
	// +kubebuilder:validation:MinLength=1
	// +optional
	LastRunToken string `json:"lastRunToken,omitempty"`
	// claimCount is how many claims the target matches.
	// +optional
	ClaimCount int32 `json:"claimCount"`
	// readyCount is how many copies are ready.
	// +optional
	ReadyCount int32 `json:"readyCount"`
	// pendingCount is how many copies are still being made.
	// +optional
	PendingCount int32 `json:"pendingCount"`
	// failedCount is how many copies have failed.
	// +optional
	FailedCount int32 `json:"failedCount"`
	// lastGroupCut says how the groups were cut of the newest run of which all
	// are; none while consistency is Individual.
	// +optional
	LastGroupCut *GroupCut `json:"lastGroupCut,omitempty"`
	// claims are the claims that need a look, the worst 100.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=uid
	// +optional
	Claims []ClaimSnapshots `json:"claims,omitempty"`
}

// ClaimSnapshots says what is wrong with the copies of one claim.
type ClaimSnapshots struct {
	// uid is the UID of the claim.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// name is the name of the claim.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
	// reason is one word for what is wrong.
	// +required
	Reason ClaimReason `json:"reason,omitempty"`
	// message says what was found and what to do.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message,omitempty"`
	// lastReadyTime is when the newest ready copy of the claim was cut; none: it
	// has no ready copy.
	// +optional
	LastReadyTime *metav1.Time `json:"lastReadyTime,omitempty"`
}

// ClaimReason is why a claim needs a look.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
type ClaimReason string

// Why a claim is not copied at all.
const (
	ClaimNotBound       ClaimReason = "NotBound"
	ClaimDeleting       ClaimReason = "Deleting"
	ClaimOptedOut       ClaimReason = "OptedOut"
	ClaimNoSnapshots    ClaimReason = "DriverCannotSnapshot"
	ClaimNoClass        ClaimReason = "NoSnapshotClass"
	ClaimClassOfOther   ClaimReason = "ClassOfOtherDriver"
	ClaimAmbiguousClass ClaimReason = "SeveralDefaultClasses"
	ClaimClassNotFound  ClaimReason = "SnapshotClassNotFound"
	ClaimVolumeNotFound ClaimReason = "VolumeNotFound"
)

// Why a claim is not copied with consistency Group.
const (
	// ClaimNoGroups: the driver has no VolumeGroupSnapshotClass.
	ClaimNoGroups ClaimReason = "DriverCannotSnapshotGroups"
	// ClaimNotMounted: no running Pod mounts the claim, so it is of no group.
	ClaimNotMounted          ClaimReason = "NotMounted"
	ClaimNoGroupClass        ClaimReason = "NoGroupSnapshotClass"
	ClaimGroupClassOfOther   ClaimReason = "GroupClassOfOtherDriver"
	ClaimAmbiguousGroupClass ClaimReason = "SeveralDefaultGroupClasses"
	ClaimGroupClassNotFound  ClaimReason = "GroupSnapshotClassNotFound"
)

// Why a copy of a claim waits, is missing or is no good.
const (
	ClaimWaits   ClaimReason = "Waiting"
	ClaimRefused ClaimReason = "CreationRefused"
	ClaimMissed  ClaimReason = "Missed"
	ClaimFailed  ClaimReason = "SnapshotFailed"
	// ClaimHookFailed: a hook of before failed, so no copy was asked for.
	ClaimHookFailed ClaimReason = "HookFailed"
	// ClaimNotQuiesced: the newest copy was cut while its Pods were not quiesced.
	ClaimNotQuiesced ClaimReason = "NotQuiesced"
)

// Conditions of a SnapshotSchedule, besides Ready: copies are taken when they
// are due, or the schedule is suspended.
const (
	// ConditionValid: the spec can be acted on. While it cannot, no copy is taken
	// and none is deleted.
	ConditionValid = "Valid"
	// ConditionDegraded: some claims are not copied as they should be; claims
	// tells which.
	ConditionDegraded = "Degraded"
	// ConditionCopiesOverdue: copies that the rules of retention keep no longer
	// are still there: held, in use, or refused to be deleted.
	ConditionCopiesOverdue = "CopiesOverdue"
	// ConditionContentsRetained: copies have aged out whose VolumeSnapshotContent
	// and cloud snapshot are still there, as contents FollowClass wants it.
	ConditionContentsRetained = "ContentsRetained"
)

// Reasons of the conditions of a SnapshotSchedule.
const (
	ReasonActive               = "Active"
	ReasonSuspended            = "Suspended"
	ReasonSpecValid            = "SpecValid"
	ReasonInvalidSpec          = "InvalidSpec"
	ReasonSnapshotKindsMissing = "SnapshotKindsMissing"
	ReasonGroupKindsMissing    = "GroupSnapshotKindsMissing"
	ReasonHooksNotEnabled      = "HooksNotEnabled"
	ReasonClaimsNotCopied      = "ClaimsNotCopied"
	ReasonAllCopied            = "AllCopied"
	ReasonClockBehind          = "ClockBehind"
	ReasonNoneOverdue          = "NoneOverdue"
	ReasonHeldOrInUse          = "HeldOrInUse"
	ReasonDeletionRefused      = "DeletionRefused"
	ReasonNoneRetained         = "NoneRetained"
	ReasonFollowClass          = "FollowClass"
)
