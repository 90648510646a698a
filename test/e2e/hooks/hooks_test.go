//go:build e2e

package hooks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// TestHooks: each Pod writes into its volume what runs in it, so that a restored
// copy tells what had run when it was cut.
func TestHooks(t *testing.T) {
	s := stage.New(t)
	p := &play{Stage: s, class: s.Class("data", nil), snapshots: s.SnapshotClass("copies", nil)}
	for _, name := range []string{"good", "fails", "goes-on", "hangs", "dies"} {
		s.Claim(name, p.class, "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"of": name} })
		s.Pod(name, name)
	}
	for _, name := range []string{"good", "fails", "goes-on", "hangs", "dies"} {
		s.Ready(name)
	}
	p.schedule("good", `before: [{command: [sh, -c, 'echo before >>/data/log; sync']}], after: [{command: [sh, -c, 'echo after >>/data/log']}]`)
	p.schedule("fails", `before: [{command: [sh, -c, 'echo before >>/data/log']}, {command: [sh, -c, 'echo no password >&2; exit 7']}], after: [{command: [sh, -c, 'echo after >>/data/log']}]`)
	p.schedule("goes-on", `before: [{command: [no-such-program], onError: Continue}], after: [{command: [sh, -c, 'echo after >>/data/log']}]`)
	p.schedule("hangs", `before: [{command: [sh, -c, 'echo before >>/data/log; exec sleep 1000'], timeoutSeconds: 2}], after: [{command: [sh, -c, 'echo after >>/data/log']}]`)

	p.quiesced("good", "Yes")
	p.logged("good", "before after")
	s.Step("hooks ran around the cut")
	p.quiesced("goes-on", "No")
	p.logged("goes-on", "after")
	p.told("goes-on", "NotQuiesced", "onError Continue")
	s.Step("a copy without its hook is marked")
	p.told("fails", "HookFailed", "hook before[1] in container app of Pod fails: the command failed with exit code 7: no password")
	p.logged("fails", "before after")
	p.told("hangs", "HookFailed", "it took longer than 2s")
	p.logged("hangs", "before after")
	for _, name := range []string{"fails", "hangs"} {
		if n := len(p.copies(name)); n > 0 {
			t.Errorf("%s: %d copies are made without their hook", name, n)
		}
		s.Run("-n", s.Namespace, "delete", "snapshotschedule", name) // or it is tried on
	}
	s.Step("a failing and a hanging hook are undone, and no copy is made")
	restored(p)
	killed(p)
}

type play struct {
	*stage.Stage
	class, snapshots string
}

// schedule makes one that runs at once and not again, for the claim of its name.
func (p *play) schedule(name, hooks string) {
	p.T.Helper()
	file := filepath.Join(p.T.TempDir(), name+".yaml")
	p.Must(os.WriteFile(file, []byte(fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: %[1]s, annotations: {holdfast.dev/run-now: once}}
spec:
  schedule: "0 0 29 2 *"
  snapshotClassName: %[2]s
  target: {claimSelector: {matchLabels: {of: %[1]s}}}
  hooks: {%[3]s, maxFreezeSeconds: 60}
`, name, p.snapshots, hooks)), 0o600))
	p.Run("-n", p.Namespace, "apply", "-f", file)
}

// copies are those of a schedule.
func (p *play) copies(schedule string) []snapshotv1.VolumeSnapshot {
	p.T.Helper()
	var list snapshotv1.VolumeSnapshotList
	p.Must(p.Client.List(p.T.Context(), &list, client.InNamespace(p.Namespace), client.MatchingLabels{"holdfast.dev/schedule": schedule}))
	return list.Items
}

// quiesced waits until a schedule has one copy, marked so.
func (p *play) quiesced(schedule, mark string) {
	p.T.Helper()
	p.Eventually("a copy of "+schedule+" is marked "+mark, func(context.Context) (string, error) {
		all := p.copies(schedule)
		if len(all) != 1 || all[0].Annotations["holdfast.dev/quiesced"] != mark {
			out, err := p.Kubectl(p.T.Context(), "-n", p.Namespace, "get", "snapshotschedule", schedule, "-o", "jsonpath={.status}")
			return fmt.Sprintf("%d copies, status %s", len(all), out), err
		}
		return "", nil
	})
}

// logged waits until what ran in a Pod is this, each once.
func (p *play) logged(pod, want string) {
	p.T.Helper()
	p.Eventually("what ran in "+pod, func(ctx context.Context) (string, error) {
		out, err := p.Exec(ctx, p.Namespace, pod, "cat", "/data/log")
		if got := strings.Join(strings.Fields(out), " "); err == nil && !strings.HasPrefix(got, want) {
			return "it is: " + got, nil
		}
		return "", err
	})
}

// told waits until the status of a schedule names its claim with a reason.
func (p *play) told(schedule, reason, says string) {
	p.T.Helper()
	p.Eventually(schedule+" tells "+reason, func(ctx context.Context) (string, error) {
		out, err := p.Kubectl(ctx, "-n", p.Namespace, "get", "snapshotschedule", schedule, "-o", "jsonpath={.status.claims[*].reason}: {.status.claims[*].message}")
		if err == nil && (!strings.HasPrefix(string(out), reason+": ") || !strings.Contains(string(out), says)) {
			return string(out), nil
		}
		return "", err
	})
}

// restored looks into the copy of good: before had run when it was cut, and after
// had not.
func restored(p *play) {
	p.T.Helper()
	name := p.copies("good")[0].Name
	p.Eventually("the copy is ready", func(ctx context.Context) (string, error) {
		o := &snapshotv1.VolumeSnapshot{}
		err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, o)
		if err == nil && (o.Status == nil || !ptr.Deref(o.Status.ReadyToUse, false)) {
			return "it is not", nil
		}
		return "", err
	})
	p.Claim("restored", p.class, "1Gi", stage.FromSnapshot(name))
	p.Pod("restored", "restored")
	p.Ready("restored")
	if got := strings.TrimSpace(p.In("restored", "cat", "/data/log")); got != "before" {
		p.T.Errorf("when the copy was cut there had run %q, want before alone", got)
	}
	p.Step("the copy was cut between the hooks")
}

// killed: while a hook of before is under way the schedule is deleted and the
// leading manager killed. The next one undoes.
func killed(p *play) {
	p.T.Helper()
	p.schedule("dies", `before: [{command: [sh, -c, 'echo before >>/data/log; exec sleep 1000'], timeoutSeconds: 60}], after: [{command: [sh, -c, 'echo after >>/data/log']}]`)
	p.logged("dies", "before")
	p.Run("-n", p.Namespace, "delete", "snapshotschedule", "dies")
	lease := &coordinationv1.Lease{}
	p.Must(p.Client.Get(p.T.Context(), client.ObjectKey{Namespace: testenv.Namespace, Name: "holdfast-manager"}, lease))
	leader, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.Namespace, Name: leader}}
	p.Must(p.Client.Delete(p.T.Context(), pod, client.GracePeriodSeconds(0)))
	if got := strings.Join(strings.Fields(p.In("dies", "cat", "/data/log")), " "); got != "before" {
		p.T.Fatalf("when the leader died there had run %q: this shows nothing", got)
	}
	p.logged("dies", "before after")
	p.Eventually("nothing is left to undo", func(ctx context.Context) (string, error) {
		out, err := p.Kubectl(ctx, "-n", testenv.Namespace, "get", "configmap", "-l", "holdfast.dev/record=hooks", "-o", "name")
		return strings.TrimSpace(string(out)), err
	})
	if n := len(p.copies("dies")); n > 0 {
		p.T.Errorf("%d copies of a schedule that is gone", n)
	}
	p.Step("the leader died, the schedule is gone, and after ran all the same")
}
