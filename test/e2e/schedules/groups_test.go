//go:build e2e

package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// ofGroup is on each copy that was cut with others, as docs/snapshots.md tells.
const ofGroup = "holdfast.dev/group"

// groupsOf are the VolumeGroupSnapshots of a schedule by name, in a run ("": in all).
func groupsOf(s *stage.Stage, schedule, slot string) map[string]groupsnapshotv1.VolumeGroupSnapshot {
	s.T.Helper()
	labels := client.MatchingLabels{ofSchedule: schedule}
	if slot != "" {
		labels[ofSlot] = slot
	}
	var list groupsnapshotv1.VolumeGroupSnapshotList
	s.Must(s.Client.List(s.T.Context(), &list, client.InNamespace(s.Namespace), labels))
	all := map[string]groupsnapshotv1.VolumeGroupSnapshot{}
	for _, g := range list.Items {
		all[g.Name] = g
	}
	return all
}

// cut is status.lastGroupCut.
type cut struct {
	Slot                                   string
	GroupCount, SeriesCount, SpreadSeconds int
}

// lastCut waits until a schedule tells how a run was cut.
func lastCut(s *stage.Stage, schedule, slot string) cut {
	s.T.Helper()
	var told cut
	s.Eventually("schedule "+schedule+" tells how run "+slot+" was cut", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "get", "snapshotschedule", schedule, "-o", "jsonpath={.status.lastGroupCut}")
		if err != nil || len(out) == 0 {
			return "it tells nothing", err
		}
		if err := json.Unmarshal(out, &told); err != nil {
			return "", err
		}
		if told.Slot != slot {
			return "it tells of run " + told.Slot, nil
		}
		return "", nil
	})
	return told
}

// allReady waits until so many copies of a run are ready, and answers them by claim.
func allReady(s *stage.Stage, schedule, slot string, n int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%d copies of run %s ready", n, slot), func(context.Context) (string, error) {
		ready := 0
		for _, o := range copied(s, schedule, slot) {
			if isReady(o) {
				ready++
			}
		}
		if ready != n {
			return fmt.Sprintf("%d are", ready), nil
		}
		return "", nil
	})
}

// unlabelled waits until no claim carries the label of a group.
func unlabelled(s *stage.Stage) {
	s.T.Helper()
	s.Eventually("no claim carries the label of a group", func(ctx context.Context) (string, error) {
		var claims corev1.PersistentVolumeClaimList
		if err := s.Client.List(ctx, &claims, client.InNamespace(s.Namespace)); err != nil {
			return "", err
		}
		for _, c := range claims.Items {
			for key := range c.Labels {
				if strings.HasPrefix(key, "holdfast.dev/group-") {
					return c.Name + " has " + key, nil
				}
			}
		}
		return "", nil
	})
}

// TestGroups: a StatefulSet of two replicas with two volumes each is copied when it
// is due, each replica at one instant; the next run's groups push the first ones
// out, in EC2 too.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class, groups := s.Class("gp3", nil), s.GroupSnapshotClass("groups", nil)
	apply(s, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: orders}
spec:
  serviceName: orders
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: app
          image: docker.io/library/busybox:1.37
          command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
          volumeMounts: [{name: data, mountPath: /data}, {name: log, mountPath: /log}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s, resources: {requests: {storage: 1Gi}}}
    - metadata: {name: log}
      spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s, resources: {requests: {storage: 1Gi}}}
