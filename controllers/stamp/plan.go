package stamp

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
)

// Stamp says whose a claim is.
type Stamp struct {
	Set      *appsv1.StatefulSet
	Template string
	Ordinal  int32
}

// Owners are the stamps that fit a claim among the living sets of its
// namespace; more than one where names and labels do not tell.
func Owners(claim *corev1.PersistentVolumeClaim, sets []appsv1.StatefulSet) []Stamp {
	var owners []Stamp
	for i := range sets {
		set := &sets[i]
		if set.DeletionTimestamp != nil || !statefulset.Selects(set, claim) {
			continue
		}
		for _, template := range set.Spec.VolumeClaimTemplates {
			if ordinal, ok := statefulset.OrdinalOf(claim.Name, template.Name, set.Name); ok {
				owners = append(owners, Stamp{Set: set, Template: template.Name, Ordinal: ordinal})
			}
		}
	}
	return owners
}

// annotations are the stamp as it is written.
func (s Stamp) annotations() map[string]string {
	return map[string]string{
		v1alpha1.AnnotationSetUID: string(s.Set.UID), v1alpha1.AnnotationSetName: s.Set.Name,
		v1alpha1.AnnotationSetTemplate: s.Template, v1alpha1.AnnotationSetOrdinal: strconv.Itoa(int(s.Ordinal)),
	}
}

// on says whether a claim carries the stamp already.
func (s Stamp) on(claim *corev1.PersistentVolumeClaim) bool {
	for k, v := range s.annotations() {
		if claim.Annotations[k] != v {
			return false
		}
	}
	return true
}

// write puts the stamp on a claim.
func (s Stamp) write(claim *corev1.PersistentVolumeClaim) {
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	maps.Copy(claim.Annotations, s.annotations())
}
