package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SnapshotHooks are commands that run in Pods around the cut of the copies.
type SnapshotHooks struct {
	// before run in this order, before the copies are asked for. Where one fails
	// its onError says what becomes of the copies.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +required
	Before []BeforeHook `json:"before,omitempty"`
	// after run in this order once the copies are cut, in each Pod in which a
	// hook of before was begun: whether it failed or not, whether there are
	// copies or not, and also after a crash of the manager. A command of after
	// must do no harm where there is nothing to undo, and when it runs twice.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	After []HookCommand `json:"after,omitempty"`
	// maxFreezeSeconds is how long after the first hook of before the hooks of
	// after run at the latest. A copy that is not cut by then is marked: its
	// annotation holdfast.dev/quiesced is No.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	// +optional
	MaxFreezeSeconds int32 `json:"maxFreezeSeconds,omitempty"`
}

// HookCommand is a command and where it runs.
type HookCommand struct {
	// podSelector picks running Pods of the namespace by their labels, for all
	// claims of the run. By default a hook runs in the running Pods that mount
	// the claim; a claim that none mounts is copied as it is.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// container is the name of the container. By default it is the one that the
	// Pod's annotation kubectl.kubernetes.io/default-container names, else the
	// first.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Container string `json:"container,omitempty"`
	// command is the program and its arguments. There is no shell unless it is
	// named: ["sh", "-c", "..."].
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self[0] != ''",message="the first item is the program to run, and must not be empty"
	// +listType=atomic
	// +required
	Command []string `json:"command,omitempty"`
	// timeoutSeconds is how long the command is waited for. One that takes longer
	// has failed; it is not killed in its container.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// BeforeHook is a command that runs before the cut.
type BeforeHook struct {
	HookCommand `json:",inline"`
	// onError says what becomes of the copies where the command cannot be run or
	// fails: Fail makes none and tries again within startingDeadlineSeconds;
	// Continue makes them, marked as not quiesced.
	// +kubebuilder:default=Fail
	// +optional
	OnError HookErrorPolicy `json:"onError,omitempty"`
}

// HookErrorPolicy says what becomes of the copies where a hook fails.
//
// +kubebuilder:validation:Enum=Fail;Continue
type HookErrorPolicy string

// What becomes of the copies where a hook fails.
const (
	HookFails     HookErrorPolicy = "Fail"
	HookContinues HookErrorPolicy = "Continue"
)
