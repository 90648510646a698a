//go:build e2e

package orphans

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

const (
	since  = "holdfast.dev/orphaned-since"
	policy = "example-27-retired"
)

// TestOrphans plays examples/27-orphaned-claims: a set is scaled down and its claim
// is copied and goes; that of a set that is scaled up again in time stays; what was
// retired comes back from its last snapshot; and what a policy protects stays (C18).
func TestOrphans(t *testing.T) {
	t.Parallel()
	s := stage.For(t, "example-27")
	for _, file := range []string{"00-namespace", "10-classes", "20-policy", "30-database", "40-queue"} {
		s.Run("apply", "-f", example(s, file))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stage.Patience)
		defer cancel()
		for _, args := range [][]string{
			{"delete", "storagepolicy", policy, "--ignore-not-found"},
			{"delete", "namespace", "example-27", "--ignore-not-found"},
			{"delete", "-f", example(s, "10-classes"), "--ignore-not-found"},
		} {
			if _, err := s.Kubectl(ctx, args...); err != nil {
				t.Error(err)
			}
		}
	})
	for _, set := range []string{"database", "queue"} {
		s.Run("-n", s.Namespace, "rollout", "status", "statefulset/"+set, "--timeout=5m")
	}
	s.Eventually("all claims are stamped", func(ctx context.Context) (string, error) {
		for _, name := range []string{"data-database-2", "data-queue-1"} {
			c, err := claim(ctx, s, name)
			if err != nil || c.Annotations["holdfast.dev/statefulset-uid"] == "" {
				return name + " is not", err
			}
		}
		return "", nil
	})
	data := s.FillAndSum("database-2", "/var/lib/data/rows", 8)
	volume, kept := s.VolumeID("data-database-2"), s.VolumeID("data-queue-1")

	s.Run("patch", "storagepolicy", policy, "--type=merge", "-p", `{"spec":{"orphans":{"afterSeconds":60}}}`)
	scale(s, "database", 2)
	scale(s, "queue", 1)
	marked(s, "data-database-2")
	marked(s, "data-queue-1")
	scale(s, "queue", 2) // in time
	s.Eventually("the claim of the set that was scaled up again is no orphan", func(ctx context.Context) (string, error) {
		c, err := claim(ctx, s, "data-queue-1")
		if err == nil && c.Annotations[since] != "" {
			return "it is marked", nil
		}
		return "", err
	})
	s.Step("two claims were left behind, and one was taken up again")

	goes(s, "data-database-2")
	var copies snapshotv1.VolumeSnapshotList
	s.Must(s.Client.List(t.Context(), &copies, client.InNamespace(s.Namespace)))
	if len(copies.Items) != 1 || copies.Items[0].Labels["holdfast.dev/orphan-of"] != "database" || copies.Items[0].Status == nil || !ptr.Deref(copies.Items[0].Status.ReadyToUse, false) {
		t.Fatalf("snapshots are %+v, want one of database, ready", copies.Items)
	}
	last := copies.Items[0]
	s.VolumeGone(volume)
	if s.Volume(kept).VolumeId == nil {
		t.Errorf("volume %s of the set that was scaled up again is gone", kept)
	}
	s.Run("-n", s.Namespace, "rollout", "status", "statefulset/queue", "--timeout=3m")
	for _, name := range []string{"data-database-0", "data-database-1", "data-queue-0", "data-queue-1"} {
		if c, err := claim(t.Context(), s, name); err != nil || c.DeletionTimestamp != nil {
			t.Errorf("claim %s: %v, deleted at %v", name, err, c.DeletionTimestamp)
		}
	}
	s.Event("data-database-2", "OrphanDeleted", last.Name)
	s.Step("data-database-2 has gone, after snapshot %s", last.Name)

	manifest, err := os.ReadFile(example(s, "50-claim-from-snapshot"))
	s.Must(err)
	file := filepath.Join(t.TempDir(), "claim.yaml")
	s.Must(os.WriteFile(file, []byte(strings.ReplaceAll(string(manifest), "LAST_COPY", last.Name)), 0o600))
	s.Run("apply", "-f", file)
	scale(s, "database", 3)
	s.Run("-n", s.Namespace, "rollout", "status", "statefulset/database", "--timeout=5m")
	if got := s.Sum("database-2", "/var/lib/data/rows"); got != data {
		t.Errorf("the data that came back has sum %s, want %s", got, data)
	}
	s.Step("it came back from that snapshot, with its data")

	testProtected(s)
}

