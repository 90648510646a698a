// Package v1alpha1 holds Holdfast's own kinds: what a platform team writes down
// once and the cluster then holds.
//
//	StoragePolicy   what claims, classes and sets may be, and what may be deleted
//
// The comments of the fields are the texts of `kubectl explain`. A rule that a
// schema marker or CEL can say is said there and nowhere else; what is left is
// in package webhooks/storagepolicy. A field exists from the day that something
// acts on it: nothing is accepted and ignored.
//
// +kubebuilder:object:generate=true
// +groupName=holdfast.dev
package v1alpha1
