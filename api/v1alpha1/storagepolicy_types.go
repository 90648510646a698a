package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StoragePolicy says what the claims, classes and StatefulSets that it matches
// may be, and what of them may be deleted. The guardrails of all matching
// policies apply; where only one policy can act (defaults, expansion,
// orphans), the highest priority does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=stpol,categories=holdfast
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.guardrails.action`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.matchedClaims`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violationCount`
// +kubebuilder:printcolumn:name="Scanned",type=date,JSONPath=`.status.lastScanTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
type StoragePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the policy asks for.
	// +required
	Spec StoragePolicySpec `json:"spec"`
	// status is what the manager found. It is written soon after the spec
	// changes, and else at most once a minute.
	// +optional
	Status StoragePolicyStatus `json:"status,omitzero"`
}

// StoragePolicyList is a list of StoragePolicies.
//
// +kubebuilder:object:root=true
type StoragePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StoragePolicy `json:"items"`
}

// StoragePolicySpec is what a policy asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.defaults) || !has(self.match) || (size(self.match.?storageClassNames.orValue([])) == 0 && size(self.match.?provisioners.orValue([])) == 0)",fieldPath=".defaults",message="defaults are for claims that name no class, and match.storageClassNames and match.provisioners leave these out: put the defaults into a policy of their own"
// +kubebuilder:validation:XValidation:rule="has(self.defaults) || has(self.guardrails) || has(self.expansion) || has(self.orphans) || has(self.snapshots)",message="a policy without defaults, guardrails, expansion, orphans and snapshots does nothing: give one of them"
type StoragePolicySpec struct {
	// priority decides where only one policy can act: the higher number wins. At
	// a tie the name that sorts first wins and both policies get the condition
	// Conflicting.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// match says what the policy is about; what is left out matches everything.
	// System namespaces (kube-system, kube-public, kube-node-lease,
	// holdfast-system) are never matched.
	// +optional
	Match PolicyMatch `json:"match,omitzero"`
	// defaults are given to objects at their creation.
	// +optional
	Defaults *PolicyDefaults `json:"defaults,omitempty"`
	// guardrails are the rules that objects are held to.
	// +optional
	Guardrails *Guardrails `json:"guardrails,omitempty"`
	// expansion says when and how far the volumes of claims grow online.
	// +optional
	Expansion *PolicyExpansion `json:"expansion,omitempty"`
	// orphans say what becomes of claims that StatefulSets leave behind.
	// +optional
	Orphans *PolicyOrphans `json:"orphans,omitempty"`
	// snapshots are the schedules by which claims are copied.
	// +optional
	Snapshots *PolicySnapshots `json:"snapshots,omitempty"`
	// exemptions let some objects off some rules, with a reason and until a day.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Exemptions []Exemption `json:"exemptions,omitempty"`
}

// PolicyMatch says what a policy is about. All that is given must hold.
type PolicyMatch struct {
	// namespaceSelector picks by the labels of the namespace. A policy with a
	// namespaceSelector or claimSelector judges StorageClasses only through the
	// claims that name them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// claimSelector picks by the labels of the claim: for a StatefulSet those of
	// each claim template, for a snapshot those of its source claim.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`
	// storageClassNames picks by the class of the claim.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	StorageClassNames []string `json:"storageClassNames,omitempty"`
	// provisioners picks by the provisioner of the claim's class, such as
	// ebs.csi.aws.com.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Provisioners []string `json:"provisioners,omitempty"`
}

// PolicyDefaults are given to objects at their creation.
type PolicyDefaults struct {
	// storageClassName is given to claims that name no class. It acts only where
	// no class is marked as the cluster's default, since the API server's own
	// defaulting comes first; else the condition DefaultShadowed names that class.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	StorageClassName string `json:"storageClassName,omitempty"`
}

// RetentionAction is what becomes of a claim.
//
// +kubebuilder:validation:Enum=Retain;Delete
type RetentionAction string

// What becomes of a claim.
const (
	RetainClaims RetentionAction = "Retain"
	DeleteClaims RetentionAction = "Delete"
)

// Action is what happens where a rule does not hold.
//
// +kubebuilder:validation:Enum=Deny;Warn;Audit
type Action string

