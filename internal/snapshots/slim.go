package snapshots

import (
	"maps"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/slim"
)

// ContentName is the name under which the snapshot-controller makes the content of
// a snapshot (external-snapshotter pkg/utils, GetDynamicSnapshotContentNameForSnapshot).
func ContentName(snapshot types.UID) string { return "snapcontent-" + string(snapshot) }

// ours begins the keys of annotations that Holdfast reads.
var ours = v1alpha1.GroupVersion.Group + "/"

// What most snapshots are.
var ready, notReady = true, false

// Slim is the transform of the informer of VolumeSnapshots, of which there are more
// than of anything else that Holdfast watches. Labels stay, since exemptions of
// policies pick by them. What goes is read nowhere: annotations of others and the
// one that tells people the claim, finalizers, the size, and the name of a content
// that follows from the UID. Whoever writes a snapshot patches it.
func Slim(o any) (any, error) {
	s, is := o.(*snapshotv1.VolumeSnapshot)
	if !is {
		return o, nil
	}
	maps.DeleteFunc(s.Annotations, func(key, _ string) bool { return key == v1alpha1.AnnotationClaim || !strings.HasPrefix(key, ours) })
	s.Finalizers = nil
	slim.Meta(&s.ObjectMeta)
	s.Spec.Source.PersistentVolumeClaimName = slim.Pointer(s.Spec.Source.PersistentVolumeClaimName)
	s.Spec.VolumeSnapshotClassName = slim.Pointer(s.Spec.VolumeSnapshotClassName)
	status := s.Status
	if status == nil {
		return s, nil
	}
	status.RestoreSize = nil
	status.VolumeGroupSnapshotName = slim.Pointer(status.VolumeGroupSnapshotName)
	if name := status.BoundVolumeSnapshotContentName; name != nil && *name == ContentName(s.UID) {
		status.BoundVolumeSnapshotContentName = nil
	}
	switch {
	case status.ReadyToUse == nil:
	case *status.ReadyToUse:
		status.ReadyToUse = &ready
	default:
		status.ReadyToUse = &notReady
	}
	return s, nil
}
