//go:build e2e

package hooks

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// TestFsfreeze runs the preset of docs/hooks.md. A program writes a number to one
// volume and then to another, many a second: in copies that were cut while both
// were frozen, the two are the same, or one apart.
func TestFsfreeze(t *testing.T) {
	s := stage.New(t)
	class, snapshots := s.Class("data", nil), s.SnapshotClass("copies", nil)
	s.Run("label", "namespace", s.Namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
	applied(s, strings.ReplaceAll(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: legacy}
spec:
  selector: {matchLabels: {app: legacy}}
  template:
    metadata: {labels: {app: legacy}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: legacy
          image: docker.io/library/busybox:1.37
          command: [sh, -c, 'trap exit TERM; n=0; while :; do n=$((n+1)); echo $n >>/data/n; echo $n >>/log/n; sleep 0.01; done']
          volumeMounts: [{name: data, mountPath: /data}, {name: log, mountPath: /log}]
        - name: freezer
          image: docker.io/library/busybox:1.37
          command: [sh, -c, 'trap exit TERM; while :; do sleep 1; done']
          securityContext: {privileged: true}
          volumeMounts: [{name: data, mountPath: /data}, {name: log, mountPath: /log}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: CLASS, resources: {requests: {storage: 1Gi}}}
    - metadata: {name: log}
      spec: {accessModes: [ReadWriteOnce], storageClassName: CLASS, resources: {requests: {storage: 1Gi}}}
`, "CLASS", class))
	s.Ready("legacy-0")
	applied(s, strings.NewReplacer("namespace: db", "namespace: "+s.Namespace, "\nspec:\n", "\nspec:\n  snapshotClassName: "+snapshots+"\n").Replace(preset(s)))
	s.Run("-n", s.Namespace, "annotate", "snapshotschedule", "frozen", "holdfast.dev/run-now=once")
	copies := map[string]string{} // by claim
	s.Eventually("both volumes are copied while they are frozen", func(ctx context.Context) (string, error) {
		var list snapshotv1.VolumeSnapshotList
		if err := s.Client.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{"holdfast.dev/schedule": "frozen"}); err != nil {
			return "", err
		}
		for _, o := range list.Items {
			if o.Annotations["holdfast.dev/quiesced"] == "Yes" && o.Status != nil && ptr.Deref(o.Status.ReadyToUse, false) {
				copies[*o.Spec.Source.PersistentVolumeClaimName] = o.Name
			}
		}
		if len(copies) != 2 {
			out, err := s.Kubectl(ctx, "-n", s.Namespace, "get", "snapshotschedule", "frozen", "-o", "jsonpath={.status}")
			return string(out), err
		}
		return "", nil
	})
	before := lastNumber(s, "legacy-0", "/log/n")
	s.Eventually("the program writes on", func(context.Context) (string, error) {
		if now := lastNumber(s, "legacy-0", "/log/n"); now <= before {
			return "it has written " + strconv.Itoa(now), nil
		}
		return "", nil
	})
	s.Step("both volumes were copied and are thawed")

	s.Claim("data", class, "1Gi", stage.FromSnapshot(copies["data-legacy-0"]))
	s.Claim("log", class, "1Gi", stage.FromSnapshot(copies["log-legacy-0"]))
	s.Pod("restored", "data", func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "log", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"},
		}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "log", MountPath: "/log"})
	})
	s.Ready("restored")
	data, log := lastNumber(s, "restored", "/data/n"), lastNumber(s, "restored", "/log/n")
	if data == 0 || data != log && data != log+1 {
		t.Errorf("the copies were cut at %d and %d, want the same, or the first one ahead", data, log)
	}
	s.Step("two volumes were cut as one, at %d and %d", data, log)
}

// preset is the schedule with fsfreeze in docs/hooks.md.
func preset(s *stage.Stage) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Root, "docs", "hooks.md"))
	s.Must(err)
	_, section, _ := strings.Cut(string(text), "\n## fsfreeze\n")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found || !strings.Contains(block, "name: frozen") {
		s.T.Fatal("docs/hooks.md has no schedule called frozen below fsfreeze")
	}
	return block
}

// applied has kubectl apply a manifest.
func applied(s *stage.Stage, manifest string) {
	s.T.Helper()
	file := filepath.Join(s.T.TempDir(), "manifest.yaml")
	s.Must(os.WriteFile(file, []byte(manifest), 0o600))
	s.Run("-n", s.Namespace, "apply", "-f", file)
}

// lastNumber is the last line of a file in a Pod.
func lastNumber(s *stage.Stage, pod, file string) int {
	s.T.Helper()
	n, err := strconv.Atoi(s.In(pod, "tail", "-n", "1", file))
	s.Must(err)
	return n
}
