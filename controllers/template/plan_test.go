package template

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// stableSet is a set of three replicas with one template, as it is when all is well.
func stableSet(size string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg", UID: "old", ResourceVersion: "7", Generation: 2}}
	s.Spec.Replicas = ptr.To[int32](3)
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}}
	s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Retain"}
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	s.Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "pg-1", UpdateRevision: "pg-1"}
	return s
}

func claimOf(set *appsv1.StatefulSet, ordinal int, size string) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: fmt.Sprintf("data-%s-%d", set.Name, ordinal),
		Annotations: map[string]string{v1alpha1.AnnotationSetUID: string(set.UID), v1alpha1.AnnotationSetName: set.Name, v1alpha1.AnnotationSetTemplate: "data"},
	}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Status.Phase = corev1.ClaimBound
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return c
}

func podOf(set *appsv1.StatefulSet, ordinal int) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, ordinal), UID: types.UID(fmt.Sprint("pod-", ordinal)),
		Labels:          map[string]string{"app": "pg", appsv1.ControllerRevisionHashLabelKey: set.Status.UpdateRevision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true)}},
	}}
}

// grown is a stable set whose claims have grown from 10Gi to 20Gi.
func grown() Observed {
	set := stableSet("10Gi")
	seen := Observed{Set: set, Recreate: []string{"data"}}
	for i := range 3 {
		seen.Claims = append(seen.Claims, claimOf(set, i, "20Gi"))
		seen.Pods = append(seen.Pods, podOf(set, i))
	}
	return seen
}

// at is a grown set that is being made anew, at a stage.
func at(stage Stage) Observed {
	seen := grown()
	seen.Record = recordOf(seen.Set, map[string]resource.Quantity{"data": resource.MustParse("20Gi")}, seen.Pods, nil)
	seen.Record.Stage = stage
	if stage == Saved {
		return seen
	}
	for i := range seen.Pods {
		seen.Pods[i].OwnerReferences = nil
	}
	seen.Set = nil
	if stage == Created {
		seen.Record.NewUID = "new"
		seen.Set = ours()
		for i := range seen.Pods {
			seen.Pods[i].OwnerReferences = podOf(seen.Set, i).OwnerReferences
		}
	}
	return seen
}

// ours is the set as it was made anew.
func ours() *appsv1.StatefulSet {
	s := stableSet("20Gi")
	s.UID = "new"
	s.Annotations = map[string]string{v1alpha1.AnnotationRecreatedFrom: "old"}
	return retaining(s)
}

