//go:build e2e

package expansion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// blocked is the condition of docs/expansion.md.
const blocked = "holdfast.dev/ExpansionBlocked"

// growsWithin is how long a step may take: the writer fills two fifths of a GiB
// and more, and all of it happens on a machine that does much besides.
const growsWithin = 8 * time.Minute

// writer writes a few MiB each second until it is told to stop, and gives up at
// the first write that fails.
const writer = `trap exit TERM
while [ ! -e /data/stop ]; do
  dd if=/dev/zero bs=1048576 count=10 >>/data/file 2>/tmp/said || { cat /tmp/said; echo WRITE FAILED; exit 1; }
  sleep 1
done
echo stopped
while :; do sleep 1; done`

// writes has a Pod's container write.
func writes(p *corev1.Pod) {
	p.Spec.Containers[0].Command = []string{"sh", "-c", writer}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever // a write that failed is not made up for
}

// policy makes a StoragePolicy for the test's namespace.
func policy(s *stage.Stage, expansion string) {
	s.T.Helper()
	file := filepath.Join(s.T.TempDir(), "policy.yaml")
	s.Must(os.WriteFile(file, []byte(fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: StoragePolicy
metadata: {name: %[1]s}
spec:
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
  expansion: %[2]s
`, s.Namespace, expansion)), 0o600))
	s.Run("apply", "-f", file)
	s.T.Cleanup(func() {
		if out, err := s.Kubectl(context.Background(), "delete", "storagepolicy", s.Namespace); err != nil {
			s.T.Errorf("delete the policy: %v\n%s", err, out)
		}
	})
}

// capacity waits until a claim has a size, and nothing is under way.
func capacity(s *stage.Stage, claim, size string) {
	s.T.Helper()
	want := resource.MustParse(size)
	s.Must(testenv.Eventually(s.T.Context(), growsWithin, "claim "+claim+" grown to "+size, func(ctx context.Context) (string, error) {
		c := get(s, claim)
		if got := c.Status.Capacity[corev1.ResourceStorage]; got.Cmp(want) != 0 || len(c.Status.AllocatedResourceStatuses) > 0 {
			return fmt.Sprintf("capacity %s, asked for %s, conditions %+v, record %s", &got, c.Spec.Resources.Requests.Storage(), c.Status.Conditions, c.Annotations["holdfast.dev/modifications"]), nil
		}
		return "", nil
	}))
	s.Step("claim %s has %s", claim, size)
}

func get(s *stage.Stage, claim string) *corev1.PersistentVolumeClaim {
	s.T.Helper()
	c := &corev1.PersistentVolumeClaim{}
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: s.Namespace, Name: claim}, c))
	return c
}

// stops waits until a claim says why it does not grow.
func stops(s *stage.Stage, claim, reason string) string {
	s.T.Helper()
	message := ""
	s.Must(testenv.Eventually(s.T.Context(), growsWithin, "claim "+claim+" blocked: "+reason, func(context.Context) (string, error) {
		for _, c := range get(s, claim).Status.Conditions {
			if c.Type == blocked && c.Status == corev1.ConditionTrue && c.Reason == reason {
				message = c.Message
				return "", nil
			}
		}
		return fmt.Sprintf("conditions %+v", get(s, claim).Status.Conditions), nil
	}))
	return message
}

// sizes are those that EC2 was asked to give a volume, in order.
func sizes(s *stage.Stage, claim string) []int32 {
	s.T.Helper()
	state, err := s.Sim.State(s.T.Context())
	s.Must(err)
	id := s.VolumeID(claim)
	var to []int32
	for _, v := range state.Volumes {
		if v.ID == id {
			for _, m := range v.Modifications {
				to = append(to, m.To.SizeGiB)
			}
		}
	}
	return to
}

// TestGrowsUnderAWriter: a Pod writes steadily into 1 GiB of xfs. The volume grows
// under it, a GiB at a time, as often as the rules say; no write fails, nothing
// restarts, EC2 counts three modifications of the four that it lets through in a
// day; and at maxSize the claim says that it stops.
func TestGrowsUnderAWriter(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	policy(s, `{maxSize: 4Gi, trigger: {usedPercent: 40}, cooldownSeconds: 1}`)
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "1Gi")
	s.Pod("writer", "data", writes)
	began := s.Ready("writer").Status.StartTime
	for _, size := range []string{"2Gi", "3Gi", "4Gi"} {
		capacity(s, "data", size)
	}
	message := stops(s, "data", "AtMaximum")
	if !strings.Contains(message, "4Gi") || !strings.Contains(message, s.Namespace) {
		t.Errorf("the claim says %q, which names not the size and the policy", message)
	}
	s.In("writer", "touch", "/data/stop")
	s.Eventually("the writer stops", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "logs", "writer")
		if err == nil && strings.TrimSpace(string(out)) != "stopped" {
			return fmt.Sprintf("it says %q", out), nil
		}
		return "", err
	})
	p := s.Ready("writer")
	if p.Status.ContainerStatuses[0].RestartCount != 0 || !p.Status.StartTime.Equal(began) {
		t.Errorf("the Pod was restarted: %+v", p.Status)
	}
	if got := sizes(s, "data"); !slices.Equal(got, []int32{2, 3, 4}) {
		t.Errorf("EC2 was asked for %v GiB, want 2, 3, 4", got)
	}
	if kib := s.SizeKiB("writer", "/data"); kib < 35<<20/10 {
		t.Errorf("the filesystem has %d KiB, want nearly 4 GiB", kib)
	}
	s.Event("data", "Expanded", "to 4Gi")
	s.Event("data", "AtMaximum")
}

// TestBudgetHolds: a modification by hand counts, so that of a budget of two the
// policy has one; after that the claim waits, and says until when.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "1Gi")
	s.Pod("app", "data")
	s.Ready("app")
	policy(s, `{maxSize: 8Gi, trigger: {usedPercent: 10}, cooldownSeconds: 1, mode: Approve, budget: {modifications: 2, windowSeconds: 86400}}`)
	s.In("app", "sh", "-c", "dd if=/dev/zero of=/data/file bs=1048576 count=600 2>/dev/null && sync")
	s.Must(testenv.Eventually(t.Context(), growsWithin, "a proposal", func(context.Context) (string, error) {
		for _, c := range get(s, "data").Status.Conditions {
			if c.Type == "holdfast.dev/ExpansionProposed" && strings.Contains(c.Message, "approve-size=2Gi") {
				return "", nil
			}
		}
		return fmt.Sprintf("conditions %+v", get(s, "data").Status.Conditions), nil
	}))
	if got := sizes(s, "data"); len(got) != 0 {
		t.Errorf("EC2 was asked for %v GiB before anybody approved", got)
	}
	s.Run("-n", s.Namespace, "annotate", "pvc", "data", "holdfast.dev/approve-size=2Gi")
	capacity(s, "data", "2Gi")
	s.Ask("data", "3Gi")
	capacity(s, "data", "3Gi")
	message := stops(s, "data", "BudgetSpent")
	if !strings.Contains(message, "growth goes on at "+time.Now().UTC().Add(24*time.Hour).Format("2006-01-02")) {
		t.Errorf("the claim says %q, want it to say that growth goes on tomorrow", message)
	}
	if got := sizes(s, "data"); !slices.Equal(got, []int32{2, 3}) {
		t.Errorf("EC2 was asked for %v GiB, want 2, 3", got)
	}
}
