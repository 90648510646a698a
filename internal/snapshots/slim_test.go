package snapshots

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// full is a snapshot with all that anybody writes on one.
func full() *snapshotv1.VolumeSnapshot {
	at := metav1.NewTime(time.Date(2027, 5, 1, 7, 0, 0, 0, time.UTC))
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "db", Name: "data-0-20270501t070000z-0123456789", UID: "u", ResourceVersion: "7", Generation: 1, CreationTimestamp: at, DeletionTimestamp: &at,
			Labels: map[string]string{v1alpha1.LabelSchedule: "daily", v1alpha1.LabelClaimUID: "c", v1alpha1.LabelSlot: "20270501T070000Z", "team": "a"},
			Annotations: map[string]string{
				v1alpha1.AnnotationClaim: "data-0", v1alpha1.AnnotationHold: "audit", v1alpha1.AnnotationGroup: "series", v1alpha1.AnnotationQuiesced: v1alpha1.NotQuiesced, "velero.io/backup": "b",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "groupsnapshot.storage.k8s.io/v1", Kind: "VolumeGroupSnapshot", Name: "g", UID: "gu"}},
			Finalizers:      []string{"snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data-0")}, VolumeSnapshotClassName: ptr.To("ebs")},
		Status: &snapshotv1.VolumeSnapshotStatus{
			BoundVolumeSnapshotContentName: ptr.To("snapcontent-u"), CreationTime: &at, ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("20Gi")),
			Error: &snapshotv1.VolumeSnapshotError{Time: &at, Message: ptr.To("throttled")}, VolumeGroupSnapshotName: ptr.To("g"),
		},
	}
}

// TestSlim: what is left of a snapshot, and that those who read it see no
// difference.
func TestSlim(t *testing.T) {
	for name, change := range map[string]func(*snapshotv1.VolumeSnapshot){
		"as it is":        func(*snapshotv1.VolumeSnapshot) {},
		"another content": func(s *snapshotv1.VolumeSnapshot) { s.Status.BoundVolumeSnapshotContentName = ptr.To("imported") },
		"not ready":       func(s *snapshotv1.VolumeSnapshot) { s.Status.ReadyToUse = ptr.To(false) },
		"not known":       func(s *snapshotv1.VolumeSnapshot) { s.Status.ReadyToUse, s.Status.CreationTime = nil, nil },
		"no status":       func(s *snapshotv1.VolumeSnapshot) { s.Status = nil },
		"of a content": func(s *snapshotv1.VolumeSnapshot) {
			s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("x")}
		},
		"nobody's": func(s *snapshotv1.VolumeSnapshot) { s.Labels, s.Annotations, s.OwnerReferences = nil, nil, nil },
	} {
		whole, want := full(), full()
		change(whole)
		change(want)
		want.ManagedFields, want.Finalizers = nil, nil
		delete(want.Annotations, v1alpha1.AnnotationClaim)
		delete(want.Annotations, "velero.io/backup")
		if want.Status != nil {
			want.Status.RestoreSize = nil
			if *want.Status.BoundVolumeSnapshotContentName == ContentName("u") {
				want.Status.BoundVolumeSnapshotContentName = nil
			}
		}
		o, err := Slim(whole)
		if err != nil {
			t.Fatal(err)
		}
		slim := o.(*snapshotv1.VolumeSnapshot)
		if diff := cmp.Diff(want, slim); diff != "" {
			t.Errorf("%s: the slim one differs (-want +got)\n%s", name, diff)
		}
		again, err := Slim(slim.DeepCopy())
		if diff := cmp.Diff(want, again); diff != "" || err != nil {
			t.Errorf("%s: made slim twice it differs, %v (-want +got)\n%s", name, err, diff)
		}
		asWhole, now := full(), time.Date(2027, 5, 1, 8, 0, 0, 0, time.UTC)
		change(asWhole)
		if diff := cmp.Diff(copies.Of(asWhole, time.Hour, now), copies.Of(slim, time.Hour, now)); diff != "" || copies.GroupOf(asWhole) != copies.GroupOf(slim) {
			t.Errorf("%s: planners see another copy (-whole +slim)\n%s", name, diff)
		}
		for _, i := range indexes {
			if diff := cmp.Diff(i.of(asWhole), i.of(slim)); diff != "" {
				t.Errorf("%s: by %s it is found otherwise (-whole +slim)\n%s", name, i.name, diff)
			}
		}
	}
	if o, err := Slim("a tombstone"); o != "a tombstone" || err != nil {
		t.Errorf("what is no snapshot becomes %v, %v", o, err)
	}
}
