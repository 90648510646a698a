package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Target is a SnapshotTarget made ready to match with.
type Target struct {
	selector labels.Selector
	set      string
	classes  []string
}

// Matches says whether a claim of the schedule's namespace is to be copied.
func (t Target) Matches(claim *corev1.PersistentVolumeClaim) bool {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	return t.selector.Matches(labels.Set(claim.Labels)) &&
		(t.set == "" || claim.Annotations[v1alpha1.AnnotationSetName] == t.set) &&
		(len(t.classes) == 0 || slices.Contains(t.classes, class))
}

// defaultClassAnnotation marks the class of a driver that snapshots without one
// get (https://kubernetes.io/docs/concepts/storage/volume-snapshot-classes).
const defaultClassAnnotation = "snapshot.storage.kubernetes.io/is-default-class"

// defaultGroupClassAnnotation is the same of groups (external-snapshotter
// pkg/utils, IsDefaultGroupSnapshotClassAnnotation).
const defaultGroupClassAnnotation = "groupsnapshot.storage.kubernetes.io/is-default-class"

// Candidate is a claim that can be copied, and how.
type Candidate struct {
	Claim  *corev1.PersistentVolumeClaim
	Driver string
	// Class is the name of the VolumeSnapshotClass; empty with consistency Group.
	Class string
	// GroupClass is the name of the VolumeGroupSnapshotClass; empty: the claim is
	// copied by a VolumeSnapshot.
	GroupClass string
}

// Classes are those of a cluster.
type Classes struct {
	Single []snapshotv1.VolumeSnapshotClass
	Group  []groupv1.VolumeGroupSnapshotClass
}

