package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestRecordIsWhole: what is read is what was saved, managed fields included.
func TestRecordIsWhole(t *testing.T) {
	seen := grown()
	seen.Set.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 100_000)}
	seen.Set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	want := recordOf(seen.Set, map[string]resource.Quantity{"data": resource.MustParse("20Gi")}, seen.Pods, nil)
	stored, err := want.secret("holdfast-system")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(stored.Data[objectKey]); n > 5000 {
		t.Errorf("100 kB of the same letter take %d bytes: it is not compressed", n)
	}
	got, err := readRecord(stored)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Record{})); diff != "" {
		t.Errorf("(-saved +read)\n%s", diff)
	}
}

// TestNoneIsRemadeWhereNoneMayBe: an install without the rights to make sets anew
// reads no Secrets, which it may not. It has no reader here.
func TestNoneIsRemadeWhereNoneMayBe(t *testing.T) {
	remade, err := (&Reconciler{}).Remade(t.Context())
	if err != nil || remade(types.NamespacedName{Namespace: "db", Name: "pg"}) {
		t.Errorf("a set is said to be made anew: %v", err)
	}
}

func TestUnreadableRecord(t *testing.T) {
	seen := grown()
	for name, spoil := range map[string]func(*corev1.Secret){
		"no record":  func(s *corev1.Secret) { delete(s.Data, recordKey) },
		"no set":     func(s *corev1.Secret) { delete(s.Data, objectKey) },
		"half a set": func(s *corev1.Secret) { s.Data[objectKey] = s.Data[objectKey][:40] },
		"another's": func(s *corev1.Secret) {
			s.Data[recordKey] = []byte(strings.Replace(string(s.Data[recordKey]), `"pg"`, `"web"`, 1))
		},
		"another name": func(s *corev1.Secret) { s.Name = "statefulset-1" },
	} {
		t.Run(name, func(t *testing.T) {
			stored, err := recordOf(seen.Set, nil, seen.Pods, nil).secret("holdfast-system")
			if err != nil {
				t.Fatal(err)
			}
			spoil(stored)
			if _, err := readRecord(stored); err == nil || !strings.Contains(err.Error(), "saved copy of StatefulSet db/pg and cannot be read") {
				t.Errorf("read: %v", err)
			}
		})
	}
}

// TestAnew: the set is made as it was, less what the API server fills in, with
// the new sizes, our mark, and keeping its claims.
func TestAnew(t *testing.T) {
	set := stableSet("10Gi")
	set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	set.Annotations, set.Labels = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	set.Spec.VolumeClaimTemplates[0].Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("15Gi")}
	record := recordOf(set, map[string]resource.Quantity{"data": resource.MustParse("20Gi")}, nil, nil)

	want := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "db", Name: "pg", Labels: map[string]string{"c": "d"}, Annotations: map[string]string{"a": "b", v1alpha1.AnnotationRecreatedFrom: "old"},
	}}
	want.Spec = *stableSet("20Gi").Spec.DeepCopy()
	want.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = "Retain"
	want.Spec.VolumeClaimTemplates[0].Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
	if diff := cmp.Diff(want, record.anew(record.sizes(false))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want.Spec.VolumeClaimTemplates = set.Spec.VolumeClaimTemplates
	if diff := cmp.Diff(want, record.anew(record.sizes(true))); diff != "" {
		t.Errorf("as it was, where its new sizes are refused (-want +got)\n%s", diff)
	}
	if set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != "Delete" {
		t.Error("what was saved has changed")
	}
}

// TestRecordKeepsWhatItsUserWants: saved again after whenDeleted was changed by us
// and the set by its user, it still knows that its user wants Delete.
func TestRecordKeepsWhatItsUserWants(t *testing.T) {
	set := stableSet("10Gi")
	first := recordOf(set, nil, nil, nil)
	retaining(set)
	if !first.is(set) {
		t.Error("our own change of whenDeleted passes for one of its user")
	}
	set.Spec.MinReadySeconds = 9
	second := recordOf(set, nil, nil, first)
	if second.WhenDeleted != "Delete" || second.Object.Spec.MinReadySeconds != 9 {
		t.Errorf("whenDeleted %s, minReadySeconds %d", second.WhenDeleted, second.Object.Spec.MinReadySeconds)
	}
}

func TestFieldsOf(t *testing.T) {
	entry := func(manager, sub, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", Subresource: sub, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	was := []metav1.ManagedFieldsEntry{entry("kubectl", "", "1"), entry("kcm", "status", "1"), entry("holdfast-recreate", "", "1")}
	now := []metav1.ManagedFieldsEntry{entry("holdfast-recreate", "", "2"), entry("kcm", "status", "2"), entry("edit", "", "2"), entry("kubectl", "", "2")}
	want := []metav1.ManagedFieldsEntry{entry("kubectl", "", "1"), entry("kcm", "status", "2"), entry("edit", "", "2")}
	if diff := cmp.Diff(want, fieldsOf(was, now)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
