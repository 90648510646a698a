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
