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

// long is a delay of EC2 in which there is time to bring three volumes into a
// passing state and to kill whoever waits for them.
const long = ec2sim.Duration(20 * time.Second)

// The controller dies after EC2 has accepted to create one volume, to attach
// another and to detach a third, and before any of it is done. The next process
// finds the volume instead of making another one, and ends the rest.
func TestControllerKilled(t *testing.T) {
	s, class := begin(t, nil)
	s.Claim("leaving", class, "1Gi")
	s.Pod("old", "leaving", stage.OnNode("node-a1"))
	s.Claim("coming", immediate(s, "node-a1", nil), "1Gi")
	s.Ready("old")
	sum := s.FillAndSum("old", "/data/file", 8)
	leaving, coming := s.VolumeID("leaving"), s.VolumeID("coming")

	restore := s.Sim.Slow(t, func(d *ec2sim.Delays) { d.Create, d.Attach, d.Detach = long, long, long })
	s.DeletePod("old")
	s.Pod("new", "leaving", stage.OnNode("node-a2"))
	s.Pod("app", "coming", stage.OnNode("node-a1"))
	claim := s.Claim("data", class, "1Gi")
	s.Pod("first", "data")
	s.Eventually(leaving+" is being detached", attachment(s, leaving, types.VolumeAttachmentStateDetaching))
	s.Eventually(coming+" is being attached", attachment(s, coming, types.VolumeAttachmentStateAttaching))
	made := creating(s, claim)
	killControllers(s)
	s.Step("killed while %s was created, %s attached and %s detached", made, coming, leaving)
	restore()

	s.Ready("first")
	if id := s.VolumeID("data"); id != made {
		t.Errorf("claim has volume %s, want %s, which was being created when the controller died", id, made)
	}
	if all := s.Named("pvc-" + string(claim.UID)); len(all) != 1 {
		t.Errorf("EC2 has %d volumes for the claim, want 1", len(all))
	}
	s.Ready("app")
	attachedTo(s, coming, "node-a1")
	s.Ready("new")
	attachedTo(s, leaving, "node-a2")
	if got := s.Sum("new", "/data/file"); got != sum {
		t.Errorf("checksum on the next node is %s, want %s", got, sum)
	}
	holds(s, "first", "data")
}

// creating waits until a claim's volume is in creation and returns its id.
func creating(s *stage.Stage, claim *corev1.PersistentVolumeClaim) (id string) {
	s.T.Helper()
	name := "pvc-" + string(claim.UID)
	s.Eventually("volume "+name+" in creation", func(context.Context) (string, error) {
		for _, v := range s.Named(name) {
			if v.State == types.VolumeStateCreating {
				id = aws.ToString(v.VolumeId)
				return "", nil
			}
		}
		return "not there", nil
	})
	return id
}

func attachedTo(s *stage.Stage, id, node string) {
	s.T.Helper()
	v := s.Volume(id)
	if len(v.Attachments) != 1 || v.Attachments[0].State != types.VolumeAttachmentStateAttached || aws.ToString(v.Attachments[0].InstanceId) != instance(s, node) {
		s.T.Errorf("attachments of %s are %+v, want one, attached to %s", id, v.Attachments, instance(s, node))
	}
}

// The controller's Pods are gone, whole and at once, while the volume is
// attached; the next Pods know nothing of it.
func TestControllersDeleted(t *testing.T) {
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
	attachedTo(s, id, pod.Spec.NodeName)
	holds(s, "app", "data")
}

// The node's driver dies while it formats, where a filesystem half made must
// not be taken for one, and between mounting the volume for the node and for
// the Pod. A node each, at the same time.
func TestNodeKilled(t *testing.T) {
	begin(t, nil)
	for name, tc := range map[string]struct{ node, fs, size, when string }{
		// large enough for mkfs to take a moment
		"formatting-ext4": {"node-a1", "ext4", "100Gi", "running mkfs.ext4"},
		"formatting-xfs":  {"node-b1", "xfs", "100Gi", "running mkfs.xfs"},
		"mounted":         {"node-a2", "ext4", "1Gi", "grep -q /csi/ebs.csi.aws.com/.*/globalmount /proc/mounts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killNode(stage.New(t), tc.node, tc.fs, tc.size, tc.when)
		})
	}
}

// immediate is a class that makes volumes at once, in the zone of a node.
func immediate(s *stage.Stage, node string, parameters map[string]string) string {
	s.T.Helper()
	return s.Class("immediate", parameters, func(c *storagev1.StorageClass) {
		c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: corev1.LabelTopologyZone, Values: []string{s.ZoneOf(node)}},
		}}}
	})
}

// killNode ends the node's driver when a condition holds on the node while a
// new volume is made ready there. Where that moment passed unseen it is tried with
// another volume.
func killNode(s *stage.Stage, node, fs, size, condition string) {
	s.T.Helper()
	class := immediate(s, node, map[string]string{"csi.storage.k8s.io/fstype": fs})
	const tries = 5
	for n := range tries {
		claim, app := fmt.Sprintf("data-%d", n), fmt.Sprintf("app-%d", n)
		s.Claim(claim, class, size)
		driver := s.NodePod(node)
		link := "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(s.VolumeID(claim), "-", "")
		killed := s.KillWhen(driver, link, condition)
		s.Pod(app, claim, stage.OnNode(node))
		if !killed() {
			s.Step("nobody saw that %q", condition)
			continue
		}
		s.Step("killed when %q", condition)
		s.Ready(app)
		s.Restarted(driver)
		holds(s, app, claim)
		return
	}
	s.T.Fatalf("%d volumes were made ready on %s, and nobody saw that %q", tries, node, condition)
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
