//go:build e2e

package volumes

import (
	"context"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// The annotations of volume-modifier-for-k8s are honoured on a claim that a Pod
// uses: the manager makes a class of attributes for the values and sets it, and EC2
// modifies the volume. A claim whose owner set a class is left alone, and told why.
func TestAnnotationsOfOld(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	gold := s.Attributes("gold", map[string]string{"iops": "3500"})
	s.Claim("data", class, "8Gi")
	s.Claim("owned", class, "8Gi", stage.OfAttributes(gold))
	s.Pod("app", "data", withClaim("owned", "owned"))
	before := s.Ready("app")
	sum := s.FillAndSum("app", "/data/file", 8)

	s.Run("-n", s.Namespace, "annotate", "pvc", "data", "owned", stage.Driver+"/iops=3600", stage.Driver+"/throughput=150")
	const name = "holdfast-ebs-iops3600-throughput150"
	s.HasAttributes("data", name)
	made := &storagev1.VolumeAttributesClass{}
	s.Must(s.Client.Get(t.Context(), client.ObjectKey{Name: name}, made))
	t.Cleanup(func() { // the manager does it too, in ten minutes
		if err := s.Client.Delete(context.Background(), made); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	_, labelled := made.Labels["holdfast.dev/modification"]
	if want := map[string]string{"iops": "3600", "throughput": "150"}; made.DriverName != stage.Driver || !maps.Equal(made.Parameters, want) || !labelled {
		t.Errorf("the class has driver %s, parameters %v and labels %v; want %s, %v and holdfast.dev/modification", made.DriverName, made.Parameters, made.Labels, stage.Driver, want)
	}
	id := s.VolumeID("data")
	if v := s.Volume(id); aws.ToInt32(v.Iops) != 3600 || aws.ToInt32(v.Throughput) != 150 {
		t.Errorf("the volume has %d IOPS and %d MiB/s, want 3600 and 150", aws.ToInt32(v.Iops), aws.ToInt32(v.Throughput))
	}
	s.OneModification(id)
	s.Event("data", "ModificationSet", name)

	s.Event("owned", "ModificationBlocked", gold, "which its owner set")
	owned := &corev1.PersistentVolumeClaim{}
	s.Must(s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "owned"}, owned))
	if got := ptr.Deref(owned.Spec.VolumeAttributesClassName, ""); got != gold {
		t.Errorf("the claim of the other owner has class %s, want its own %s", got, gold)
	}
	if v := s.Volume(s.VolumeID("owned")); aws.ToInt32(v.Iops) != 3500 {
		t.Errorf("the volume of the other owner has %d IOPS, want 3500 as its class says", aws.ToInt32(v.Iops))
	}
	after := s.Ready("app")
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod was restarted: %+v", after.Status)
	}
	if got := s.Sum("app", "/data/file"); got != sum {
		t.Errorf("checksum after the modification is %s, want %s", got, sum)
	}
}
