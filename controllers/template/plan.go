package template

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Observed is what there is to plan by, read from the API server.
type Observed struct {
	// Set is the set of that name; nil: there is none.
	Set *appsv1.StatefulSet
	// NamespaceGoing: its namespace is gone, or goes with all that is in it.
	NamespaceGoing bool
	// Record is what is saved of a set of that name; nil: nothing is.
	Record *Record
	// Recreate names the templates whose policy says Recreate.
	Recreate []string
	// Claims are those of the namespace, Pods those that the set's selector picks.
	Claims []corev1.PersistentVolumeClaim
	Pods   []corev1.Pod
	// Tried is what dry runs of this very set have shown; nil: they were not made.
	Tried *Tried
	// Refused: the API server does not take the set with the new sizes after all.
	Refused bool
}

// Tried is what dry runs have shown.
type Tried struct {
	// Native: the API server lets templates be changed.
	Native bool
	// Refused says why the set cannot be made anew; empty: it can.
	Refused string
}

// Kind is what a step does.
type Kind string

// The steps, in the order of the table in doc.go.
const (
	Idle    Kind = "Idle"    // nothing
	Wait    Kind = "Wait"    // for what the step says
	Blocked Kind = "Blocked" // until somebody changes what the step says
	Try     Kind = "Try"     // by dry runs
	Change  Kind = "Change"  // the template, as the API server takes it
	Save    Kind = "Save"    // the set
	Retain  Kind = "Retain"  // the claims, when the set is deleted
	Release Kind = "Release" // the claims from the set
	Delete  Kind = "Delete"  // the set alone
	Reopen  Kind = "Reopen"  // the record: the set was not deleted
	Create  Kind = "Create"  // the set
	Note    Kind = "Note"    // that it was created
	Finish  Kind = "Finish"  // put back what was changed, and drop the record
	Abort   Kind = "Abort"   // put back what was changed, and drop the record
	Forget  Kind = "Forget"  // drop the record
	Foreign Kind = "Foreign" // a set that is somebody else's is in the way
)

// Step is what to do next.
type Step struct {
	Kind Kind
	// Why says what the step is for, or waits for.
	Why string
	// Sizes are those that templates are to have.
	Sizes map[string]resource.Quantity
}

// Decide says what to do next, as the table in doc.go has it.
func Decide(seen Observed) Step {
	if seen.Record == nil {
		return begin(seen)
	}
	switch seen.Record.Stage {
	case Deleting:
		return deleting(seen)
	case Created:
		return created(seen)
	case Superseded:
		if seen.Set == nil {
			return Step{Kind: Idle}
		}
		return Step{Kind: Foreign}
	default:
		return saved(seen)
	}
}

// begin decides for a set of which nothing is saved.
func begin(seen Observed) Step {
	if seen.Set == nil || seen.Set.DeletionTimestamp != nil {
		return Step{Kind: Idle}
	}
	sizes, problem := may(seen)
	switch {
	case problem.Kind != "":
		return problem
	case seen.Tried == nil:
		return Step{Kind: Try, Sizes: sizes}
	case seen.Tried.Native:
		return Step{Kind: Change, Sizes: sizes}
	case seen.Tried.Refused != "":
		return Step{Kind: Blocked, Why: seen.Tried.Refused}
	}
	return Step{Kind: Save, Sizes: sizes}
}

// may says to which sizes a set may be made anew, or why it may not: Idle and
// Blocked until somebody changes something, Wait for a while.
func may(seen Observed) (map[string]resource.Quantity, Step) {
	set := seen.Set
	sizes := map[string]resource.Quantity{}
	for _, d := range Compare(set, seen.Claims) {
		if !slices.Contains(seen.Recreate, d.Template) || d.Size.Cmp(d.Asked) < 0 { // a template is never made smaller
			continue
		}
		sizes[d.Template] = d.Size
	}
	if len(sizes) == 0 {
		return nil, Step{Kind: Idle, Why: "no template asks for less than its claims have"}
	}
	if owner := ownerOf(set); owner != "" && strings.TrimSpace(set.Annotations[v1alpha1.AnnotationAllowRecreate]) == "" {
		return nil, Step{Kind: Blocked, Why: fmt.Sprintf("%s: write the size into the template there, or let the set be made anew with the annotation %s and a reason", owner, v1alpha1.AnnotationAllowRecreate)}
	}
	if len(set.Finalizers) > 0 {
		return nil, Step{Kind: Blocked, Why: fmt.Sprintf("it has the finalizer %s, which would hold it up half-way: remove it", set.Finalizers[0])}
	}
	if n := set.Status.CollisionCount; n != nil && *n > 0 {
		return nil, Step{Kind: Blocked, Why: "the hash of a revision of its collided once (status.collisionCount): made anew, its Pods would restart"}
	}
	waiting := Unsettled(set, seen.Claims)
	if waiting == "" {
		waiting = unstable(set, seen.Pods)
	}
	if waiting != "" {
		return nil, Step{Kind: Wait, Why: waiting}
	}
	return sizes, Step{}
}

// unstable says why a set is not as it is to be; empty: it is.
func unstable(set *appsv1.StatefulSet, pods []corev1.Pod) string {
	n, s := replicas(set), set.Status
	switch {
	case s.ObservedGeneration != set.Generation:
		return "the StatefulSet controller has not seen its newest state"
	case s.Replicas != n || s.ReadyReplicas != n || s.AvailableReplicas != n || s.UpdatedReplicas != n:
		return fmt.Sprintf("of %d Pods %d are there, %d ready, %d available and %d of the newest revision", n, s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas)
	}
	members := membersOf(set, pods)
	if int32(len(members)) != n {
		return fmt.Sprintf("%d Pods are there, and it is to have %d", len(members), n)
	}
	for _, p := range members {
		switch {
		case p.DeletionTimestamp != nil:
			return fmt.Sprintf("Pod %s is being deleted", p.Name)
		case !controlled(p, string(set.UID)):
			return fmt.Sprintf("Pod %s is not under its control", p.Name)
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] != s.UpdateRevision:
			return fmt.Sprintf("Pod %s is of revision %s, and the newest is %s", p.Name, p.Labels[appsv1.ControllerRevisionHashLabelKey], s.UpdateRevision)
		}
	}
	return ""
}

