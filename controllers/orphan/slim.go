package orphan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/slim"
)

// SlimPod is the transform of the informer of Pods: a cluster has many, and all
// that is read is which claims one names, and since when. Whoever wants more of a
// Pod reads it live.
func SlimPod(o any) (any, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	kept := &corev1.Pod{}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = slim.Text(p.Namespace), p.Name, p.UID, p.ResourceVersion
	kept.CreationTimestamp = p.CreationTimestamp
	for _, v := range p.Spec.Volumes {
		if name := claimOf(p.Name, v); name != "" {
			kept.Spec.Volumes = append(kept.Spec.Volumes, corev1.Volume{Name: slim.Text(v.Name), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
	return kept, nil
}

// claimOf is the claim of a Pod's volume; empty: it has none. A generic ephemeral
// volume's is named after Pod and volume.
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming
func claimOf(pod string, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod + "-" + v.Name
	}
	return ""
}
