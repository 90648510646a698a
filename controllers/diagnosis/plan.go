package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// tooLong is how long a claim may be Pending or Terminating before it is stuck.
const tooLong = 15 * time.Minute

// idleFor is how long a claim must be unused before it counts as idle.
const idleFor = 7 * 24 * time.Hour

// Reason is why a claim is stuck, as a label of a metric.
type Reason string

// The reasons.
const (
	NoClass         Reason = "NoClass"
	ClassNotFound   Reason = "ClassNotFound"
	NoPod           Reason = "NoPod"
	NotScheduled    Reason = "NotScheduled"
	NotProvisioned  Reason = "NotProvisioned"
	NoVolume        Reason = "NoVolume"
	HeldByPod       Reason = "HeldByPod"
	HeldBySnapshot  Reason = "HeldBySnapshot"
	HeldByFinalizer Reason = "HeldByFinalizer"

	// No labels: these are told by events.
	VolumeGone Reason = "VolumeGone"
	Retained   Reason = "Retained"
	NotDeleted Reason = "NotDeleted"
	Idling     Reason = "Idle"
)

// Stuck is what does not come or go.
type Stuck struct {
	Reason Reason
	Why    string // as a sentence
}

// Around is what surrounds a claim.
type Around struct {
	// ClassName is the class, the default class resolved; empty: none. Class is the
	// class itself; nil: there is none of the name.
	ClassName string
	Class     *storagev1.StorageClass
	// Pods are those that name it, Snapshots those of it that are not cut yet.
	Pods, Snapshots []string
	// PodsSince is when the oldest of the Pods was made; zero: there is none.
	PodsSince time.Time
}

// selectedNode is the annotation by which the scheduler lets the provisioner know
// the node of the first Pod.
// https://kubernetes.io/docs/reference/labels-annotations-taints/#volume-kubernetes-io-selected-node
const selectedNode = "volume.kubernetes.io/selected-node"

