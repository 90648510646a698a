package slim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Meta makes metadata small, in place. Who manages which field is let go.
func Meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.Namespace = Text(m.Namespace)
	m.Labels, m.Annotations = Map(m.Labels), Map(m.Annotations)
	Texts(m.Finalizers)
	for i := range m.OwnerReferences {
		o := &m.OwnerReferences[i]
		o.APIVersion, o.Kind, o.Name, o.UID = Text(o.APIVersion), Text(o.Kind), Text(o.Name), Text(o.UID)
	}
}

// Claim is the transform of the informer of claims. Claims are judged by whatever
// their labels and annotations say, so all of them stay, but for the copy of the
// whole claim that kubectl apply keeps.
func Claim(o any) (any, error) {
	c, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return o, nil
	}
	delete(c.Annotations, corev1.LastAppliedConfigAnnotation)
	Meta(&c.ObjectMeta)
	spec, status := &c.Spec, &c.Status
	Texts(spec.AccessModes)
	Texts(status.AccessModes)
	spec.StorageClassName, spec.VolumeAttributesClassName = Pointer(spec.StorageClassName), Pointer(spec.VolumeAttributesClassName)
	if spec.VolumeMode != nil {
		spec.VolumeMode = modes.Of(*spec.VolumeMode, func() (corev1.PersistentVolumeMode, corev1.PersistentVolumeMode) {
			return *spec.VolumeMode, *spec.VolumeMode
		})
	}
	spec.Resources.Requests, status.Capacity = Sizes(spec.Resources.Requests), Sizes(status.Capacity)
	status.AllocatedResources = Sizes(status.AllocatedResources)
	status.Phase = Text(status.Phase)
	status.CurrentVolumeAttributesClassName = Pointer(status.CurrentVolumeAttributesClassName)
	return c, nil
}

var modes = Shared[corev1.PersistentVolumeMode, corev1.PersistentVolumeMode]{Most: 2}

// size tells lists of one resource apart.
type size struct {
	of     corev1.ResourceName
	amount string
}

// sizes are those of claims and volumes. There are as many as people ask for.
var sizes = Shared[size, corev1.ResourceList]{Most: 1 << 10}

// Sizes is a list of what a claim asks for or has, which is storage and nothing
// else in almost all.
func Sizes(list corev1.ResourceList) corev1.ResourceList {
	if len(list) != 1 {
		return list
	}
	for name, amount := range list {
		text := amount.String()
		return *sizes.Of(size{name, text}, func() (size, corev1.ResourceList) {
			name := Text(name)
			return size{name, text}, corev1.ResourceList{name: resource.MustParse(text)}
		})
	}
	return list
}
