//go:build e2e

package orphans

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// TestForgottenIsCounted: a PersistentVolume whose claim is gone, and a
// VolumeAttachment of a node that is not there, are in the metrics of the manager
// that leads. (Claims that have been Pending or Terminating for too long are told
// of after a quarter of an hour, which controllers/diagnosis shows with a clock of
// its own.)
func TestForgottenIsCounted(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	const driver = "forgotten.example.com" // installed nowhere: nobody else's volumes count as its
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	claim := s.Claim("data", "", "3Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume.Name })
	volume.Spec = corev1.PersistentVolumeSpec{
		Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Namespace: s.Namespace, Name: claim.Name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "forgotten"}},
	}
	s.Create(volume)
	s.PV(claim.Name)
	s.Delete(claim)
	s.Released(volume)
	s.Create(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-gone", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name}},
	})

	told := managers(s)
	for _, line := range []string{
		fmt.Sprintf("holdfast_volumes_released{driver=%q} 1\n", driver),
		fmt.Sprintf("holdfast_volumes_released_bytes{driver=%q} %g\n", driver, float64(3<<30)),
		fmt.Sprintf("holdfast_volumeattachments_stuck{driver=%q} 1\n", driver),
	} {
		s.Eventually("a manager tells "+line, func(ctx context.Context) (string, error) {
			all, err := told(ctx)
			if err == nil && !strings.Contains(all, line) {
				return "none does", nil
			}
			return "", err
		})
	}
}

// TestLostClaimIsTold: a claim whose PersistentVolume is taken away by force is
// counted and told of, and binds again as the event says.
func TestLostClaimIsTold(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	claim := s.Claim("data", "", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume.Name })
	volume.Spec = corev1.PersistentVolumeSpec{
		Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "lost.example.com", VolumeHandle: "lost"}},
	}
	again := volume.DeepCopy()
	s.Create(volume)
	s.PV(claim.Name)
	s.Must(s.Client.Delete(t.Context(), volume))
	s.Run("patch", "pv", volume.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	told, line := managers(s), fmt.Sprintf("holdfast_claims_lost{namespace=%q} 1\n", s.Namespace)
	tells := func(want bool) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			all, err := told(ctx)
			if is := strings.Contains(all, line); err == nil && is != want {
				return fmt.Sprintf("one does: %t", is), nil
			}
			return "", err
		}
	}
	s.Eventually("a manager counts the lost claim", tells(true))
	s.Eventually("an event says what to do", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "events", "--for", "persistentvolumeclaim/data")
		if err == nil && !strings.Contains(string(out), "make a PersistentVolume of that name with its handle and no claimRef") {
			return string(out), nil
		}
		return "", err
	})
	s.Step("the lost claim is counted and told of")
	s.Create(again)
	s.PV(claim.Name)
	s.Eventually("no manager counts it any more", tells(false))
}

// managers makes what all managers serve for Prometheus readable, in one text.
func managers(s *stage.Stage) (read func(context.Context) (string, error)) {
	s.T.Helper()
	var pods corev1.PodList
	s.Must(s.Client.List(s.T.Context(), &pods, client.InNamespace(testenv.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"}))
	token := s.MetricsToken()
	var each []func(context.Context) (string, error)
	for _, p := range pods.Items {
		one, end := s.Metrics(p.Name, token)
		s.T.Cleanup(end)
		each = append(each, one)
	}
	return func(ctx context.Context) (string, error) {
		all := ""
		for _, one := range each {
			text, err := one(ctx)
			if err != nil {
				return "", err
			}
			all += text
		}
		return all, nil
	}
}
