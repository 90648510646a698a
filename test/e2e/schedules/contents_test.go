//go:build e2e

package schedules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// TestRetainedContents: with a class that retains, a copy that ages out goes from
// EC2 too, unless the schedule is to follow the class, and then that is told.
func TestRetainedContents(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	retaining := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-retaining"}, Driver: stage.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
	}
	s.Create(retaining)
	s.Claim("data", s.Class("immediate", nil, immediate), "1Gi")
	s.PV("data")
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: now}
spec: {schedule: "0 0 29 2 *", snapshotClassName: %s, retention: {keepLast: 1}, onScheduleDelete: Delete}
`, retaining.Name))
	first := runNow(s, "first")
	second := runNow(s, "second")
	goes(s, first)
	s.Eventually(first.handle+" goes from EC2", func(ctx context.Context) (string, error) { return first.inEC2(ctx, s, false) })
	s.Step("a copy that aged out is gone from EC2, though its class retains")

	s.Run("-n", s.Namespace, "patch", "snapshotschedule", "now", "--type=merge", "-p", `{"spec":{"retention":{"contents":"FollowClass"}}}`)
	third := runNow(s, "third")
	goes(s, second)
	s.Eventually("the schedule tells that contents are retained", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "get", "snapshotschedule", "now", "-o", `jsonpath={.status.conditions[?(@.type=="ContentsRetained")].status}`)
		if err == nil && string(out) != "True" {
			return fmt.Sprintf("ContentsRetained is %q", out), nil
		}
		return "", err
	})
	if missing, err := second.inEC2(t.Context(), s, true); missing != "" || err != nil {
		t.Errorf("FollowClass: %s, %v", missing, err)
	}
	s.Step("with FollowClass the cloud snapshot stays, and is told of")

	// What is left is the test's own to take away.
	s.Run("-n", s.Namespace, "patch", "snapshotschedule", "now", "--type=merge", "-p", `{"spec":{"retention":{"contents":"Delete"}}}`)
	s.Run("patch", "volumesnapshotcontent", second.content, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	s.Run("delete", "volumesnapshotcontent", second.content, "--timeout", stage.Patience.String())
	s.Run("-n", s.Namespace, "delete", "snapshotschedule", "now", "--timeout", stage.Patience.String())
	goes(s, third)
	s.Eventually("the last copy goes with its schedule", func(ctx context.Context) (string, error) { return third.inEC2(ctx, s, false) })
}

// taken is a ready copy of claim data.
type taken struct{ name, content, handle string }

// runNow runs the schedule by hand and waits for the copy.
func runNow(s *stage.Stage, token string) (made taken) {
	s.T.Helper()
	var known []string
	for _, o := range ofNow(s) {
		known = append(known, o.Name)
	}
	s.Run("-n", s.Namespace, "annotate", "snapshotschedule", "now", "holdfast.dev/run-now="+token, "--overwrite")
	s.Eventually("the copy of run "+token, func(ctx context.Context) (string, error) {
		for _, o := range ofNow(s) {
			if slices.Contains(known, o.Name) || !isReady(o) {
				continue
			}
			content := &snapshotv1.VolumeSnapshotContent{}
			if err := s.Client.Get(ctx, client.ObjectKey{Name: *o.Status.BoundVolumeSnapshotContentName}, content); err != nil {
				return "", err
			}
			made = taken{o.Name, content.Name, *content.Status.SnapshotHandle}
			return made.inEC2(ctx, s, true)
		}
		return fmt.Sprintf("none is ready but those before: %s", strings.Join(known, ", ")), nil
	})
	return made
}

// ofNow are the copies of the schedule.
func ofNow(s *stage.Stage) []snapshotv1.VolumeSnapshot {
	s.T.Helper()
	var list snapshotv1.VolumeSnapshotList
	s.Must(s.Client.List(s.T.Context(), &list, client.InNamespace(s.Namespace), client.MatchingLabels{ofSchedule: "now"}))
	return list.Items
}

// goes waits until a copy is gone from the cluster.
func goes(s *stage.Stage, c taken) {
	s.T.Helper()
	s.Must(s.WaitGone(s.T.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.name}}, stage.Patience))
}

// inEC2 says what is missing until EC2 has the copy, or has it no more.
func (c taken) inEC2(ctx context.Context, s *stage.Stage, want bool) (string, error) {
	state, err := s.Sim.State(ctx)
	if err != nil {
		return "", err
	}
	if has := slices.ContainsFunc(state.Snapshots, func(o ec2sim.Snapshot) bool { return o.ID == c.handle }); has != want {
		return fmt.Sprintf("EC2 has %s: %t, want %t", c.handle, has, want), nil
	}
	return "", nil
}