// membersOf are the Pods that are a set's by their names.
func membersOf(set *appsv1.StatefulSet, pods []corev1.Pod) []*corev1.Pod {
	var members []*corev1.Pod
	for i := range pods {
		if isMember(set.Name, pods[i].Name) {
			members = append(members, &pods[i])
		}
	}
	return members
}

// isMember says whether a Pod is by its name one of a set: <set>-<ordinal>.
func isMember(set, pod string) bool {
	digits, is := strings.CutPrefix(pod, set+"-")
	return is && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// saved decides for a set that is saved and was not deleted.
func saved(seen Observed) Step {
	set, record := seen.Set, seen.Record
	switch {
	case set == nil, set.UID != record.UID:
		return Step{Kind: Forget, Why: "it was deleted by somebody else"}
	case set.DeletionTimestamp != nil:
		return Step{Kind: Forget, Why: "it is being deleted by somebody else"}
	}
	sizes, problem := may(seen)
	switch {
	case problem.Kind == Wait:
		return problem
	case problem.Kind != "":
		return Step{Kind: Abort, Why: problem.Why}
	case !record.is(set) || !equality.Semantic.DeepEqual(record.Sizes, sizes):
		return Step{Kind: Save, Sizes: sizes}
	case whenDeleted(set) != appsv1.RetainPersistentVolumeClaimRetentionPolicyType:
		return Step{Kind: Retain}
	case len(ownedBy(set.UID, seen.Claims)) > 0:
		return Step{Kind: Release}
	case seen.Tried == nil:
		return Step{Kind: Try, Sizes: sizes}
	case seen.Tried.Refused != "" || seen.Tried.Native:
		return Step{Kind: Abort, Why: seen.Tried.Refused}
	}
	return Step{Kind: Delete}
}

// deleting decides for a set that was about to be deleted when it was last heard of.
func deleting(seen Observed) Step {
	set, record := seen.Set, seen.Record
	switch {
	case set == nil && seen.NamespaceGoing:
		return Step{Kind: Forget, Why: "its namespace was deleted"}
	case set == nil && cascaded(seen):
		return Step{Kind: Forget, Why: "it was deleted with its Pods by somebody else"}
	case set == nil:
		return Step{Kind: Create, Sizes: record.sizes(seen.Refused)}
	case set.UID == record.UID && set.DeletionTimestamp == nil:
		return Step{Kind: Reopen, Why: "it was not deleted"}
	case set.UID == record.UID && slices.Contains(set.Finalizers, metav1.FinalizerOrphanDependents):
		return Step{Kind: Wait, Why: "the garbage collector lets go its Pods"}
	case set.UID == record.UID:
		return Step{Kind: Forget, Why: "it is being deleted by somebody else"}
	case set.Annotations[v1alpha1.AnnotationRecreatedFrom] == string(record.UID):
		return Step{Kind: Note}
	}
	return Step{Kind: Foreign}
}

// cascaded says whether a set that is gone was deleted with its Pods, or another
// one that had taken them: where only the set is, the garbage collector takes
// their owner away before the set goes.
func cascaded(seen Observed) bool {
	owned, free := 0, 0
	for i := range seen.Pods {
		switch {
		case !isMember(seen.Record.Name, seen.Pods[i].Name):
		case metav1.GetControllerOfNoCopy(&seen.Pods[i]) != nil:
			owned++
		default:
			free++
		}
	}
	return owned > 0 && free == 0
}

// created decides for a set that was made anew.
func created(seen Observed) Step {
	set, record := seen.Set, seen.Record
	switch {
	case set == nil || set.UID != record.NewUID:
		return Step{Kind: Forget, Why: "it was deleted by somebody else, after it was made anew"}
	case set.DeletionTimestamp != nil:
		return Step{Kind: Forget, Why: "it is being deleted by somebody else, after it was made anew"}
	case set.Status.ObservedGeneration != set.Generation:
		return Step{Kind: Wait, Why: "the StatefulSet controller has not seen it yet"}
	}
	for _, p := range membersOf(set, seen.Pods) {
		if p.DeletionTimestamp == nil && !controlled(p, string(set.UID)) {
			return Step{Kind: Wait, Why: fmt.Sprintf("Pod %s is not under its control yet", p.Name)}
		}
	}
	return Step{Kind: Finish}
}

// whenDeleted is what becomes of a set's claims when it is deleted.
func whenDeleted(set *appsv1.StatefulSet) appsv1.PersistentVolumeClaimRetentionPolicyType {
	if p := set.Spec.PersistentVolumeClaimRetentionPolicy; p != nil && p.WhenDeleted != "" {
		return p.WhenDeleted
	}
	return appsv1.RetainPersistentVolumeClaimRetentionPolicyType // the API's default
}

// ownedBy are the claims that name an object as their owner.
func ownedBy(uid types.UID, claims []corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	var owned []*corev1.PersistentVolumeClaim
	for i := range claims {
		if slices.ContainsFunc(claims[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid }) {
			owned = append(owned, &claims[i])
		}
	}
	return owned
}