// waitsForPod says whether the volume of a claim is made with its first Pod, and
// nobody is asked for one before.
func waitsForPod(c *corev1.PersistentVolumeClaim, a Around) bool {
	return c.Spec.VolumeName == "" && a.Class != nil && a.Class.VolumeBindingMode != nil && *a.Class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Pending says why a claim has been Pending for too long; nil: it has not. One that
// waited for its first Pod has done so since that came.
func Pending(now time.Time, c *corev1.PersistentVolumeClaim, a Around) *Stuck {
	if c.Status.Phase != corev1.ClaimPending && c.Status.Phase != "" || c.DeletionTimestamp != nil {
		return nil
	}
	waits := waitsForPod(c, a)
	since := c.CreationTimestamp.Time
	if waits && a.PodsSince.After(since) {
		since = a.PodsSince
	}
	if now.Sub(since) < tooLong {
		return nil
	}
	stuck := func(r Reason, why string, args ...any) *Stuck {
		return &Stuck{Reason: r, Why: fmt.Sprintf(why, args...)}
	}
	switch {
	case c.Spec.VolumeName != "": // none is made for it, whatever its class
		return stuck(NoVolume, "it waits for PersistentVolume %s, which is not there or does not fit: compare class, size and access modes", c.Spec.VolumeName)
	case a.ClassName == "":
		return stuck(NoClass, "it has no class, and no volume without one fits: name a class, or mark one as default and make the claim again")
	case a.Class == nil:
		return stuck(ClassNotFound, "there is no StorageClass %q, and no volume that names it fits: make it, or make the claim again with another", a.ClassName)
	case len(a.Pods) == 0 && waits:
		return stuck(NoPod, "StorageClass %s makes the volume where the first Pod that names the claim is scheduled, and no Pod does", a.ClassName)
	case a.Class.Provisioner == "kubernetes.io/no-provisioner":
		return stuck(NoVolume, "StorageClass %s makes no volumes, and none of those that are there fits", a.ClassName)
	case waits && c.Annotations[selectedNode] == "":
		return stuck(NotScheduled, "StorageClass %s makes the volume where its Pod is scheduled, and no node was found for Pod %s", a.ClassName, a.Pods[0])
	case len(a.Pods) > 0:
		return stuck(NotProvisioned, "provisioner %s has not made a volume, for which Pod %s waits", a.Class.Provisioner, a.Pods[0])
	}
	return stuck(NotProvisioned, "provisioner %s has not made a volume", a.Class.Provisioner)
}

// Lost says what a claim has lost, by its phase; nil: nothing. Kubernetes gives that
// phase to a claim that was bound, for which its PersistentVolume is not there any
// more, or is another's: the Pods that run go on, and no Pod can start. It binds
// again with a volume of the name that names no other claim.
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/controller/volume/persistentvolume/pv_controller.go (syncBoundClaim)
func Lost(c *corev1.PersistentVolumeClaim) *Stuck {
	if c.Status.Phase != corev1.ClaimLost || c.DeletionTimestamp != nil {
		return nil
	}
	return &Stuck{VolumeGone, fmt.Sprintf("PersistentVolume %s is not there, or belongs to another claim, and no Pod can start with this one. If the driver's volume is still there, make a PersistentVolume of that name with its handle and no claimRef, and the claim binds again within a minute; else make the claim again from a snapshot", cmp.Or(c.Spec.VolumeName, "(none)"))}
}

// Finalizers of Kubernetes and of the snapshot-controller on claims.
const (
	ofPods      = "kubernetes.io/pvc-protection"
	ofSnapshots = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
)

// Terminating says why a claim has been Terminating for too long; nil: it has not.
func Terminating(now time.Time, c *corev1.PersistentVolumeClaim, a Around) *Stuck {
	if c.DeletionTimestamp == nil || now.Sub(c.DeletionTimestamp.Time) < tooLong {
		return nil
	}
	switch {
	case slices.Contains(c.Finalizers, ofPods) && len(a.Pods) > 0:
		return &Stuck{HeldByPod, fmt.Sprintf("Pod %s names it: once that is gone, the claim goes", strings.Join(a.Pods[:min(len(a.Pods), 3)], ", "))}
	case slices.Contains(c.Finalizers, ofSnapshots) && len(a.Snapshots) > 0:
		return &Stuck{HeldBySnapshot, fmt.Sprintf("VolumeSnapshot %s of it is being taken: once that is cut, or deleted, the claim goes", strings.Join(a.Snapshots[:min(len(a.Snapshots), 3)], ", "))}
	}
	return &Stuck{HeldByFinalizer, fmt.Sprintf("its finalizers %s have not been taken off by those who put them there", cmp.Or(strings.Join(c.Finalizers, ", "), "(none)"))}
}

// Released says why a volume has outlived its claim; nil: it has not.
func Released(v *corev1.PersistentVolume) *Stuck {
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		return nil
	}
	of := "its claim"
	if r := v.Spec.ClaimRef; r != nil {
		of = fmt.Sprintf("its claim %s/%s", r.Namespace, r.Name)
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return &Stuck{Retained, of + " is gone, its reclaim policy is Retain, and the volume is billed: set the policy to Delete if nobody needs it, or take spec.claimRef off for a new claim to have it"}
	}
	return &Stuck{NotDeleted, fmt.Sprintf("%s is gone, its reclaim policy is %s, and the driver has not deleted the volume: %s",
		of, v.Spec.PersistentVolumeReclaimPolicy, cmp.Or(v.Status.Message, "its other events may say why"))}
}

// Idle says whether a claim has been unused for long, by what Kubernetes says.
func Idle(now time.Time, c *corev1.PersistentVolumeClaim) bool {
	return c.DeletionTimestamp == nil && c.Status.Phase == corev1.ClaimBound && slices.ContainsFunc(c.Status.Conditions, func(cond corev1.PersistentVolumeClaimCondition) bool {
		return cond.Type == corev1.PersistentVolumeClaimUnused && cond.Status == corev1.ConditionTrue && now.Sub(cond.LastTransitionTime.Time) >= idleFor
	})
}
