//go:build e2e

package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

const (
	node  = "node-b1"
	taint = stage.Driver + "/agent-not-ready"
	// kind is the label of what a node of EKS is: config/components/eks-nodes
	// keeps the driver from some. The label of the operating system would do for
	// the DaemonSet too, but kubelet writes that back whenever it tells its status.
	kind = "eks.amazonaws.com/compute-type"
)

// A node that starts tainted takes Pods once the driver is registered on it,
// and not before.
func TestStartupTaint(t *testing.T) {
	s := stage.New(t)
	s.Must(s.Rollout(t.Context(), stage.Patience)) // or a new driver Pod may already be on its way
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	before := s.NodePod(node)
	t.Cleanup(func() {
		_, _ = s.Kubectl(context.Background(), "label", "node", node, kind+"-")
		_, _ = s.Kubectl(context.Background(), "taint", "node", node, taint+"-")
	})
	s.Run("label", "node", node, kind+"=hybrid")
	s.Must(s.WaitGone(t.Context(), &before, stage.Patience))
	s.Eventually("driver forgotten on "+node, func(ctx context.Context) (string, error) {
		count, err := allocatable(ctx, s, node)
		if count >= 0 || err != nil {
			return fmt.Sprintf("CSINode still says %d", count), err
		}
		// A Pod that was begun before the label was seen would register again.
		pods, err := s.Kubectl(ctx, "-n", testenv.Namespace, "get", "pods", "-l", "app.kubernetes.io/component=node", "--field-selector", "spec.nodeName="+node, "-o", "name")
		return strings.TrimSpace(string(pods)), err
	})
	s.Run("taint", "node", node, taint+"=:NoExecute")
	s.Pod("app", "data", stage.OnNode(node))
	s.Event("app", "FailedScheduling", "untolerated taint")
	if keys := taints(s, node); !strings.Contains(keys, taint) {
		t.Errorf("the taint was taken from a node without the driver: %s", keys)
	}
	s.Step("Pod waits for the driver on %s", node)
	s.Run("label", "node", node, kind+"-")
	s.Ready("app")
	if keys := taints(s, node); strings.Contains(keys, taint) {
		t.Errorf("the Pod runs and the taint is still there: %s", keys)
	}
}

// The driver on a drained node stays until the volumes have left; one that is
// only restarted goes at once, and the Pods keep their volumes.
func TestPreStop(t *testing.T) {
	s := stage.New(t)
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	s.Pod("app", "data", stage.OnNode(node))
	s.Ready("app")
	sum := s.FillAndSum("app", "/data/file", 8)
	volume := s.VolumeID("data")

	restarted := s.NodePod(node)
	begin := time.Now()
	s.Delete(&restarted)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("a restart of the driver alone took %v: it waited for volumes that stay", took)
	}
	driverReady(s)
	if got := s.Sum("app", "/data/file"); got != sum {
		t.Errorf("checksum after the restart is %s, want %s", got, sum)
	}

	t.Cleanup(func() { _, _ = s.Kubectl(context.Background(), "uncordon", node) })
	s.Run("cordon", node)
	drained := s.NodePod(node)
	s.Run("-n", drained.Namespace, "delete", "pod", drained.Name, "--wait=false")
	// Longer than a driver that does not wait needs to end.
	if err := s.Within(15*time.Second, "driver gone", gone(s, &drained)); err == nil {
		t.Fatal("the driver of a drained node stopped while a volume was attached")
	}
	s.Step("driver waits while %s is attached", volume)
	begin = time.Now()
	s.Run("-n", s.Namespace, "delete", "pod", "app", "--wait=false")
	s.Eventually("driver gone", gone(s, &drained))
	state, err := s.Sim.State(t.Context())
	s.Must(err)
	for _, v := range state.Volumes {
		if v.ID == volume && len(v.Attachments) > 0 {
			t.Errorf("the driver stopped before EC2 had detached %s: %+v", volume, v.Attachments)
		}
	}
	s.Step("driver gone %.1f s after the Pod, its volume detached", time.Since(begin).Seconds())
	driverReady(s) // the DaemonSet runs on cordoned nodes too
}

