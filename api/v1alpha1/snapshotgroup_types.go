package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Consistency says what is copied at one instant.
//
// +kubebuilder:validation:Enum=Individual;Group;BestEffortGroup
type Consistency string

// What is copied at one instant.
const (
	IndividualCopies Consistency = "Individual"
	GroupCopies      Consistency = "Group"
	BestEffortGroups Consistency = "BestEffortGroup"
)

// GroupCut says how the groups of a run were cut.
type GroupCut struct {
	// slot is the run, as the label holdfast.dev/slot of its copies has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Slot string `json:"slot,omitempty"`
	// time of the first cut.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// groupCount is how many groups were cut as one VolumeGroupSnapshot each.
	// +required
	GroupCount int32 `json:"groupCount"`
	// seriesCount is how many groups were cut one claim after the other.
	// +required
	SeriesCount int32 `json:"seriesCount"`
	// spreadSeconds is how long the first and the last cut of a group were apart,
	// of the group where that was longest. VolumeSnapshots tell whole seconds.
	// +required
	SpreadSeconds int32 `json:"spreadSeconds"`
}
