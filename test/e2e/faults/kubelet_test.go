//go:build e2e

package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// Pods are deleted, one of them by force, while their node's kubelet is down: the
// kubelet that comes back finds mounts of Pods that it does not know, unmounts
// them and gives their volumes back. (Kubernetes' own specs for this log in to
// the node and stop kubelet with systemctl.)
func TestPodsDeletedWhileKubeletIsDown(t *testing.T) {
	const node = "node-a2"
	s, class := begin(t, nil)
	volumes := map[string]string{"graceful": "", "forced": ""}
	for name := range volumes {
		s.Claim(name, class, "1Gi")
		s.Pod(name, name, stage.OnNode(node))
	}
	for name := range volumes {
		s.Ready(name)
		volumes[name] = s.VolumeID(name)
		s.FillAndSum(name, "/data/file", 4)
	}

	kubelet := sandbox.Kubelet + "/" + node
	s.Must(s.StopComponent(t.Context(), kubelet))
	down := true
	t.Cleanup(func() {
		if down {
			s.Must(s.StartComponent(context.Background(), kubelet))
		}
	})
	s.Run("-n", s.Namespace, "delete", "pod", "graceful", "--wait=false")
	s.Run("-n", s.Namespace, "delete", "pod", "forced", "--force", "--grace-period=0")
	s.Must(s.StartComponent(t.Context(), kubelet))
	down = false
	s.Step("kubelet is back")
	for name, id := range volumes {
		s.Detached(id)
		s.Step("volume %s of the Pod %s is detached", id, name)
	}
	mounts, err := s.NodeCommand(t.Context(), node, "cat", "/proc/mounts")
	s.Must(err)
	for name, id := range volumes {
		if pv := s.PV(name); strings.Contains(string(mounts), pv.Name) || strings.Contains(string(mounts), id) {
			t.Errorf("%s still has mounts of the Pod %s, volume %s", node, name, id)
		}
	}
}
