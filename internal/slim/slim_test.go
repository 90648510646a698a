package slim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// claim is one with all that informers hold of it, of which no two share anything.
func claim(name string) *corev1.PersistentVolumeClaim {
	text := func(s string) string { return strings.Clone(s) }
	size := func() corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceName(text("storage")): resource.MustParse("20Gi")}
	}
	mode, class := corev1.PersistentVolumeMode(text("Filesystem")), text("gp3-encrypted")
	now := metav1.Now().Rfc3339Copy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: text("db"), Name: name, GenerateName: "data-", UID: "uid", ResourceVersion: "7", Generation: 3, CreationTimestamp: now, DeletionTimestamp: &now,
			Labels: map[string]string{text("app.kubernetes.io/name"): text("postgresql")}, Annotations: map[string]string{text("team"): text("a")},
			Finalizers:      []string{text("kubernetes.io/pvc-protection")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: text("apps/v1"), Kind: text("StatefulSet"), Name: text("pg"), UID: "of-set", Controller: ptr.To(true)}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(text("ReadWriteOnce"))}, StorageClassName: &class, VolumeMode: &mode, VolumeName: "pv",
			VolumeAttributesClassName: ptr.To(text("fast")), Resources: corev1.VolumeResourceRequirements{Requests: size(), Limits: size()},
			Selector:   &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}, DataSourceRef: &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "s", Namespace: ptr.To("other")},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.PersistentVolumeClaimPhase(text("Bound")), AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, Capacity: size(), AllocatedResources: size(),
			AllocatedResourceStatuses:        map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": corev1.PersistentVolumeClaimNodeResizePending},
			Conditions:                       []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, Message: "m"}},
			CurrentVolumeAttributesClassName: ptr.To(text("fast")), ModifyVolumeStatus: &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast"},
		},
	}
}

func slimmed(t *testing.T, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	o, err := Claim(c)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*corev1.PersistentVolumeClaim)
}

// TestClaimKeeps: all that a claim says stays, but who manages what and kubectl's
// copy of it; and what was made small stays as it is.
func TestClaimKeeps(t *testing.T) {
	whole := claim("data-0")
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.Annotations[corev1.LastAppliedConfigAnnotation] = `{"kind":"PersistentVolumeClaim"}`
	want := claim("data-0")
	want.CreationTimestamp, want.DeletionTimestamp = whole.CreationTimestamp, whole.DeletionTimestamp
	slim := slimmed(t, whole)
	if diff := cmp.Diff(want, slim); diff != "" {
		t.Errorf("the slim claim differs (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, slimmed(t, slim.DeepCopy())); diff != "" {
		t.Errorf("made slim twice it differs (-want +got)\n%s", diff)
	}
	bare := &corev1.PersistentVolumeClaim{}
	if diff := cmp.Diff(&corev1.PersistentVolumeClaim{}, slimmed(t, bare)); diff != "" {
		t.Errorf("of nothing comes (-want +got)\n%s", diff)
	}
	if o, err := Claim("a tombstone"); o != "a tombstone" || err != nil {
		t.Errorf("what is no claim becomes %v, %v", o, err)
	}
}

// TestClaimsShare: what is alike in two claims is there once.
func TestClaimsShare(t *testing.T) {
	a, b := slimmed(t, claim("data-0")), slimmed(t, claim("data-1"))
	key := func(c *corev1.PersistentVolumeClaim) string {
		for k := range c.Labels {
			return k
		}
		return ""
	}
	for what, same := range map[string]bool{
		"namespace":  unsafe.StringData(a.Namespace) == unsafe.StringData(b.Namespace),
		"label key":  unsafe.StringData(key(a)) == unsafe.StringData(key(b)),
		"label":      unsafe.StringData(a.Labels[key(a)]) == unsafe.StringData(b.Labels[key(b)]),
		"annotation": unsafe.StringData(a.Annotations["team"]) == unsafe.StringData(b.Annotations["team"]),
		"finalizer":  unsafe.StringData(a.Finalizers[0]) == unsafe.StringData(b.Finalizers[0]),
		"class":      a.Spec.StorageClassName == b.Spec.StorageClassName,
		"mode":       a.Spec.VolumeMode == b.Spec.VolumeMode,
		"sizes":      fmt.Sprintf("%p", a.Spec.Resources.Requests) == fmt.Sprintf("%p", b.Status.Capacity),
	} {
		if !same {
			t.Errorf("each claim has its own %s", what)
		}
	}
	// Who changes a copy changes no other claim.
	changed := a.DeepCopy()
	changed.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("40Gi")
	*changed.Spec.StorageClassName = "other"
	if got := b.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != "20Gi" || *b.Spec.StorageClassName != "gp3-encrypted" {
		t.Errorf("a change of one claim's copy makes the other ask for %s of %s", got.String(), *b.Spec.StorageClassName)
	}
}

// TestSizes: amounts that are written otherwise are not taken for others, and a
// list of more than storage is left alone.
func TestSizes(t *testing.T) {
	for _, text := range []string{"1Gi", "1024Mi", "1G", "1073741824", "1500m", "0"} {
		list := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
		if got := Sizes(list)[corev1.ResourceStorage]; got.Cmp(resource.MustParse(text)) != 0 || got.String() != list.Storage().String() {
			t.Errorf("%s becomes %s", text, got.String())
		}
	}
	two := corev1.ResourceList{"a": resource.MustParse("1"), "b": resource.MustParse("2")}
	if got := Sizes(two); len(got) != 2 || Sizes(nil) != nil {
		t.Errorf("lists become %v and %v", got, Sizes(nil))
	}
}

// TestSharedIsBounded: whoever makes up names does not fill the memory, and what
// was shared before stays what it is.
func TestSharedIsBounded(t *testing.T) {
	s := Shared[string, string]{Most: 10}
	of := func(k string) *string { return s.Of(k, func() (string, string) { return k, k }) }
	first := of("first")
	for i := range 1000 {
		if got := of(fmt.Sprint(i)); *got != fmt.Sprint(i) {
			t.Fatalf("%d becomes %s", i, *got)
		}
		if len(s.known) > 10 {
			t.Fatalf("%d are known, want at most 10", len(s.known))
		}
	}
	if *first != "first" {
		t.Errorf("what was shared before is %q now", *first)
	}
	var group sync.WaitGroup // informers work at once
	for range 8 {
		group.Go(func() {
			for i := range 1000 {
				of(fmt.Sprint(i % 20))
			}
		})
	}
	group.Wait()
	if long := strings.Repeat("x", longest+1); Text(long) != long || *Pointer(&long) != long || Pointer(nil) != nil || Text("") != "" {
		t.Error("a long text, an empty or an absent one is another")
	}
}
