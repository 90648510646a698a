//go:build e2e

package faults

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A node loses its power and comes back: the Pod on it is back with its data.
// (What a loss of power does to the blocks of a disk is not shown here: the
// kernel that has the mounts is the machine's, which unmounts them when the
// node's processes are gone.)
func TestNodePowerLoss(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			s, class := begin(t, map[string]string{"csi.storage.k8s.io/fstype": fs})
			const node = "node-a2"
			s.Claim("data", class, "1Gi")
			s.Pod("app", "data", stage.OnNode(node))
			before := s.Ready("app")
			sum := s.FillAndSum("app", "/data/file", 8)

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
			s.Eventually("container of app restarted", func(ctx context.Context) (string, error) {
				var p corev1.Pod
				if err := s.Client.Get(ctx, client.ObjectKeyFromObject(before), &p); err != nil {
					return "", err
				}
				if p.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
					return "the old one", nil
				}
				return "", nil
			})
			s.Ready("app")
			if got := s.Sum("app", "/data/file"); got != sum {
				t.Errorf("checksum after the power loss is %s, want %s", got, sum)
			}
			holds(s, "app", "data")
		})
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