func TestDecide(t *testing.T) {
	passed := &Tried{}
	for name, tc := range map[string]struct {
		why    string
		seen   Observed
		change func(*Observed)
		want   Kind
		says   string
	}{
		"nothing grew":       {"a template that fits is left alone", grown(), func(o *Observed) { o.Set.Spec.VolumeClaimTemplates = stableSet("20Gi").Spec.VolumeClaimTemplates }, Idle, ""},
		"larger template":    {"a template is never made smaller", grown(), func(o *Observed) { o.Set.Spec.VolumeClaimTemplates = stableSet("30Gi").Spec.VolumeClaimTemplates }, Idle, ""},
		"other policy":       {"Recreate is asked for, or nothing is done", grown(), func(o *Observed) { o.Recreate = nil }, Idle, ""},
		"not ours":           {"a claim without the set's stamp says nothing of it", grown(), func(o *Observed) { unstamp(o.Claims) }, Idle, ""},
		"no set":             {"nothing to do", Observed{}, nil, Idle, ""},
		"going":              {"a set that goes is left alone", grown(), func(o *Observed) { o.Set.DeletionTimestamp = &metav1.Time{} }, Idle, ""},
		"Argo CD":            {"C17: report only", grown(), func(o *Observed) { o.Set.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"} }, Blocked, "Argo CD keeps it"},
		"Argo CD, by label":  {"it is seen by who writes its fields", grown(), func(o *Observed) { o.Set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "argocd-controller"}} }, Blocked, "argocd-controller writes"},
		"Flux":               {"likewise", grown(), func(o *Observed) { o.Set.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "x"} }, Blocked, "Flux"},
		"Helm":               {"likewise", grown(), func(o *Observed) { o.Set.Annotations = map[string]string{"meta.helm.sh/release-name": "x"} }, Blocked, "Helm"},
		"some tool":          {"likewise", grown(), func(o *Observed) { o.Set.Labels = map[string]string{managedBy: "strimzi"} }, Blocked, "strimzi"},
		"operator":           {"likewise", grown(), func(o *Observed) { o.Set.OwnerReferences = []metav1.OwnerReference{{Kind: "Kafka", Name: "k"}} }, Blocked, "Kafka k owns it"},
		"allowed":            {"its owner has said so", grown(), func(o *Observed) { helmAllowed(o.Set, "we write it there too") }, Try, ""},
		"allowed, no reason": {"a reason is wanted", grown(), func(o *Observed) { helmAllowed(o.Set, " ") }, Blocked, "with the annotation holdfast.dev/allow-recreate and a reason"},
		"finalizer":          {"it would stay half deleted", grown(), func(o *Observed) { o.Set.Finalizers = []string{"x/y"} }, Blocked, "x/y"},
		"collision":          {"its Pods would restart", grown(), func(o *Observed) { o.Set.Status.CollisionCount = ptr.To[int32](1) }, Blocked, "collided"},
		"one claim behind":   {"all at one size", grown(), func(o *Observed) { o.Claims[1] = claimOf(o.Set, 1, "10Gi") }, Wait, "claim data-pg-1 asks for 10Gi"},
		"claim grows":        {"the volume first", grown(), func(o *Observed) { o.Claims[1].Status.Capacity = claimOf(o.Set, 1, "10Gi").Status.Capacity }, Wait, "data-pg-1 grows from 10Gi"},
		"claim is missing":   {"likewise", grown(), func(o *Observed) { o.Claims = o.Claims[:2] }, Wait, "2 of 3 claims"},
		"file system grows": {"likewise", grown(), func(o *Observed) {
			o.Claims[0].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
		}, Wait, "being modified"},
		"another template": {"claims of a template that does not differ count too", grown(), func(o *Observed) {
			withWAL(o)
			o.Claims[4].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimVolumeModifyingVolume, Status: corev1.ConditionTrue}}
		}, Wait, "of volumeClaimTemplate wal, claim wal-pg-1 is being modified"},
		"another template, behind": {"likewise", grown(), func(o *Observed) {
			withWAL(o)
			o.Claims[5].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
		}, Wait, "claim wal-pg-2 asks for 1Gi"},
		"another template, settled": {"it is not in the way", grown(), withWAL, Try, ""},
		"claim goes":                {"likewise", grown(), func(o *Observed) { o.Claims[0].DeletionTimestamp = &metav1.Time{} }, Wait, "being deleted"},
		"claim of another":          {"an ordinal that it has no more does not hold it up", grown(), func(o *Observed) { o.Claims = append(o.Claims, claimOf(o.Set, 3, "10Gi")) }, Try, ""},
		"not observed":              {"stable", grown(), func(o *Observed) { o.Set.Generation++ }, Wait, "newest state"},
		"not ready":                 {"stable", grown(), func(o *Observed) { o.Set.Status.ReadyReplicas = 2 }, Wait, "2 ready"},
		"not available":             {"stable", grown(), func(o *Observed) { o.Set.Status.AvailableReplicas = 2 }, Wait, "2 available"},
		"rolling":                   {"stable", grown(), func(o *Observed) { o.Set.Status.UpdatedReplicas = 1 }, Wait, "1 of the newest"},
		"Pod is gone":               {"stable", grown(), func(o *Observed) { o.Pods = o.Pods[:2] }, Wait, "2 Pods are there"},
		"Pod goes":                  {"stable", grown(), func(o *Observed) { o.Pods[0].DeletionTimestamp = &metav1.Time{} }, Wait, "Pod pg-0 is being deleted"},
		"Pod of old revision":       {"it would restart", grown(), func(o *Observed) { o.Pods[0].Labels[appsv1.ControllerRevisionHashLabelKey] = "pg-0" }, Wait, "Pod pg-0 is of revision"},
		"Pod of somebody else":      {"it would not be adopted", grown(), func(o *Observed) { o.Pods[0].OwnerReferences[0].UID = "x" }, Wait, "Pod pg-0 is not under its control"},
		"another's Pod":             {"that is none of its members", grown(), func(o *Observed) { p := podOf(o.Set, 0); p.Name = "pg-web-0"; o.Pods = append(o.Pods, p) }, Try, ""},
		"untried":                   {"dry runs come before all writes", grown(), nil, Try, ""},
		"refused":                   {"nothing is begun", grown(), func(o *Observed) { o.Tried = &Tried{Refused: "no"} }, Blocked, "no"},
		"native":                    {"the API server lets it", grown(), func(o *Observed) { o.Tried = &Tried{Native: true} }, Change, ""},
		"tried":                     {"saved before the first change", grown(), func(o *Observed) { o.Tried = passed }, Save, ""},

		"saved":          {"no claim may go with it", at(Saved), nil, Retain, ""},
		"saved, retains": {"no claim names it as its owner", at(Saved), func(o *Observed) { retaining(o.Set); o.Claims[2].OwnerReferences = podOf(o.Set, 0).OwnerReferences }, Release, ""},
		"saved, old ordinal's": {"nor one of an ordinal that it has no more", at(Saved), func(o *Observed) {
			retaining(o.Set)
			o.Claims = append(o.Claims, owned(claimOf(o.Set, 7, "10Gi"), o.Set))
		}, Release, ""},
		"saved, unstamped owned": {"nor one that it has not stamped", at(Saved), func(o *Observed) {
			retaining(o.Set)
			c := owned(claimOf(o.Set, 7, "1Gi"), o.Set)
			c.Annotations = nil
			o.Claims = append(o.Claims, c)
		}, Release, ""},
		"saved, free, untried":     {"it is tried again as it is now", at(Saved), func(o *Observed) { retaining(o.Set) }, Try, ""},
		"saved, free, tried":       {"then it goes", at(Saved), func(o *Observed) { retaining(o.Set); o.Tried = passed }, Delete, ""},
		"saved, then changed":      {"the copy is to be what its user wants", at(Saved), func(o *Observed) { retaining(o.Set); o.Tried = passed; o.Set.Spec.MinReadySeconds = 5 }, Save, ""},
		"saved, then annotated":    {"likewise", at(Saved), func(o *Observed) { retaining(o.Set); o.Tried = passed; o.Set.Annotations = map[string]string{"a": "b"} }, Save, ""},
		"saved, then grown":        {"with the newest sizes", at(Saved), func(o *Observed) { retaining(o.Set); o.Tried = passed; regrow(o) }, Save, ""},
		"saved, then Delete":       {"a set that had Retain, and whose user wants Delete now, gets it back", at(Saved), func(o *Observed) { o.Record.WhenDeleted = "Retain" }, Save, ""},
		"saved, then unstable":     {"it waits", at(Saved), func(o *Observed) { o.Set.Status.ReadyReplicas = 1 }, Wait, ""},
		"saved, then owned":        {"it is as it was again", at(Saved), func(o *Observed) { o.Set.Labels = map[string]string{managedBy: "Helm"} }, Abort, "Helm"},
		"saved, then refused":      {"likewise", at(Saved), func(o *Observed) { retaining(o.Set); o.Tried = &Tried{Refused: "no"} }, Abort, "no"},
		"saved, then other policy": {"likewise", at(Saved), func(o *Observed) { o.Recreate = nil }, Abort, ""},
		"saved, then deleted":      {"its user deleted it: it is not made again", at(Saved), func(o *Observed) { o.Set = nil }, Forget, "deleted by somebody else"},
		"saved, then going":        {"likewise", at(Saved), func(o *Observed) { o.Set.DeletionTimestamp = &metav1.Time{} }, Forget, "being deleted"},
		"saved, then made by hand": {"likewise", at(Saved), func(o *Observed) { o.Set.UID = "other" }, Forget, ""},
		"deleting, not yet":        {"the deletion was refused, or never asked for", at(Deleting), func(o *Observed) { o.Set = stableSet("10Gi") }, Reopen, ""},
		"deleting, orphaning":      {"the garbage collector has work to do", at(Deleting), func(o *Observed) { o.Set = going(metav1.FinalizerOrphanDependents) }, Wait, "garbage collector"},
		"deleting, in foreground":  {"that is no deletion of ours", at(Deleting), func(o *Observed) { o.Set = going(metav1.FinalizerDeleteDependents) }, Forget, "somebody else"},
		"deleting, gone":           {"it is made again, whoever leads", at(Deleting), nil, Create, ""},
		"deleting, gone, no Pods":  {"in doubt it is made again", at(Deleting), func(o *Observed) { o.Pods = nil }, Create, ""},
		"deleting, with its Pods":  {"its user deleted it in that very moment", at(Deleting), func(o *Observed) { ownAll(o.Pods) }, Forget, "with its Pods"},
		"deleting, with another's": {"another set had taken them", at(Deleting), func(o *Observed) {
			ownAll(o.Pods)
			for i := range o.Pods {
				o.Pods[i].OwnerReferences[0].UID = "third"
			}
		}, Forget, "with its Pods"},
		"deleting, one left behind": {"the garbage collector missed one", at(Deleting), func(o *Observed) { ownAll(o.Pods[:1]) }, Create, ""},
		"deleting, namespace goes":  {"nothing can be made there", at(Deleting), func(o *Observed) { o.NamespaceGoing = true }, Forget, "namespace"},
		"deleting, made anew":       {"the leader died before it could note it", at(Deleting), func(o *Observed) { o.Set = ours() }, Note, ""},
		"deleting, somebody's":      {"a set of the name is never overwritten", at(Deleting), func(o *Observed) { o.Set = ours(); o.Set.Annotations = nil }, Foreign, ""},
		"deleting, of another time": {"a mark of an earlier time is none", at(Deleting), func(o *Observed) { o.Set = ours(); o.Set.Annotations[v1alpha1.AnnotationRecreatedFrom] = "older" }, Foreign, ""},
		"superseded":                {"the record is for people", at(Superseded), func(o *Observed) { o.Set = stableSet("10Gi"); o.Set.UID = "theirs" }, Foreign, ""},
		"superseded, and gone":      {"it is not made again by it", at(Superseded), nil, Idle, ""},
		"created, Pods are alone":   {"all are adopted first", at(Created), func(o *Observed) { o.Pods[2].OwnerReferences = nil }, Wait, "Pod pg-2"},
		"created, not observed":     {"likewise", at(Created), func(o *Observed) { o.Set.Status.ObservedGeneration = 0 }, Wait, "has not seen it"},
		"created, a Pod goes":       {"it will not be adopted", at(Created), func(o *Observed) { o.Pods[2].OwnerReferences = nil; o.Pods[2].DeletionTimestamp = &metav1.Time{} }, Finish, ""},
		"created, all adopted":      {"then all is put back", at(Created), nil, Finish, ""},
		"created, then deleted":     {"its user deleted it: it is not made again", at(Created), func(o *Observed) { o.Set = nil }, Forget, "deleted by somebody else"},
		"created, then going":       {"likewise", at(Created), func(o *Observed) { o.Set.DeletionTimestamp = &metav1.Time{} }, Forget, "being deleted"},
		"created, then by hand":     {"likewise", at(Created), func(o *Observed) { o.Set.UID = "third" }, Forget, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := tc.seen
			if tc.change != nil {
				tc.change(&seen)
			}
			got := Decide(seen)
			if got.Kind != tc.want || !strings.Contains(got.Why, tc.says) {
				t.Errorf("%s: %s (%s), want %s (%s)", tc.why, got.Kind, got.Why, tc.want, tc.says)
			}
		})
	}
}

