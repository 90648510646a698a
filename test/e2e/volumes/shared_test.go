//go:build e2e

package volumes

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// sharedBlock has a claim be a raw device for Pods of several nodes.
func sharedBlock(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// Two nodes have one raw device at once; each sees what the other wrote, and the
// end of one takes nothing from the other.
func TestSharedDevice(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("disk", s.Class("io2", map[string]string{"type": "io2", "iops": "500"}), "4Gi", sharedBlock)
	s.Pod("one", "disk", stage.OnNode("node-a1"), asDevice)
	s.Pod("two", "disk", stage.OnNode("node-a2"), asDevice)
	s.Ready("one")
	s.Ready("two")
	id := s.VolumeID("disk")
	if v := s.Volume(id); !aws.ToBool(v.MultiAttachEnabled) || len(v.Attachments) != 2 {
		t.Fatalf("volume %s: Multi-Attach %v, attachments %+v, want two", id, aws.ToBool(v.MultiAttachEnabled), v.Attachments)
	}
	// past the page cache of each node: two hosts of one disk have one each
	write := func(pod, at string) string {
		return strings.Fields(s.In(pod, "sh", "-c", "dd if=/dev/urandom of=/tmp/piece bs=4096 count=1 2>/dev/null;"+
			"dd if=/tmp/piece of=/dev/disk bs=4096 seek="+at+" count=1 oflag=direct conv=notrunc 2>/dev/null && sync && sha256sum /tmp/piece"))[0]
	}
	read := func(pod, at string) string {
		return strings.Fields(s.In(pod, "sh", "-c", "dd if=/dev/disk bs=4096 skip="+at+" count=1 iflag=direct 2>/dev/null | sha256sum"))[0]
	}
	for _, way := range [][2]string{{"one", "two"}, {"two", "one"}} {
		if sum, got := write(way[0], "7"), read(way[1], "7"); got != sum {
			t.Errorf("%s wrote %s, %s reads %s", way[0], sum, way[1], got)
		}
	}
	s.DeletePod("one")
	s.Eventually("volume "+id+" on one node alone", func(context.Context) (string, error) {
		if n := len(s.Volume(id).Attachments); n != 1 {
			return "it has more attachments", nil
		}
		return "", nil
	})
	sum := write("two", "8")
	s.Pod("three", "disk", stage.OnNode("node-a1"), asDevice)
	s.Ready("three")
	if got := read("three", "8"); got != sum {
		t.Errorf("two wrote %s, three, on the first node again, reads %s", sum, got)
	}
}

// What cannot be shared is refused with what can.
func TestSharedRefusals(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	io2 := s.Class("io2", map[string]string{"type": "io2", "iops": "500"})
	s.Claim("files", io2, "4Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	s.Pod("app", "files")
	t.Log(s.Event("files", "ProvisioningFailed", "InvalidArgument", "one node at a time", "volumeMode Block"))
	s.Claim("disk", s.Class("gp3", nil), "4Gi", sharedBlock)
	s.Pod("raw", "disk", asDevice)
	t.Log(s.Event("disk", "ProvisioningFailed", "InvalidArgument", "gp3", "io2"))
}
