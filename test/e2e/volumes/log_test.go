//go:build e2e

package volumes

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// Following one volumeID through the logs tells a volume's life: on the
// controller that it was created, attached, detached and deleted, on the one
// node it was at that it was formatted, mounted and unmounted.
func TestLogsTellTheStory(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	s.Pod("app", "data")
	node := s.Ready("app").Spec.NodeName
	id := s.VolumeID("data")
	s.DeletePod("app")
	s.Detached(id)
	s.Run("-n", s.Namespace, "delete", "pvc", "data")
	s.VolumeGone(id)

	var controller []string
	for _, p := range s.Controllers() {
		controller = append(controller, about(s.Logs(p), id)...)
	}
	tells(t, "the controller", controller, []string{
		"CreateVolume: ready", "ControllerPublishVolume: attached", "ControllerUnpublishVolume: detached", "DeleteVolume: deleted"})
	for _, n := range s.Nodes() {
		lines := about(s.Logs(s.NodePod(n.Name)), id)
		if n.Name == node {
			tells(t, "node "+n.Name, lines, []string{
				"NodeStageVolume: device found", "NodeStageVolume: mounted", "NodePublishVolume: published",
				"NodeUnpublishVolume: unmounted", "NodeUnstageVolume: unmounted"})
		} else if len(lines) > 0 {
			t.Errorf("node %s, where the volume never was, speaks of it:\n%s", n.Name, strings.Join(lines, "\n"))
		}
	}
}

// about are the lines with the volume's id under the key that every line uses.
func about(lines []string, id string) []string {
	var out []string
	for _, l := range lines {
		if strings.Contains(l, `volumeID="`+id+`"`) {
			out = append(out, l)
		}
	}
	return out
}

// tells holds that each message stands in a line.
func tells(t *testing.T, who string, lines, messages []string) {
	t.Helper()
	t.Logf("%s:\n%s", who, strings.Join(lines, "\n"))
	text := strings.Join(lines, "\n")
	for _, m := range messages {
		if !strings.Contains(text, `"`+m+`"`) {
			t.Errorf("no line of %s about the volume says %q", who, m)
		}
	}
}