// withWAL adds a template that asks for what its three claims have, 2Gi.
func withWAL(o *Observed) {
	wal := *o.Set.Spec.VolumeClaimTemplates[0].DeepCopy()
	wal.Name = "wal"
	wal.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	o.Set.Spec.VolumeClaimTemplates = append(o.Set.Spec.VolumeClaimTemplates, wal)
	for i := range 3 {
		c := claimOf(o.Set, i, "2Gi")
		c.Name, c.Annotations[v1alpha1.AnnotationSetTemplate] = fmt.Sprintf("wal-pg-%d", i), "wal"
		o.Claims = append(o.Claims, c)
	}
}

func unstamp(claims []corev1.PersistentVolumeClaim) {
	for i := range claims {
		delete(claims[i].Annotations, v1alpha1.AnnotationSetUID)
	}
}

func helmAllowed(set *appsv1.StatefulSet, reason string) {
	set.Annotations = map[string]string{"meta.helm.sh/release-name": "x", v1alpha1.AnnotationAllowRecreate: reason}
}

func owned(c corev1.PersistentVolumeClaim, set *appsv1.StatefulSet) corev1.PersistentVolumeClaim {
	c.OwnerReferences = podOf(set, 0).OwnerReferences
	return c
}

func regrow(o *Observed) {
	for i := range o.Claims {
		o.Claims[i] = claimOf(o.Set, i, "30Gi")
	}
}

func ownAll(pods []corev1.Pod) {
	for i := range pods {
		pods[i].OwnerReferences = podOf(stableSet("10Gi"), i).OwnerReferences
	}
}

func going(finalizer string) *appsv1.StatefulSet {
	s := stableSet("10Gi")
	s.DeletionTimestamp, s.Finalizers = &metav1.Time{}, []string{finalizer}
	return s
}

// TestNotesAreCutBetweenLetters: what others say is of any length and language, and an
// event that the API server does not take is told to nobody.
func TestNotesAreCutBetweenLetters(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	r := New(Options{Events: recorder, Registry: prometheus.NewRegistry()})
	r.tell(stableSet("10Gi"), corev1.EventTypeWarning, ReasonRecreateBlocked, "x"+strings.Repeat("é", 1024))
	note := strings.TrimPrefix(<-recorder.Events, "Warning RecreateBlocked ")
	if !utf8.ValidString(note) || len(note) > 1024 || len(note) < 1000 {
		t.Errorf("the note has %d bytes and ends with %q", len(note), note[len(note)-3:])
	}
}
