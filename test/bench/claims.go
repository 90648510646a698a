package bench

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What all claims have in common.
const (
	// Provisioner is the CSI driver of the claims' volumes.
	Provisioner = "ebs.csi.aws.com"
	claimSize   = "20Gi"
)

// Class is a StorageClass that waits for Pods, grows and retains.
func Class(name string, parameters map[string]string) *storagev1.StorageClass {
	reclaim, binding, expand := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingWaitForFirstConsumer, true
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Provisioner, Parameters: parameters,
		ReclaimPolicy: &reclaim, VolumeBindingMode: &binding, AllowVolumeExpansion: &expand,
	}
}

// Claim is a claim as a chart of a database makes it.
func Claim(namespace, name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": namespace, "app.kubernetes.io/component": "primary",
				"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "postgresql-16.4.1", "team": namespace,
			},
			Annotations: map[string]string{"meta.helm.sh/release-name": namespace, "meta.helm.sh/release-namespace": namespace},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(claimSize)}},
		},
	}
}

// Bind makes a claim and its volume as a cluster has them: bound, labelled and
// annotated by those who work on them, written by several managers.
func (s *Server) Bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, handle string) error {
	if err := s.Client.Create(ctx, claim, client.FieldOwner("kubectl-client-side-apply")); err != nil {
		return fmt.Errorf("make a claim: %w", err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Provisioner, VolumeHandle: handle, FSType: "ext4", VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1764471600000-7311-ebs.csi.aws.com"}}},
		},
	}
	if err := s.Client.Create(ctx, volume, client.FieldOwner("csi-provisioner")); err != nil {
		return fmt.Errorf("make a volume: %w", err)
	}
	claim.Spec.VolumeName = volume.Name
	for k, v := range map[string]string{
		"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes", "volume.kubernetes.io/selected-node": "ip-10-0-1-17.ec2.internal",
		"volume.beta.kubernetes.io/storage-provisioner": Provisioner, "volume.kubernetes.io/storage-provisioner": Provisioner,
	} {
		claim.Annotations[k] = v
	}
	if err := s.Client.Update(ctx, claim, client.FieldOwner("kube-controller-manager")); err != nil {
		return fmt.Errorf("bind a claim: %w", err)
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
	if err := s.Client.Status().Update(ctx, claim, client.FieldOwner("kube-controller-manager")); err != nil {
		return fmt.Errorf("bind a claim: %w", err)
	}
	return nil
}

// BindAll does so with many claims, handle by handle. The first one is made by way
// of the API server, the others are stored as its twins.
func (s *Server) BindAll(ctx context.Context, p *Progress, claims []*corev1.PersistentVolumeClaim, handles func(i int) string) error {
	if len(claims) == 0 {
		return nil
	}
	first, volume := claims[0], &corev1.PersistentVolume{}
	if err := s.Bind(ctx, first, handles(0)); err != nil {
		return err
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: first.Spec.VolumeName}, volume); err != nil {
		return fmt.Errorf("read a volume: %w", err)
	}
	var objects []client.Object
	for i, claim := range claims[1:] {
		twin := Twin(first, claim.Namespace, claim.Name)
		twin.Labels, twin.Spec.VolumeName = claim.Labels, "pvc-"+string(twin.UID)
		maps.Copy(twin.Annotations, claim.Annotations)
		of := Twin(volume, "", twin.Spec.VolumeName)
		of.Spec.ClaimRef.Namespace, of.Spec.ClaimRef.Name, of.Spec.ClaimRef.UID = twin.Namespace, twin.Name, twin.UID
		of.Spec.CSI.VolumeHandle = handles(i + 1)
		*claim = *twin
		objects = append(objects, claim, of)
	}
	return s.Store(ctx, p, objects)
}
