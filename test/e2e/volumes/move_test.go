//go:build e2e

package volumes

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// Draining a node moves the Pod to the other node of the volume's zone, the
// data with it, and the volume is at no time at two instances.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	labels := map[string]string{"app": "db"}
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "1Gi")
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			NodeSelector:                  map[string]string{corev1.LabelTopologyZone: "us-east-1a"},
			Containers: []corev1.Container{{
				Name: "db", Image: "docker.io/library/busybox:1.37",
				Command:      []string{"sh", "-c", "trap exit TERM; while :; do sleep 1; done"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
	}
	s.Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "db"},
		Spec: appsv1.DeploymentSpec{
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: pod,
		},
	})
	before := onlyPod(s, labels, "")
	sum := s.FillAndSum(before.Name, "/data/file", 16)
	id := s.VolumeID("data")

	watch, stop := context.WithCancel(t.Context())
	worst := make(chan int, 1)
	go func() { worst <- mostAttachments(watch, s, id) }()

	from := before.Spec.NodeName
	t.Cleanup(func() { _, _ = s.Kubectl(context.Background(), "uncordon", from) })
	s.Run("drain", from, "--pod-selector", "app=db", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
	after := onlyPod(s, labels, before.Name)
	stop()
	if n := <-worst; n != 1 {
		t.Errorf("volume %s was at %d instances at once, want at most 1 and at some time 1", id, n)
	}
	if to := after.Spec.NodeName; to != s.Neighbour(from) {
		t.Errorf("pod went from %s to %s, want the other node of the zone", from, to)
	}
	if got := s.Sum(after.Name, "/data/file"); got != sum {
		t.Errorf("checksum after the move is %s, want %s", got, sum)
	}
	if got := s.VolumeID("data"); got != id {
		t.Errorf("claim has volume %s after the move, want %s", got, id)
	}
}

// onlyPod waits for a ready Pod with the labels that is not called `not`.
func onlyPod(s *stage.Stage, labels map[string]string, not string) *corev1.Pod {
	s.T.Helper()
	name := ""
	s.Eventually(fmt.Sprintf("another pod with %v than %q", labels, not), func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabels(labels)); err != nil {
			return "", err
		}
		for _, p := range pods.Items {
			if p.Name != not && p.DeletionTimestamp == nil {
				name = p.Name
				return "", nil
			}
		}
		return fmt.Sprintf("%d pods, none of them", len(pods.Items)), nil
	})
	return s.Ready(name)
}

// mostAttachments looks at the volume again and again until ctx ends and tells
// the greatest number of instances that it was at.
func mostAttachments(ctx context.Context, s *stage.Stage, id string) int {
	most := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
		state, err := s.Sim.State(ctx)
		if err != nil {
			continue // ctx ended, or the next look will tell
		}
		for _, v := range state.Volumes {
			if v.ID == id {
				most = max(most, len(v.Attachments))
			}
		}
	}
}