// The actions, strongest first.
const (
	// Deny refuses the request.
	Deny Action = "Deny"
	// Warn lets the request through with a warning to the user.
	Warn Action = "Warn"
	// Audit lets the request through in silence, with a metric, an event and an
	// entry in the policy's status.
	Audit Action = "Audit"
)

// Guardrails are the rules that objects are held to.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClass) || has(self.attributesClass) || has(self.snapshotClass) || has(self.claim) || has(self.statefulSet) || has(self.deletion) || has(self.scaleDown)",message="guardrails without a rule hold nothing: give at least one of storageClass, attributesClass, snapshotClass, claim, statefulSet, deletion, scaleDown"
type Guardrails struct {
	// action is what happens where a rule does not hold: Deny, Warn or Audit.
	// Begin with Audit, look at the status, then raise it.
	// +kubebuilder:default=Deny
	// +optional
	Action Action `json:"action,omitempty"`
	// overrides give single rules another action.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=rule
	// +optional
	Overrides []RuleOverride `json:"overrides,omitempty"`
	// storageClass are rules for StorageClasses. They are judged on the classes
	// and, looked up, on every claim that names one.
	// +optional
	StorageClass *StorageClassRules `json:"storageClass,omitempty"`
	// attributesClass are rules for the VolumeAttributesClass of a claim.
	// +optional
	AttributesClass *AttributesClassRules `json:"attributesClass,omitempty"`
	// snapshotClass are rules for the VolumeSnapshotClass of a snapshot.
	// +optional
	SnapshotClass *SnapshotClassRules `json:"snapshotClass,omitempty"`
	// claim are rules for claims.
	// +optional
	Claim *ClaimRules `json:"claim,omitempty"`
	// statefulSet are rules for StatefulSets that have claim templates.
	// +optional
	StatefulSet *StatefulSetRules `json:"statefulSet,omitempty"`
	// deletion protects claims, the namespaces and snapshots around them, and
	// the sets whose deletion would delete claims.
	// +optional
	Deletion *DeletionRules `json:"deletion,omitempty"`
	// scaleDown asks for fresh snapshots before a StatefulSet is made smaller.
	// +optional
	ScaleDown *ScaleDownRules `json:"scaleDown,omitempty"`
}

// RuleOverride gives one rule another action.
type RuleOverride struct {
	// rule is the rule.
	// +required
	Rule Rule `json:"rule,omitempty"`
	// action is what happens where the rule does not hold.
	// +required
	Action Action `json:"action,omitempty"`
}

// StorageClassRules are rules for StorageClasses.
//
// +kubebuilder:validation:MinProperties=1
type StorageClassRules struct {
	// allowed are the names of the classes that claims may name.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Allowed []string `json:"allowed,omitempty"`
	// inTreeProvisioners set to Forbidden refuses classes of kubernetes.io/…
	// provisioners other than kubernetes.io/no-provisioner.
	// +optional
	InTreeProvisioners Permission `json:"inTreeProvisioners,omitempty"`
	// parameters say which values parameters of the class must have. Keys are
	// compared without case, as drivers do, and a key that the class does not
	// have breaks the rule. They hold for the classes of ebs.csi.aws.com and
	// kubernetes.io/aws-ebs unless the entry names other provisioners.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=key
	// +optional
	Parameters []ParameterRule `json:"parameters,omitempty"`
	// volumeBindingMode is the binding mode that classes must have.
	// +kubebuilder:validation:Enum=WaitForFirstConsumer;Immediate
	// +optional
	VolumeBindingMode storagev1.VolumeBindingMode `json:"volumeBindingMode,omitempty"`
	// allowVolumeExpansion set to Required refuses classes that do not let
	// volumes grow.
	// +optional
	AllowVolumeExpansion Requirement `json:"allowVolumeExpansion,omitempty"`
	// reclaimPolicy is the reclaim policy that classes must have.
	// +kubebuilder:validation:Enum=Retain;Delete
	// +optional
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// maxIOPS is the most IOPS that an EBS class may give a volume: by its
	// parameter iops, or by iopsPerGB at the size of the claim. On a claim it is
	// judged for the VolumeAttributesClass that it names too. Classes of other
	// drivers are not judged.
	// +kubebuilder:validation:Minimum=100
	// +optional
	MaxIOPS int32 `json:"maxIOPS,omitempty"`
}

