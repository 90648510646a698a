//go:build e2e

package foreign

import (
	"context"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// withoutKinds makes the cluster one that never had VolumeSnapshots, with a
// manager that starts in it. The answer brings them, as installing the
// snapshot-controller does.
func withoutKinds(s *stage.Stage) (bring func()) {
	s.T.Helper()
	ctx, crds := s.T.Context(), toolchain.CRDs(s.Binaries())
	var snapshots snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	s.Must(s.Client.List(ctx, &snapshots))
	s.Must(s.Client.List(ctx, &contents))
	if n := len(snapshots.Items) + len(contents.Items); n > 0 {
		s.T.Fatalf("%d snapshots and contents are left of another test: they would go with their kinds", n)
	}
	gone := true
	bring = func() {
		s.T.Helper()
		ctx := context.Background()
		_, err := s.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=sandbox", "-f", crds)
		s.Must(err)
		_, err = s.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
		s.Must(err)
		s.Must(s.StartComponent(ctx, sandbox.SnapshotController))
		gone = false
	}
	s.T.Cleanup(func() {
		if gone {
			bring()
		}
	})
	s.Must(s.StopComponent(ctx, sandbox.SnapshotController))
	s.Run("delete", "-f", crds, "--timeout=60s")
	s.Run("-n", testenv.Namespace, "delete", "pods", "-l", "app.kubernetes.io/component=manager")
	s.Eventually("managers start without the kinds", func(ctx context.Context) (string, error) {
		pods, err := managers(ctx, s)
		if err != nil || len(pods) != 2 {
			return fmt.Sprintf("%d Pods", len(pods)), err
		}
		for _, p := range pods {
			if !ready(&p) {
				return p.Name + " is not ready", nil
			}
			if n := p.Status.ContainerStatuses[0].RestartCount; n > 0 {
				s.T.Fatalf("manager %s has ended %d times", p.Name, n)
			}
		}
		return "", nil
	})
	s.Step("both managers start without the snapshot kinds")
	return bring
}

func managers(ctx context.Context, s *stage.Stage) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(testenv.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	return pods.Items, err
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// served waits until the metric of every manager says whether the kinds are there.
func served(s *stage.Stage, token string, want int) {
	s.T.Helper()
	pods, err := managers(s.T.Context(), s)
	s.Must(err)
	for _, p := range pods {
		func() {
			read, end := s.Metrics(p.Name, token)
			defer end()
			for _, group := range []string{"snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io"} {
				line := fmt.Sprintf("holdfast_snapshot_kinds_served{group=%q} %d\n", group, want)
				s.Eventually(p.Name+" tells "+line, func(ctx context.Context) (string, error) {
					text, err := read(ctx)
					if err == nil && !strings.Contains(text, line) {
						return "it does not", nil
					}
					return "", err
				})
			}
		}()
	}
}
