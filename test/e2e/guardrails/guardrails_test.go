//go:build e2e

package guardrails

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

const policy = `
apiVersion: holdfast.dev/v1alpha1
kind: StoragePolicy
metadata: {name: e2e-databases}
spec:
  match: {namespaceSelector: {matchLabels: {e2e.holdfast.dev/guarded: "yes"}}}
  guardrails:
    claim: {maxSize: 4Gi}
    deletion: {protect: WhenBound, allow: RecentSnapshot, snapshotNotOlderThanSeconds: 600}
`

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  resources: {requests: {storage: %s}}
`

// TestGuardrails installs the manager beside the driver, holds real volumes to a
// policy, takes the manager away and then all of it. Nothing of it may keep the
// cluster from working.
func TestGuardrails(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	dir := func(name string) string { return filepath.Join(s.Root, "config", name) }
	t.Cleanup(func() { uninstall(context.Background(), t, s, dir) })
	s.Run("apply", "-k", dir("guardrails"))
	s.Must(s.Rollout(ctx, stage.Patience))
	s.Step("the manager is ready")

	s.Run("label", "namespace", s.Namespace, "e2e.holdfast.dev/guarded=yes")
	apply(t, s, policy)
	s.Eventually("the policy holds in a Pod's webhook", func(context.Context) (string, error) {
		if text := refusal(t, s, fmt.Sprintf(claim, "large", s.Namespace, "5Gi")); !strings.Contains(text, "claim.maxSize") {
			return "a refusal that names claim.maxSize: " + text, nil
		}
		return "", nil
	})
	s.Eventually("the audit has scanned", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "get", "storagepolicy", "e2e-databases", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if string(out) != "True" {
			return "Ready is " + string(out), err
		}
		return "", nil
	})

	class := s.Class("gp3", nil)
	s.Claim("data", class, "1Gi")
	s.Pod("writer", "data")
	s.Ready("writer")
	id := s.VolumeID("data")
	for what, args := range map[string][]string{
		"the claim":          {"-n", s.Namespace, "delete", "pvc", "data", "--wait=false"},
		"all claims":         {"-n", s.Namespace, "delete", "pvc", "--all", "--wait=false"},
		"its namespace":      {"delete", "namespace", s.Namespace, "--wait=false"},
		"the claim, dry run": {"-n", s.Namespace, "delete", "pvc", "data", "--dry-run=server"},
	} {
		if out, err := s.Kubectl(ctx, args...); err == nil || !strings.Contains(err.Error()+string(out), "deletion") {
			t.Fatalf("%s was deleted without a snapshot, or the refusal does not say why: %v %s", what, err, out)
		}
	}
	s.Step("a bound claim is not deleted without a fresh snapshot")
	s.Snapshot("copy", "data", s.SnapshotClass("copies", nil))
	s.Eventually("the snapshot lets the claim go", func(ctx context.Context) (string, error) {
		_, err := s.Kubectl(ctx, "-n", s.Namespace, "delete", "pvc", "data", "--dry-run=server")
		if err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	s.Step("a fresh snapshot of volume %s is permission", id)

	withoutManager(t, s, dir)
}

// withoutManager holds what happens while no manager answers, and after.
func withoutManager(t *testing.T, s *stage.Stage, dir func(string) string) {
	t.Helper()
	ctx := t.Context()
	strict := stage.For(t, s.Namespace+"-strict").Namespace
	s.Run("create", "namespace", strict)
	s.Run("label", "namespace", strict, "holdfast.dev/enforce=strict")
	s.Run("-n", "holdfast-system", "scale", "deployment/holdfast-manager", "--replicas=0")
	s.Eventually("the manager has gone", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", "holdfast-system", "get", "pods", "-l", "app.kubernetes.io/component=manager", "-o", "name")
		return strings.TrimSpace(string(out)), err
	})
	if text := refusal(t, s, fmt.Sprintf(claim, "unjudged", s.Namespace, "5Gi")); text != "" {
		t.Errorf("without a manager a claim of an ordinary namespace is refused: %s", text)
	}
	if text := refusal(t, s, fmt.Sprintf(claim, "strict", strict, "1Gi")); !strings.Contains(text, "holdfast.dev") {
		t.Errorf("without a manager a claim of a strict namespace: %q, want a refusal that names the webhook", text)
	}
	for _, system := range []string{"kube-system", "holdfast-system"} {
		if text := refusal(t, s, fmt.Sprintf(claim, "e2e-system", system, "5Gi")); text != "" {
			t.Errorf("without a manager a claim of %s is refused: %s", system, text)
		}
	}
	s.Step("without a manager only strict namespaces wait")
	s.Run("-n", "holdfast-system", "scale", "deployment/holdfast-manager", "--replicas=2")
	s.Must(s.Rollout(ctx, stage.Patience))
	s.Eventually("a claim of the strict namespace is judged again", func(context.Context) (string, error) {
		return refusal(t, s, fmt.Sprintf(claim, "strict", strict, "1Gi")), nil
	})
	s.Run("delete", "-k", dir("webhook"))
	if text := refusal(t, s, fmt.Sprintf(claim, "after", s.Namespace, "5Gi")); text != "" {
		t.Errorf("with the webhooks gone a claim is refused: %s", text)
	}
}

// uninstall takes everything away in the order of docs/guardrails.md, and holds
// that nothing stays which the API server would ask.
func uninstall(ctx context.Context, t *testing.T, s *stage.Stage, dir func(string) string) {
	ctx, cancel := context.WithTimeout(ctx, stage.Patience)
	defer cancel()
	for _, what := range []string{"webhook", "manager", "crd"} {
		if _, err := s.Kubectl(ctx, "delete", "-k", dir(what), "--ignore-not-found"); err != nil {
			t.Errorf("take %s away: %v", what, err)
		}
	}
	out, err := s.Kubectl(ctx, "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name")
	if err != nil || strings.Contains(string(out), "holdfast") {
		t.Errorf("webhook configurations after the uninstall: %s %v", out, err)
	}
}

// file writes a manifest for kubectl.
func file(t *testing.T, manifest string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func apply(t *testing.T, s *stage.Stage, manifest string) {
	t.Helper()
	name := file(t, manifest)
	s.Eventually("the API server takes the policy", func(ctx context.Context) (string, error) {
		if _, err := s.Kubectl(ctx, "apply", "-f", name); err != nil {
			return err.Error(), nil // the kind may be a second old
		}
		return "", nil
	})
}

// refusal is why the API server refuses to create something; empty: it would not.
func refusal(t *testing.T, s *stage.Stage, manifest string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := s.Kubectl(ctx, "create", "--dry-run=server", "-f", file(t, manifest)); err != nil {
		return err.Error()
	}
	return ""
}