// testProtected: a guardrail refuses the deletion, and the claim stays until
// somebody who may overrides it.
func testProtected(s *stage.Stage) {
	s.T.Helper()
	s.Run("patch", "storagepolicy", policy, "--type=merge", "-p", `{"spec":{"guardrails":{"deletion":{"protect":"WhenBound","allow":"OverrideOnly"}}}}`)
	scale(s, "queue", 1)
	marked(s, "data-queue-1")
	s.Must(s.Within(3*stage.Patience, "the refusal is in the policy's status", func(ctx context.Context) (string, error) {
		if got := report(ctx, s); !strings.Contains(got, "its deletion is refused") || !strings.Contains(got, "wanted is an override") {
			return got, nil
		}
		return "", nil
	}))
	s.Event("data-queue-1", "OrphanBlocked", "wanted is an override")
	c, err := claim(s.T.Context(), s, "data-queue-1")
	s.Must(err)
	if at, _ := time.Parse(time.RFC3339, c.Annotations[since]); time.Since(at) < time.Minute || c.DeletionTimestamp != nil {
		s.T.Errorf("the claim has been an orphan since %s, deleted at %v", c.Annotations[since], c.DeletionTimestamp)
	}
	s.Step("a protected claim stays")
	s.Run("-n", s.Namespace, "annotate", "pvc", "data-queue-1", "holdfast.dev/override-deletion=moved, ticket 4711")
	goes(s, "data-queue-1")
	s.Step("overridden, it goes")
}

func example(s *stage.Stage, file string) string {
	return filepath.Join(s.Root, "examples", "27-orphaned-claims", file+".yaml")
}

func scale(s *stage.Stage, set string, replicas int) {
	s.T.Helper()
	s.Run("-n", s.Namespace, "scale", "statefulset/"+set, fmt.Sprintf("--replicas=%d", replicas))
}

func claim(ctx context.Context, s *stage.Stage, name string) (*corev1.PersistentVolumeClaim, error) {
	c := &corev1.PersistentVolumeClaim{}
	return c, s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, c)
}

// marked waits until a claim is an orphan.
func marked(s *stage.Stage, name string) {
	s.T.Helper()
	s.Eventually(name+" is an orphan", func(ctx context.Context) (string, error) {
		c, err := claim(ctx, s, name)
		if apierrors.IsNotFound(err) {
			s.T.Fatalf("%s has gone before it was seen to be an orphan", name)
		}
		if err == nil && c.Annotations[since] == "" {
			return "it has no mark", nil
		}
		return "", err
	})
}

// goes waits until a claim has been copied and has gone: a minute for the policy,
// and three sweeps.
func goes(s *stage.Stage, name string) {
	s.T.Helper()
	s.Must(s.Within(3*stage.Patience, name+" is copied and goes", func(ctx context.Context) (string, error) {
		_, err := claim(ctx, s, name)
		if err == nil {
			return "it is there: " + report(ctx, s), nil
		}
		return "", client.IgnoreNotFound(err)
	}))
}

// report is what the policy says of its orphans.
func report(ctx context.Context, s *stage.Stage) string {
	out, err := s.Kubectl(ctx, "get", "storagepolicy", policy, "-o", "jsonpath={.status.orphans}")
	if err != nil {
		return err.Error()
	}
	var parsed struct {
		Claims []struct{ Name, Message string } `json:"claims"`
	}
	if json.Unmarshal(out, &parsed) != nil || len(parsed.Claims) == 0 {
		return string(out)
	}
	var lines []string
	for _, c := range parsed.Claims {
		lines = append(lines, c.Name+": "+c.Message)
	}
	return strings.Join(lines, "\n")
}
