package orphan

import corev1 "k8s.io/api/core/v1"

// SlimPod is the transform of the informer of Pods: a cluster has many, and all
// that is read is which claims one names, and since when. Whoever wants more of a
// Pod reads it live.
func SlimPod(o any) (any, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	slim := &corev1.Pod{}
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
	slim.CreationTimestamp = p.CreationTimestamp
	for _, v := range p.Spec.Volumes {
		if name := claimOf(p.Name, v); name != "" {
			slim.Spec.Volumes = append(slim.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
	return slim, nil
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
