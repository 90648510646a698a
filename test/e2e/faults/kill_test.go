//go:build e2e

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// long is a delay of EC2 in which there is time to kill whoever waits for it.
const long = ec2sim.Duration(8 * time.Second)

// The controller dies after EC2 has accepted CreateVolume and before the
// volume is there: the next process finds it instead of making another one.
func TestControllerKilledWhileVolumeIsCreated(t *testing.T) {
	s, class := begin(t, nil)
	restore := s.Sim.Slow(t, func(d *ec2sim.Delays) { d.Create = long })
	claim := s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	name := "pvc-" + string(claim.UID)
	first := ""
	s.Eventually("volume "+name+" in creation", func(context.Context) (string, error) {
		for _, v := range s.Named(name) {
			if v.State == types.VolumeStateCreating {
				first = aws.ToString(v.VolumeId)
				return "", nil
			}
		}
		return "not there", nil
	})
	killControllers(s)
	s.Step("killed while %s was created", first)
	restore()
	s.Ready("app")
	if id := s.VolumeID("data"); id != first {
		t.Errorf("claim has volume %s, want %s, which was being created when the controller died", id, first)
	}
	if all := s.Named(name); len(all) != 1 {
		t.Errorf("EC2 has %d volumes for the claim, want 1", len(all))
	}
	holds(s, "app", "data")
}

// The controller's Pods are gone, whole and at once, while the volume is
// attached; the next Pods know nothing of it.
func TestControllerKilledWhileVolumeIsAttached(t *testing.T) {
	s, class := begin(t, nil)
	restore := s.Sim.Slow(t, func(d *ec2sim.Delays) { d.Attach = long })
	s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	id := s.VolumeID("data")
	s.Eventually("volume "+id+" is being attached", attachment(s, id, types.VolumeAttachmentStateAttaching))
	for _, p := range s.Controllers() {
		s.Run("-n", p.Namespace, "delete", "pod", p.Name, "--force", "--grace-period=0")
	}
	s.Step("controllers gone while %s was attached", id)
	restore()
	pod := s.Ready("app")
	v := s.Volume(id)
	if len(v.Attachments) != 1 || v.Attachments[0].State != types.VolumeAttachmentStateAttached || aws.ToString(v.Attachments[0].InstanceId) != instance(s, pod.Spec.NodeName) {
		t.Errorf("attachments of %s are %+v, want one, attached to %s", id, v.Attachments, instance(s, pod.Spec.NodeName))
	}
	holds(s, "app", "data")
}

// The controller dies while the volume is detached: the Pod's next node gets it.
func TestControllerKilledWhileVolumeIsDetached(t *testing.T) {
	s, class := begin(t, nil)
	s.Claim("data", class, "1Gi")
	s.Pod("app", "data", stage.OnNode("node-a1"))
	s.Ready("app")
	id := s.VolumeID("data")
	sum := s.FillAndSum("app", "/data/file", 8)
	restore := s.Sim.Slow(t, func(d *ec2sim.Delays) { d.Detach = long })
	s.DeletePod("app")
	s.Pod("next", "data", stage.OnNode("node-a2"))
	s.Eventually("volume "+id+" is being detached", attachment(s, id, types.VolumeAttachmentStateDetaching))
	killControllers(s)
	s.Step("killed while %s was detached", id)
	restore()
	s.Ready("next")
	if got := s.Sum("next", "/data/file"); got != sum {
		t.Errorf("checksum on the next node is %s, want %s", got, sum)
	}
}

// The node's driver dies while it formats: a filesystem half made is not taken
// for one.
func TestNodeKilledWhileFormatting(t *testing.T) {
	// a node each: kubelet makes who dies twice wait
	for fs, node := range map[string]string{"ext4": "node-a1", "xfs": "node-b1"} {
		t.Run(fs, func(t *testing.T) {
			// large enough for mkfs to take a moment
			killNode(t, node, fs, "100Gi", "running mkfs."+fs)
		})
	}
}

// The node's driver dies between mounting the volume for the node and for the
// Pod.
func TestNodeKilledWhileMounting(t *testing.T) {
	killNode(t, "node-a2", "ext4", "1Gi", "grep -q /csi/ebs.csi.aws.com/.*/globalmount /proc/mounts")
}

// killNode ends the node's driver when a condition holds on the node while a
// new volume is made ready there.
func killNode(t *testing.T, node, fs, size, condition string) {
	t.Helper()
	s, _ := begin(t, nil)
	class := s.Class("made", map[string]string{"csi.storage.k8s.io/fstype": fs}, func(c *storagev1.StorageClass) {
		c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: corev1.LabelTopologyZone, Values: []string{s.ZoneOf(node)}},
		}}}
	})
	s.Claim("data", class, size)
	driver := s.NodePod(node)
	link := "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(s.VolumeID("data"), "-", "")
	killed := s.KillWhen(driver, link, condition)
	s.Pod("app", "data", stage.OnNode(node))
	killed()
	s.Step("killed when %q", condition)
	s.Ready("app")
	s.Restarted(driver)
	holds(s, "app", "data")
}

// killControllers ends the driver in every controller Pod as a crash would.
func killControllers(s *stage.Stage) {
	s.T.Helper()
	pods := s.Controllers()
	for _, p := range pods {
		s.Kill(p)
	}
	for _, p := range pods {
		s.Restarted(p)
	}
}

func attachment(s *stage.Stage, id string, state types.VolumeAttachmentState) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		v := s.Volume(id)
		if len(v.Attachments) == 1 && v.Attachments[0].State == state {
			return "", nil
		}
		return fmt.Sprintf("attachments %+v", v.Attachments), nil
	}
}

func instance(s *stage.Stage, node string) string {
	s.T.Helper()
	for _, n := range s.Nodes() {
		if n.Name == node {
			return n.InstanceID
		}
	}
	s.T.Fatalf("no node %s", node)
	return ""
}