// A network interface takes the place of a volume, and gives it back.
func TestAttachLimitFollowsTheInstance(t *testing.T) {
	s := stage.New(t)
	period := func(ctx context.Context, seconds int) {
		patch := fmt.Sprintf(`{"spec":{"nodeAllocatableUpdatePeriodSeconds":%d}}`, seconds)
		if out, err := s.Kubectl(ctx, "patch", "csidriver", stage.Driver, "--type=merge", "-p", patch); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	period(t.Context(), 10) // the least that Kubernetes takes, for the test's sake
	t.Cleanup(func() {
		s.Interfaces(node, 1)
		period(context.Background(), 60)
	})
	before, err := allocatable(t.Context(), s, node)
	s.Must(err)
	s.Interfaces(node, 3)
	counts := func(want int) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			count, err := allocatable(ctx, s, node)
			if err == nil && count != want {
				return fmt.Sprintf("it says %d", count), nil
			}
			return "", err
		}
	}
	s.Eventually(fmt.Sprintf("CSINode %s with 2 volumes less than %d", node, before), counts(before-2))
	s.Interfaces(node, 1)
	s.Eventually(fmt.Sprintf("CSINode %s with %d volumes again", node, before), counts(before))
}

// Where the metadata service is switched off, the Node tells what the instance
// is, and the limit is one that the instance has in any case.
func TestMetadataOfTheNode(t *testing.T) {
	s := stage.New(t)
	before, err := registration(t.Context(), s, node)
	s.Must(err)
	t.Cleanup(func() {
		_, _ = s.Kubectl(context.Background(), "-n", testenv.Namespace, "set", "env", "daemonset/holdfast-node", "AWS_EC2_METADATA_DISABLED-")
		if err := s.Rollout(context.Background(), stage.Patience); err != nil {
			t.Error(err)
		}
	})
	s.Run("-n", testenv.Namespace, "set", "env", "daemonset/holdfast-node", "AWS_EC2_METADATA_DISABLED=true")
	s.Must(s.Rollout(t.Context(), stage.Patience))
	s.Eventually("driver registered by what the Node says", func(ctx context.Context) (string, error) {
		after, err := registration(ctx, s, node)
		switch {
		case err != nil:
			return "", err
		case after.NodeID != before.NodeID || !slices.Equal(after.TopologyKeys, before.TopologyKeys):
			return fmt.Sprintf("%+v, before %+v", after, before), nil
		case *after.Allocatable.Count >= *before.Allocatable.Count:
			return fmt.Sprintf("limit %d, and %d by the metadata service", *after.Allocatable.Count, *before.Allocatable.Count), nil
		}
		return "", nil
	})
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	s.Pod("app", "data", stage.OnNode(node))
	s.Ready("app")
}

// registration is what kubelet has registered of the driver on a node.
func registration(ctx context.Context, s *stage.Stage, node string) (storagev1.CSINodeDriver, error) {
	var n storagev1.CSINode
	if err := s.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return storagev1.CSINodeDriver{}, err
	}
	for _, d := range n.Spec.Drivers {
		if d.Name == stage.Driver && d.Allocatable != nil && d.Allocatable.Count != nil {
			return d, nil
		}
	}
	return storagev1.CSINodeDriver{}, errNotRegistered
}

// errNotRegistered: CSINode does not name the driver, or no limit.
var errNotRegistered = errors.New("the driver is not registered")

// allocatable is how many volumes a node takes by its CSINode, -1 if the driver
// is not registered there.
func allocatable(ctx context.Context, s *stage.Stage, node string) (int, error) {
	d, err := registration(ctx, s, node)
	switch {
	case errors.Is(err, errNotRegistered):
		return -1, nil
	case err != nil:
		return -1, err
	}
	return int(*d.Allocatable.Count), nil
}

// taints are the keys of a node's taints.
func taints(s *stage.Stage, node string) string {
	s.T.Helper()
	return s.Run("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}")
}

// gone says whether a Pod is gone, or another one has its name.
func gone(s *stage.Stage, pod *corev1.Pod) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var p corev1.Pod
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(pod), &p)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if err == nil && p.UID == pod.UID {
			return fmt.Sprintf("still there, deletion asked for at %v", p.DeletionTimestamp), nil
		}
		return "", nil
	}
}

// driverReady waits until Holdfast runs everywhere, registered.
func driverReady(s *stage.Stage) {
	s.T.Helper()
	s.Must(s.Rollout(s.T.Context(), stage.Patience))
	s.Eventually("driver registered on "+node, func(ctx context.Context) (string, error) {
		count, err := allocatable(ctx, s, node)
		if err == nil && count < 0 {
			return "CSINode does not name it", nil
		}
		return "", err
	})
}
