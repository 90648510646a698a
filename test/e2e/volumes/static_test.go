//go:build e2e

package volumes

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A volume that somebody made in EC2 is used through a PersistentVolume
// written by hand, and is left alone when claim and PersistentVolume go.
func TestStaticVolume(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	const zone = "us-east-1b"
	made, err := s.EC2.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zone), Size: aws.Int32(1), VolumeType: types.VolumeTypeGp2})
	s.Must(err)
	id := aws.ToString(made.VolumeId)
	t.Cleanup(func() {
		if _, err := s.EC2.DeleteVolume(context.Background(), &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
			t.Errorf("delete volume %s: %v", id, err)
		}
	})
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: stage.Driver, VolumeHandle: id, FSType: "xfs"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}
	s.Create(pv)
	s.Claim("data", "", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name })
	s.Pod("app", "data")
	if node := s.Ready("app").Spec.NodeName; s.ZoneOf(node) != zone {
		t.Errorf("pod is on %s in %s, want %s", node, s.ZoneOf(node), zone)
	}
	if got := mountOf(s, "app", "/data").kind; got != "xfs" {
		t.Errorf("/data is %s, want xfs", got)
	}
	sum := s.FillAndSum("app", "/data/file", 4)
	s.DeletePod("app")
	s.Pod("again", "data")
	s.Ready("again")
	if got := s.Sum("again", "/data/file"); got != sum {
		t.Errorf("checksum after the next mount is %s, want %s", got, sum)
	}
	s.DeletePod("again")
	s.Detached(id)
	s.Run("-n", s.Namespace, "delete", "pvc", "data")
	s.Delete(pv)
	if v := s.Volume(id); v.State != types.VolumeStateAvailable {
		t.Errorf("volume %s is %s after its PersistentVolume is gone, want available", id, v.State)
	}
}

// Two Pods of one node share a claim; the end of one takes nothing from the other.
func TestTwoPodsOnOneNode(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	s.Pod("first", "data")
	node := s.Ready("first").Spec.NodeName
	s.Pod("second", "data", stage.OnNode(node))
	s.Ready("second")
	sum := s.FillAndSum("first", "/data/file", 4)
	if got := s.Sum("second", "/data/file"); got != sum {
		t.Errorf("the second Pod reads %s, want %s", got, sum)
	}
	s.DeletePod("first")
	s.In("second", "sh", "-c", "echo on >/data/more && sync")
	if v := s.Volume(s.VolumeID("data")); len(v.Attachments) != 1 {
		t.Errorf("volume has attachments %+v while a Pod uses it, want one", v.Attachments)
	}
}

// Each node tells the scheduler its zone and how many volumes it takes.
func TestNodesAreRegistered(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	for _, n := range s.Nodes() {
		var info storagev1.CSINode
		s.Must(s.Client.Get(t.Context(), client.ObjectKey{Name: n.Name}, &info))
		var node corev1.Node
		s.Must(s.Client.Get(t.Context(), client.ObjectKey{Name: n.Name}, &node))
		if got := node.Labels["topology.ebs.csi.aws.com/zone"]; got != n.Zone {
			t.Errorf("label topology.ebs.csi.aws.com/zone of %s is %q, want %s", n.Name, got, n.Zone)
		}
		for _, d := range info.Spec.Drivers {
			if d.Name != stage.Driver {
				continue
			}
			// m5.large: 27 attachments shared with further network interfaces, less the
			// root disk
			// https://docs.aws.amazon.com/ebs/latest/userguide/volume_limits.html
			if d.NodeID != n.InstanceID || d.Allocatable == nil || aws.ToInt32(d.Allocatable.Count) != 26 {
				t.Errorf("CSINode %s has %+v, want node id %s and 26 volumes", n.Name, d, n.InstanceID)
			}
		}
		if len(info.Spec.Drivers) != 1 {
			t.Errorf("CSINode %s has %d drivers, want 1: %+v", n.Name, len(info.Spec.Drivers), info.Spec.Drivers)
		}
	}
}
