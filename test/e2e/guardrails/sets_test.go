//go:build e2e

package guardrails

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// testSets holds the claims of a StatefulSet while it is scaled, deleted, deleted
// without what it owns, and made again.
func testSets(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	policy(s, "", "", "scaleDown: {snapshotNotOlderThanSeconds: 600}, deletion: {protect: WhenBound, allow: RecentSnapshot, snapshotNotOlderThanSeconds: 600}")
	pg := set(s.Namespace, "pg", s.Class("gp3", nil), 2)
	again := pg.DeepCopy()
	s.Create(pg)
	s.Ready("pg-0")
	s.Ready("pg-1")
	stamped(s, pg, 0, 1)

	smaller := map[string]func(dryRun ...string) error{
		"kubectl scale": func(dryRun ...string) error {
			_, err := s.Kubectl(ctx, append([]string{"-n", s.Namespace, "scale", "statefulset/pg", "--replicas=1"}, dryRun...)...)
			return err
		},
		"a change of the set": func(dryRun ...string) error {
			_, err := s.Kubectl(ctx, append([]string{"-n", s.Namespace, "patch", "statefulset", "pg", "--type=merge", "-p", `{"spec":{"replicas":1}}`}, dryRun...)...)
			return err
		},
		"a patch of its scale, as an autoscaler's": func(dryRun ...string) error {
			_, err := s.Kubectl(ctx, append([]string{"-n", s.Namespace, "patch", "statefulset", "pg", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":0}}`}, dryRun...)...)
			return err
		},
	}
	for how, scale := range smaller {
		dry, real := scale("--dry-run=server"), scale()
		for _, err := range []error{dry, real} {
			if err == nil || !strings.Contains(err.Error(), "rule scaleDown") || !strings.Contains(err.Error(), s.Namespace+"/data-pg-1") {
				t.Errorf("%s, without a snapshot of the claim that loses its Pod: %v", how, err)
			}
		}
	}
	accepted(s, "more replicas", scaleTo(s, "3", "--dry-run=server"))
	s.Step("the set is not made smaller without a snapshot")

	refused(s, "the set, whose claims go with it, as a dry run", s.Client.Delete(ctx, pg.DeepCopy(), client.DryRunAll), "rule deletion", "data-pg-0", "data-pg-1")
	refused(s, "the set, whose claims go with it", s.Client.Delete(ctx, pg.DeepCopy()), "rule deletion", "data-pg-0", "data-pg-1")
	now := &appsv1.StatefulSet{}
	s.Must(s.Client.Get(ctx, client.ObjectKeyFromObject(pg), now))
	if now.UID != pg.UID || now.DeletionTimestamp != nil || *now.Spec.Replicas != 2 {
		t.Errorf("after refusals the set is %s with %d replicas, going: %v; want %s with 2, not going", now.UID, *now.Spec.Replicas, now.DeletionTimestamp, pg.UID)
	}

	copies := s.SnapshotClass("copies", nil)
	s.Snapshot("copy", "data-pg-1", copies)
	s.Eventually("with a snapshot of the last claim the set is made smaller", func(context.Context) (string, error) {
		return "", scaleTo(s, "1")
	})
	s.Must(s.WaitGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "pg-1"}}, stage.Patience))
	stamped(s, pg, 0, 1)
	refused(s, "the set with the one claim without a snapshot", s.Client.Delete(ctx, pg.DeepCopy(), client.DryRunAll), "data-pg-0")
	s.Step("with a snapshot it is")

	s.Snapshot("kept", "data-pg-0", copies)
	last := snapshotOf(s, "copy", "data-pg-1", "")
	refused(s, "the newest ready snapshot of a claim", s.Client.Delete(ctx, last.DeepCopy()), "rule deletion", "snapshot "+s.Namespace+"/copy")
	s.Run("-n", s.Namespace, "annotate", "volumesnapshot", "copy", "holdfast.dev/override-deletion=the claim is to lose it")
	s.Delete(last)
	s.Eventually("the set is held by the claim of a Pod that was scaled away, which goes with it", func(context.Context) (string, error) {
		if err := s.Client.Delete(ctx, pg.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "data-pg-1") || strings.Contains(err.Error(), "data-pg-0") {
			return fmt.Sprintf("a refusal that names data-pg-1 alone: %v", err), nil
		}
		return "", nil
	})

	pod := s.Ready("pg-0")
	accepted(s, "the set alone", s.Client.Delete(ctx, pg.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	s.Must(s.WaitGone(ctx, pg.DeepCopy(), stage.Patience))
	stamped(s, pg, 0, 1) // outlives the set
	*again.Spec.Replicas = 1
	s.Create(again)
	stamped(s, again, 0)
	if kept := s.Ready("pg-0"); kept.UID != pod.UID {
		t.Errorf("Pod pg-0 was made again")
	}
	s.Step("a set that is made again finds its Pod and its claims, and its stamp is on them")
}

func scaleTo(s *stage.Stage, replicas string, more ...string) error {
	_, err := s.Kubectl(s.T.Context(), append([]string{"-n", s.Namespace, "scale", "statefulset/pg", "--replicas=" + replicas}, more...)...)
	return err
}

// stamped waits until the claims of some ordinals say whose they are, and holds
// that they are there to stay.
func stamped(s *stage.Stage, set *appsv1.StatefulSet, ordinals ...int) {
	s.T.Helper()
	for _, ordinal := range ordinals {
		c := claim(s.Namespace, fmt.Sprintf("data-%s-%d", set.Name, ordinal), "1Gi")
		want := map[string]string{
			"holdfast.dev/statefulset-uid": string(set.UID), "holdfast.dev/statefulset-name": set.Name,
			"holdfast.dev/statefulset-template": "data", "holdfast.dev/statefulset-ordinal": strconv.Itoa(ordinal),
		}
		s.Eventually("claim "+c.Name+" is stamped", func(ctx context.Context) (string, error) {
			if err := s.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, c); err != nil {
				return "", err
			}
			for k, v := range want {
				if c.Annotations[k] != v {
					return fmt.Sprintf("%s is %q, want %q", k, c.Annotations[k], v), nil
				}
			}
			return "", nil
		})
		if c.DeletionTimestamp != nil {
			s.T.Errorf("claim %s is going", c.Name)
		}
	}
}