`, class))
	s.Run("-n", s.Namespace, "rollout", "status", "statefulset/orders", "--timeout=3m")
	slot := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	if time.Until(slot) < 10*time.Second {
		slot = slot.Add(time.Minute)
	}
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: whole}
spec:
  schedule: "%d * * * *"
  consistency: Group
  groupSnapshotClassName: %s
  target: {statefulSetName: orders}
  template: {labels: {team: orders}}
  retention: {keepLast: 1}
`, slot.Minute(), groups))
	run := slot.Format("20060102T150405Z")
	allReady(s, "whole", run, 4)
	first := groupsOf(s, "whole", run)
	if len(first) != 2 {
		t.Fatalf("%d groups for 2 replicas", len(first))
	}
	for name, g := range first {
		taken := s.SnapshotsOfGroup("groupsnapshot-" + string(g.UID))
		if len(taken) != 2 || !taken[0].StartTime.Equal(*taken[1].StartTime) {
			t.Errorf("EC2 has %d snapshots of group %s, want 2 of one instant", len(taken), name)
		}
	}
	for claim, o := range copied(s, "whole", run) {
		ordinal := claim[len(claim)-1:]
		for other, p := range copied(s, "whole", run) {
			if same := ordinal == other[len(other)-1:]; same != (o.Annotations[ofGroup] == p.Annotations[ofGroup]) {
				t.Errorf("%s and %s are of groups %s and %s", claim, other, o.Annotations[ofGroup], p.Annotations[ofGroup])
			}
		}
		if o.Labels["team"] != "orders" {
			t.Errorf("the copy of %s lacks the label of the template: %v", claim, o.Labels)
		}
	}
	if told := lastCut(s, "whole", run); told.GroupCount != 2 || told.SeriesCount != 0 || told.SpreadSeconds != 0 {
		t.Errorf("the status tells %+v, want 2 groups of one instant each", told)
	}
	unlabelled(s)
	s.Step("run %s: two groups, four copies, of one instant each", run)

	s.Run("-n", s.Namespace, "annotate", "snapshotschedule", "whole", "holdfast.dev/run-now=again")
	s.Eventually("the groups of the first run are gone, those of the next are there", func(context.Context) (string, error) {
		if all, old := groupsOf(s, "whole", ""), groupsOf(s, "whole", run); len(all) != 2 || len(old) != 0 {
			return fmt.Sprintf("%d groups, %d of them of the first run", len(all), len(old)), nil
		}
		return "", nil
	})
	for _, g := range first {
		s.GroupGone("groupsnapshot-" + string(g.UID))
	}
	for _, g := range groupsOf(s, "whole", "") {
		if taken := s.SnapshotsOfGroup("groupsnapshot-" + string(g.UID)); len(taken) != 2 {
			t.Errorf("EC2 has %d snapshots of the newest group %s, want 2", len(taken), g.Name)
		}
	}
	unlabelled(s)
	s.Step("the first groups have aged out")
	s.Run("-n", s.Namespace, "patch", "snapshotschedule", "whole", "--type=merge", "-p", `{"spec":{"onScheduleDelete":"Delete"}}`)
	s.Run("-n", s.Namespace, "wait", "snapshotschedule/whole", "--for=jsonpath={.metadata.finalizers[0]}=holdfast.dev/snapshots", "--timeout=1m")
	s.Run("-n", s.Namespace, "delete", "snapshotschedule", "whole", "--timeout=2m")
	if left := groupsOf(s, "whole", ""); len(left) != 0 {
		t.Errorf("the schedule is deleted with its copies, and %d groups are left", len(left))
	}
}

// TestGroupsThatCannotBe: no class of groups is named, and none is the default.
// Group copies nothing and says so; BestEffortGroup copies one by one, and says how
// far apart.
func TestGroupsThatCannotBe(t *testing.T) {
	s := stage.New(t)
	class, snapshots := s.Class("gp3", nil), s.SnapshotClass("copies", nil)
	s.Claim("data", class, "1Gi")
	s.Claim("log", class, "1Gi")
	s.Pod("app", "data", func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "log", MountPath: "/log"})
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "log", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"},
		}})
	})
	s.Ready("app")
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: strict, annotations: {holdfast.dev/run-now: first}}
spec: {schedule: "0 0 1 1 *", consistency: Group}
---
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: lenient, annotations: {holdfast.dev/run-now: first}}
spec: {schedule: "0 0 1 1 *", consistency: BestEffortGroup, snapshotClassName: %s}
`, snapshots))
	s.Eventually("both copies of the series are ready", func(context.Context) (string, error) {
		all := copied(s, "lenient", "")
		if len(all) != 2 || !isReady(all["data"]) || !isReady(all["log"]) {
			return fmt.Sprintf("%d are there", len(all)), nil
		}
		return "", nil
	})
	all := copied(s, "lenient", "")
	if with := all["data"].Annotations[ofGroup]; with == "" || with != all["log"].Annotations[ofGroup] {
		t.Errorf("the series are %q and %q, want one", with, all["log"].Annotations[ofGroup])
	}
	told := lastCut(s, "lenient", all["data"].Labels[ofSlot])
	apart := all["data"].Status.CreationTime.Sub(all["log"].Status.CreationTime.Time).Abs()
	if told.GroupCount != 0 || told.SeriesCount != 1 || time.Duration(told.SpreadSeconds)*time.Second != apart {
		t.Errorf("the status tells %+v, want one series, cut within %v", told, apart)
	}
	s.Event("lenient", "GroupsCut", "1 one claim after the other")
	s.Eventually("the strict one says why it copies nothing", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "get", "snapshotschedule", "strict", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}`)
		if text := string(out); err == nil && (!strings.HasPrefix(text, "False") || !strings.Contains(text, "VolumeGroupSnapshotClass")) {
			return text, nil
		}
		return "", err
	})
	if n := len(copied(s, "strict", "")) + len(groupsOf(s, "strict", "")); n != 0 {
		t.Errorf("the strict one has made %d objects", n)
	}
}
