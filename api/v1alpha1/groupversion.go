package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "holdfast.dev", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &StoragePolicy{}, &StoragePolicyList{}, &SnapshotSchedule{}, &SnapshotScheduleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme makes the kinds known to a scheme.
var AddToScheme = schemeBuilder.AddToScheme