// Permission says that something is forbidden.
//
// +kubebuilder:validation:Enum=Forbidden
type Permission string

// Forbidden is the one Permission that can be given.
const Forbidden Permission = "Forbidden"

// Requirement says that something is required.
//
// +kubebuilder:validation:Enum=Required
type Requirement string

// Required is the one Requirement that can be given.
const Required Requirement = "Required"

// ParameterRule says which values a parameter of a class must have.
type ParameterRule struct {
	// key is the parameter's key, compared without case.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key,omitempty"`
	// values are the values of which the parameter must have one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=2048
	// +listType=set
	// +required
	Values []string `json:"values,omitempty"`
	// provisioners are those whose classes are judged; by default
	// ebs.csi.aws.com and kubernetes.io/aws-ebs.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Provisioners []string `json:"provisioners,omitempty"`
}

// AttributesClassRules are rules for the VolumeAttributesClass of a claim.
type AttributesClassRules struct {
	// allowed are the names of the classes that claims may name. A claim that
	// names none keeps the rule; an empty list lets claims name none.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +required
	Allowed []string `json:"allowed"`
}

// SnapshotClassRules are rules for the VolumeSnapshotClass of a snapshot.
type SnapshotClassRules struct {
	// deletionPolicy is the deletion policy that the class of a snapshot must have.
	// +kubebuilder:validation:Enum=Retain;Delete
	// +required
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
}

// ClaimRules are rules for claims.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.minSize) || !has(self.maxSize) || quantity(string(self.minSize)).compareTo(quantity(string(self.maxSize))) <= 0",fieldPath=".minSize",message="minSize is above maxSize: no claim could keep both"
type ClaimRules struct {
	// minSize is the least that a claim may ask for.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="minSize is no quantity: write it as 20Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="minSize must be above 0"
	// +optional
	MinSize *resource.Quantity `json:"minSize,omitempty"`
	// maxSize is the most that a claim may ask for.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="maxSize is no quantity: write it as 20Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="maxSize must be above 0"
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
	// maxGrowthPercent is the most that one change may grow a claim, in percent
	// of its size before.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxGrowthPercent int32 `json:"maxGrowthPercent,omitempty"`
	// accessModes are the access modes that a claim may ask for.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadWriteOncePod;ReadOnlyMany;ReadWriteMany
	// +listType=set
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// volumeModes are the volume modes that a claim may ask for.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=Filesystem;Block
	// +listType=set
	// +optional
	VolumeModes []corev1.PersistentVolumeMode `json:"volumeModes,omitempty"`
}

// StatefulSetRules are rules for StatefulSets that have claim templates.
//
// +kubebuilder:validation:MinProperties=1
type StatefulSetRules struct {
	// whenDeleted is what persistentVolumeClaimRetentionPolicy.whenDeleted must be.
	// +optional
	WhenDeleted RetentionAction `json:"whenDeleted,omitempty"`
	// whenScaled is what persistentVolumeClaimRetentionPolicy.whenScaled must be.
	// +optional
	WhenScaled RetentionAction `json:"whenScaled,omitempty"`
	// minTerminationGracePeriodSeconds is the least that Pods must be given to
	// end in: a database that is killed recovers at its next start.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MinTerminationGracePeriodSeconds int64 `json:"minTerminationGracePeriodSeconds,omitempty"`
	// podDisruptionBudget set to Required asks for a PodDisruptionBudget that
	// selects the set's Pods. It only ever warns: budgets are often applied
	// after the set.
	// +optional
	PodDisruptionBudget Requirement `json:"podDisruptionBudget,omitempty"`
}

