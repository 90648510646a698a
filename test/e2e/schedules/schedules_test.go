//go:build e2e

package schedules

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// claims is how many claims the run has that the manager dies in. They are spread
// over half a minute, so that there is a middle to die in.
const claims = 10

// TestSchedules: a schedule of one minute takes copies that become ready; the
// leading manager's Pod is killed in the middle of a run of ten claims, and each
// claim has one copy of it in the end (C04).
func TestSchedules(t *testing.T) {
	s := stage.New(t)
	class, snapshots := s.Class("immediate", nil, immediate), s.SnapshotClass("copies", nil)
	for i := range claims {
		s.Claim(fmt.Sprintf("data-%d", i), class, "1Gi")
	}
	for i := range claims {
		if _, err := s.WaitClaimBound(t.Context(), s.Namespace, fmt.Sprintf("data-%d", i), stage.Patience); err != nil {
			t.Fatal(err)
		}
	}
	// Due once in this hour: nothing else of this schedule is due while the next
	// manager takes over.
	slot := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	if time.Until(slot) < 10*time.Second {
		slot = slot.Add(time.Minute)
	}
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: once}
spec: {schedule: "%d * * * *", jitterSeconds: 30, snapshotClassName: %[2]s}
---
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: minutely}
spec: {schedule: "* * * * *", concurrencyPolicy: Allow, snapshotClassName: %[2]s, target: {claimSelector: {matchLabels: {every: minute}}}}
`, slot.Minute(), snapshots))
	s.Run("-n", s.Namespace, "label", "pvc", "data-0", "every=minute")
	name := slot.Format("20060102T150405Z")
	s.Eventually("the middle of the run", func(context.Context) (string, error) {
		if n := len(copied(s, "once", name)); n < 3 {
			return fmt.Sprintf("%d copies", n), nil
		}
		return "", nil
	})
	killLeader(s)
	before := len(copied(s, "once", name))
	if before >= claims {
		t.Fatalf("all %d copies were there before the leader died: this shows nothing", before)
	}
	s.Step("the leader died after %d of %d copies", before, claims)

	s.Eventually("all copies are there and ready", func(context.Context) (string, error) {
		ready := 0
		for _, o := range copied(s, "once", name) {
			if isReady(o) {
				ready++
			}
		}
		if ready != claims {
			return fmt.Sprintf("%d are ready", ready), nil
		}
		return "", nil
	})
	s.Eventually("the run is over", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "get", "snapshotschedule", "once", "-o", "jsonpath={.status.lastScheduleTime} {.status.readyCount} {.status.missedSlots}")
		if want := slot.Format(time.RFC3339) + " 10 0"; err == nil && string(out) != want {
			return fmt.Sprintf("status is %q, want %q", out, want), nil
		}
		return "", err
	})
	if n := len(copied(s, "once", "")); n != claims {
		t.Errorf("%d claims have copies, want %d", n, claims)
	}
	s.Step("the next leader went on: %d copies, all ready", claims)
	s.Eventually("the schedule of one minute has a ready copy", func(context.Context) (string, error) {
		for claim, o := range copied(s, "minutely", "") {
			if claim != "data-0" {
				t.Errorf("claim %s is copied, which is not in the target", claim)
			}
			if isReady(o) {
				return "", nil
			}
		}
		return "none is ready", nil
	})
}

// killLeader deletes the Pod of the leading manager without grace.
func killLeader(s *stage.Stage) {
	s.T.Helper()
	holder := leader(s.T.Context(), s)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.Namespace, Name: strings.Split(holder, "_")[0]}}
	s.Must(s.Client.Delete(s.T.Context(), pod, client.GracePeriodSeconds(0)))
	s.Step("leader %s is killed", pod.Name)
}

// leader is who holds the manager's lease: Pod_UUID.
func leader(ctx context.Context, s *stage.Stage) string {
	s.T.Helper()
	lease := &coordinationv1.Lease{}
	s.Must(s.Client.Get(ctx, client.ObjectKey{Namespace: testenv.Namespace, Name: "holdfast-manager"}, lease))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
