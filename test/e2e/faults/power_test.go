//go:build e2e

package faults

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A node loses its power and comes back: the Pods on it are back with their
// data. (What a loss of power does to the blocks of a disk is not shown here:
// the kernel that has the mounts is the machine's, which unmounts them when
// the node's processes are gone.)
func TestNodePowerLoss(t *testing.T) {
	const node = "node-a2"
	s, ext4 := begin(t, nil)
	xfs := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	pods := map[string]*corev1.Pod{"ext4": nil, "xfs": nil}
	for name := range pods {
		s.Claim(name, map[string]string{"ext4": ext4, "xfs": xfs}[name], "1Gi")
		s.Pod(name, name, stage.OnNode(node))
	}
	sums := map[string]string{}
	for name := range pods {
		pods[name] = s.Ready(name)
		sums[name] = s.FillAndSum(name, "/data/file", 8)
	}

	s.Must(s.PowerOff(t.Context(), node))
	off := true
	t.Cleanup(func() {
		if off {
			s.Must(s.PowerOn(context.Background(), node))
		}
	})
	s.Eventually(node+" not ready", nodeReady(s, node, false))
	s.Step("%s is off", node)
	s.Must(s.PowerOn(t.Context(), node))
	off = false
	s.Eventually(node+" ready", nodeReady(s, node, true))
	s.Step("%s is on", node)
	for name, before := range pods {
		s.Eventually("new container of "+name, newContainer(s, before))
		s.Ready(name)
		if got := s.Sum(name, "/data/file"); got != sums[name] {
			t.Errorf("%s: checksum after the power loss is %s, want %s", name, got, sums[name])
		}
		holds(s, name, name)
	}
}

func newContainer(s *stage.Stage, before *corev1.Pod) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var p corev1.Pod
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(before), &p); err != nil {
			return "", err
		}
		if p.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
			return "still the old one", nil
		}
		return "", nil
	}
}

func nodeReady(s *stage.Stage, name string, want bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var n corev1.Node
		if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return "", err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) != want {
				return "Ready is " + string(c.Status), nil
			}
		}
		return "", nil
	}
}