// DeletionRules protect claims, and what their deletion hangs on.
//
// +kubebuilder:validation:XValidation:rule="self.allow != 'OverrideOnly' || !has(self.snapshotNotOlderThanSeconds)",fieldPath=".snapshotNotOlderThanSeconds",message="snapshotNotOlderThanSeconds has no effect with allow: OverrideOnly"
type DeletionRules struct {
	// protect says which claims: WhenBound those that have a volume, Always all,
	// Never none.
	// +kubebuilder:default=WhenBound
	// +optional
	Protect Protection `json:"protect,omitempty"`
	// allow says what lets a deletion through: RecentSnapshot a ready snapshot
	// of the claim that is not older than snapshotNotOlderThanSeconds, or the
	// override annotation; OverrideOnly the annotation alone.
	// +kubebuilder:default=RecentSnapshot
	// +optional
	Allow DeletionPermission `json:"allow,omitempty"`
	// snapshotNotOlderThanSeconds is how old the snapshot may be, by the time of
	// its cut; by default a day.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	// +optional
	SnapshotNotOlderThanSeconds int32 `json:"snapshotNotOlderThanSeconds,omitempty"`
}

// DefaultSnapshotAgeSeconds is how old a snapshot may be where a policy does not say.
const DefaultSnapshotAgeSeconds = 86400

// Protection says which claims are protected from deletion.
//
// +kubebuilder:validation:Enum=Never;WhenBound;Always
type Protection string

// Which claims are protected.
const (
	ProtectNever     Protection = "Never"
	ProtectWhenBound Protection = "WhenBound"
	ProtectAlways    Protection = "Always"
)

// DeletionPermission says what lets the deletion of a protected claim through.
//
// +kubebuilder:validation:Enum=RecentSnapshot;OverrideOnly
type DeletionPermission string

// What lets a deletion through.
const (
	AllowRecentSnapshot DeletionPermission = "RecentSnapshot"
	AllowOverrideOnly   DeletionPermission = "OverrideOnly"
)

// ScaleDownRules ask for fresh snapshots before a StatefulSet is made smaller.
type ScaleDownRules struct {
	// snapshotNotOlderThanSeconds is how old the newest ready snapshot of each
	// claim that loses its Pod may be, by the time of its cut.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	// +required
	SnapshotNotOlderThanSeconds int32 `json:"snapshotNotOlderThanSeconds,omitempty"`
}

// Exemption lets objects off rules. It names what it is for: one that names
// neither a selector nor a namespaceSelector would be for everything.
//
// +kubebuilder:validation:XValidation:rule="(has(self.selector) && (size(self.selector.matchLabels) > 0 || size(self.selector.matchExpressions) > 0)) || (has(self.namespaceSelector) && (size(self.namespaceSelector.matchLabels) > 0 || size(self.namespaceSelector.matchExpressions) > 0))",message="an exemption must name what it is for: a selector or a namespaceSelector with at least one requirement"
type Exemption struct {
	// selector picks objects by their own labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// namespaceSelector picks objects by the labels of their namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// rules are the rules that do not apply; all where none is named.
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	// +optional
	Rules []Rule `json:"rules,omitempty"`
	// reason says why, for whoever reads it later.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Reason string `json:"reason,omitempty"`
	// until is when the exemption ends, as 2027-01-31T00:00:00Z or with an offset
	// such as +02:00. From then on the rules apply again, and the condition
	// ExemptionsCurrent says so.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`
	// +required
	Until metav1.Time `json:"until"`
}

// Rule is the name of one rule: the path of its field below guardrails, or below
// spec for snapshots.required.
//
// +kubebuilder:validation:Enum=storageClass.allowed;storageClass.inTreeProvisioners;storageClass.parameters;storageClass.volumeBindingMode;storageClass.allowVolumeExpansion;storageClass.reclaimPolicy;storageClass.maxIOPS;attributesClass.allowed;snapshotClass.deletionPolicy;claim.minSize;claim.maxSize;claim.maxGrowthPercent;claim.accessModes;claim.volumeModes;statefulSet.whenDeleted;statefulSet.whenScaled;statefulSet.minTerminationGracePeriodSeconds;statefulSet.podDisruptionBudget;deletion;scaleDown;snapshots.required
type Rule string