// Judge says how a claim can be copied; else the entry for the status that says
// why it cannot. volume is the PersistentVolume that it is bound to; nil: it is
// not there.
func Judge(spec *v1alpha1.SnapshotScheduleSpec, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, classes Classes) (Candidate, *v1alpha1.ClaimSnapshots) {
	cannot := func(reason v1alpha1.ClaimReason, message string, args ...any) (Candidate, *v1alpha1.ClaimSnapshots) {
		return Candidate{}, &v1alpha1.ClaimSnapshots{UID: claim.UID, Name: claim.Name, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	if why, out := claim.Annotations[v1alpha1.AnnotationNoSnapshots]; out {
		return cannot(v1alpha1.ClaimOptedOut, "the claim's annotation %s says: %s", v1alpha1.AnnotationNoSnapshots, cmp.Or(strings.TrimSpace(why), "(no reason)"))
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return cannot(v1alpha1.ClaimDeleting, "the claim is being deleted")
	case claim.Status.Phase != corev1.ClaimBound:
		return cannot(v1alpha1.ClaimNotBound, "the claim is %s, want Bound", cmp.Or(claim.Status.Phase, corev1.ClaimPending))
	case volume == nil:
		return cannot(v1alpha1.ClaimVolumeNotFound, "the claim's PersistentVolume %q is not there", claim.Spec.VolumeName)
	case volume.Spec.CSI == nil:
		return cannot(v1alpha1.ClaimNoSnapshots, "PersistentVolume %q is not a CSI driver's: it has no spec.csi, and only CSI volumes can be copied", volume.Name)
	}
	c := Candidate{Claim: claim, Driver: volume.Spec.CSI.Driver}
	var no *refusedClass
	if spec.Consistency == v1alpha1.GroupCopies || spec.Consistency == v1alpha1.BestEffortGroups {
		if c.GroupClass, no = groupClass(spec, c.Driver, classes.Group); no != nil && spec.Consistency == v1alpha1.GroupCopies {
			return cannot(no.reason, "%s", no.message)
		}
	}
	if spec.Consistency != v1alpha1.GroupCopies {
		if c.Class, no = singleClass(spec, claim, c.Driver, classes.Single); no != nil && c.GroupClass == "" {
			return cannot(no.reason, "%s", no.message)
		}
	}
	return c, nil
}

// refusedClass says why there is no class for a claim.
type refusedClass struct {
	reason  v1alpha1.ClaimReason
	message string
}

func noClass(reason v1alpha1.ClaimReason, message string, args ...any) (string, *refusedClass) {
	return "", &refusedClass{reason, fmt.Sprintf(message, args...)}
}

// singleClass is the VolumeSnapshotClass of a claim.
func singleClass(spec *v1alpha1.SnapshotScheduleSpec, claim *corev1.PersistentVolumeClaim, driver string, classes []snapshotv1.VolumeSnapshotClass) (string, *refusedClass) {
	ofDriver := slices.DeleteFunc(slices.Clone(classes), func(c snapshotv1.VolumeSnapshotClass) bool { return c.Driver != driver })
	if len(ofDriver) == 0 {
		return noClass(v1alpha1.ClaimNoSnapshots, "there is no VolumeSnapshotClass of driver %s: make one if the driver can snapshot, else take the claim out of the target", driver)
	}
	name, from := named(spec, claim, driver)
	if name != "" {
		for _, c := range classes {
			switch {
			case c.Name != name:
			case c.Driver != driver:
				return noClass(v1alpha1.ClaimClassOfOther, "%s is %q, a class of driver %s, but the volume is of driver %s: name a class of that driver in snapshotClassNamesByDriver", from, name, c.Driver, driver)
			default:
				return name, nil
			}
		}
		return noClass(v1alpha1.ClaimClassNotFound, "%s is %q, and there is no VolumeSnapshotClass of that name; driver %s has %s", from, name, driver, listed(ofDriver))
	}
	marked := slices.DeleteFunc(slices.Clone(ofDriver), func(c snapshotv1.VolumeSnapshotClass) bool { return c.Annotations[defaultClassAnnotation] != "true" })
	switch len(marked) {
	case 1:
		return marked[0].Name, nil
	case 0:
		return noClass(v1alpha1.ClaimNoClass, "no VolumeSnapshotClass of driver %s is marked as default: name one of %s in snapshotClassName or snapshotClassNamesByDriver", driver, listed(ofDriver))
	}
	return noClass(v1alpha1.ClaimAmbiguousClass, "VolumeSnapshotClasses %s of driver %s are all marked as default: leave one, or name one in snapshotClassName", listed(marked), driver)
}

// groupClass is the VolumeGroupSnapshotClass of a driver's groups.
func groupClass(spec *v1alpha1.SnapshotScheduleSpec, driver string, classes []groupv1.VolumeGroupSnapshotClass) (string, *refusedClass) {
	ofDriver := slices.DeleteFunc(slices.Clone(classes), func(c groupv1.VolumeGroupSnapshotClass) bool { return c.Driver != driver })
	if len(ofDriver) == 0 {
		return noClass(v1alpha1.ClaimNoGroups, "there is no VolumeGroupSnapshotClass of driver %s: make one if the driver can snapshot groups, else set consistency to BestEffortGroup or Individual", driver)
	}
	if name := spec.GroupSnapshotClassName; name != "" {
		for _, c := range classes {
			switch {
			case c.Name != name:
			case c.Driver != driver:
				return noClass(v1alpha1.ClaimGroupClassOfOther, "groupSnapshotClassName is %q, a class of driver %s, but the volume is of driver %s: mark a class of each driver as default and leave the name out, or make a schedule for each driver", name, c.Driver, driver)
			default:
				return name, nil
			}
		}
		return noClass(v1alpha1.ClaimGroupClassNotFound, "groupSnapshotClassName is %q, and there is no VolumeGroupSnapshotClass of that name; driver %s has %s", name, driver, listed(ofDriver))
	}
	marked := slices.DeleteFunc(slices.Clone(ofDriver), func(c groupv1.VolumeGroupSnapshotClass) bool {
		return c.Annotations[defaultGroupClassAnnotation] != "true"
	})
	switch len(marked) {
	case 1:
		return marked[0].Name, nil
	case 0:
		return noClass(v1alpha1.ClaimNoGroupClass, "no VolumeGroupSnapshotClass of driver %s is marked as default: name one of %s in groupSnapshotClassName", driver, listed(ofDriver))
	}
	return noClass(v1alpha1.ClaimAmbiguousGroupClass, "VolumeGroupSnapshotClasses %s of driver %s are all marked as default: leave one, or name one in groupSnapshotClassName", listed(marked), driver)
}

// named is the class that somebody named for a claim, and where; empty: nobody did.
func named(spec *v1alpha1.SnapshotScheduleSpec, claim *corev1.PersistentVolumeClaim, driver string) (name, from string) {
	if name := claim.Annotations[v1alpha1.AnnotationSnapshotClass]; name != "" {
		return name, "the claim's annotation " + v1alpha1.AnnotationSnapshotClass
	}
	for _, c := range spec.SnapshotClassNamesByDriver {
		if c.Driver == driver {
			return c.Name, "snapshotClassNamesByDriver"
		}
	}
	return spec.SnapshotClassName, "snapshotClassName"
}

// listed are the names of classes.
func listed[C any, P interface {
	*C
	metav1.Object
}](classes []C) string {
	var names []string
	for i := range classes {
		names = append(names, fmt.Sprintf("%q", P(&classes[i]).GetName()))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