// The rules.
const (
	RuleClassAllowed        Rule = "storageClass.allowed"
	RuleClassInTree         Rule = "storageClass.inTreeProvisioners"
	RuleClassParameters     Rule = "storageClass.parameters"
	RuleClassBindingMode    Rule = "storageClass.volumeBindingMode"
	RuleClassExpansion      Rule = "storageClass.allowVolumeExpansion"
	RuleClassReclaimPolicy  Rule = "storageClass.reclaimPolicy"
	RuleClassMaxIOPS        Rule = "storageClass.maxIOPS"
	RuleAttributesClass     Rule = "attributesClass.allowed"
	RuleSnapshotClass       Rule = "snapshotClass.deletionPolicy"
	RuleClaimMinSize        Rule = "claim.minSize"
	RuleClaimMaxSize        Rule = "claim.maxSize"
	RuleClaimMaxGrowth      Rule = "claim.maxGrowthPercent"
	RuleClaimAccessModes    Rule = "claim.accessModes"
	RuleClaimVolumeModes    Rule = "claim.volumeModes"
	RuleSetWhenDeleted      Rule = "statefulSet.whenDeleted"
	RuleSetWhenScaled       Rule = "statefulSet.whenScaled"
	RuleSetGracePeriod      Rule = "statefulSet.minTerminationGracePeriodSeconds"
	RuleSetDisruptionBudget Rule = "statefulSet.podDisruptionBudget"
	RuleDeletion            Rule = "deletion"
	RuleScaleDown           Rule = "scaleDown"
	RuleSnapshotsRequired   Rule = "snapshots.required"
)

// StoragePolicyStatus is what the manager found.
type StoragePolicyStatus struct {
	// conditions say how the policy does: Ready, Conflicting, DefaultShadowed,
	// ExemptionsCurrent; of one that gives schedules also SchedulesGiven and
	// SchedulesEdited.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the rest is about.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// matchedClaims is how many claims the policy matches.
	// +optional
	MatchedClaims int32 `json:"matchedClaims"`
	// violationCount is how many violations there are, listed or not.
	// +optional
	ViolationCount int32 `json:"violationCount"`
	// violations are the first 50 violations, by kind, namespace and name.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Violations []Violation `json:"violations,omitempty"`
	// compliantStorageClasses are the classes that keep all rules of the policy.
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	// +optional
	CompliantStorageClasses []string `json:"compliantStorageClasses,omitempty"`
	// orphans are the claims left behind that the policy acts on; absent where it
	// says nothing of them.
	// +optional
	Orphans *OrphanReport `json:"orphans,omitempty"`
	// lastScanTime is when what exists was last judged.
	// +optional
	LastScanTime *metav1.Time `json:"lastScanTime,omitempty"`
}

// Violation is one object that breaks one rule.
type Violation struct {
	// kind is the kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind,omitempty"`
	// namespace is the namespace of the object; absent for a kind without.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
	// rule is the rule that is broken.
	// +required
	Rule Rule `json:"rule,omitempty"`
	// action is what happens now where the rule does not hold.
	// +required
	Action Action `json:"action,omitempty"`
	// message says what was found, what is wanted and what to do.
	// +kubebuilder:validation:MinLength=1
	// +required
	Message string `json:"message,omitempty"`
}

// Conditions of a StoragePolicy.
const (
	// ConditionReady: the policy is well formed and has been scanned.
	ConditionReady = "Ready"
	// ConditionConflicting: another policy of the same priority wants to act
	// where only one can, or two policies' rules cannot both be kept.
	ConditionConflicting = "Conflicting"
	// ConditionDefaultShadowed: a class is marked as the cluster's default, so
	// the policy's own default class is never used.
	ConditionDefaultShadowed = "DefaultShadowed"
	// ConditionExemptionsCurrent: none of the exemptions has ended.
	ConditionExemptionsCurrent = "ExemptionsCurrent"
)

// Reasons of the conditions.
const (
	ReasonScanned         = "Scanned"
	ReasonScanPending     = "ScanPending"
	ReasonInvalidSelector = "InvalidSelector"
	ReasonNoConflict      = "NoConflict"
	ReasonSamePriority    = "SamePriority"
	ReasonContradiction   = "Contradiction"
	ReasonNotShadowed     = "NotShadowed"
	ReasonDefaultClass    = "DefaultClassMarked"
	ReasonExemptionEnded  = "ExemptionEnded"
	ReasonExemptionsRun   = "NoneEnded"
)
