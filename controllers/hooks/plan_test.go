package hooks

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// podOf is a running Pod with the container main that mounts claims.
func podOf(name string, claims ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}}}
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "side"}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

func copiesOf(claims ...string) (all []Cut) {
	for _, c := range claims {
		all = append(all, Cut{Name: "of-" + c, Claims: []string{c}})
	}
	return all
}

// told is a freeze as a line.
func told(f Freeze) string {
	var parts []string
	for _, b := range f.Before {
		s := fmt.Sprintf("%s@%s/%s", b.Hook, b.Pod, b.Container)
		if b.Cannot != "" {
			s = b.Hook + ": " + b.Cannot
		}
		if b.Continue {
			s += "?"
		}
		parts = append(parts, s)
	}
	parts = append(parts, "["+strings.Join(f.Copies, " ")+"]")
	for _, a := range f.After {
		parts = append(parts, fmt.Sprintf("%s@%s/%s", a.Hook, a.Pod, a.Container))
	}
	return strings.Join(parts, " ")
}

func TestPlan(t *testing.T) {
	run := v1alpha1.HookCommand{Command: []string{"x"}}
	on := func(name string) v1alpha1.HookCommand {
		return v1alpha1.HookCommand{Command: []string{"x"}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}}
	}
	inside := func(container string) v1alpha1.HookCommand {
		return v1alpha1.HookCommand{Command: []string{"x"}, Container: container}
	}
	before := func(all ...v1alpha1.HookCommand) (out []v1alpha1.BeforeHook) {
		for _, h := range all {
			out = append(out, v1alpha1.BeforeHook{HookCommand: h})
		}
		return out
	}
	after := func(all ...v1alpha1.HookCommand) []v1alpha1.HookCommand { return all }
	ended, pending, named, ephemeral := podOf("ended", "data"), podOf("pending", "data"), podOf("named", "data"), podOf("eph")
	ended.Status.Phase, pending.Status.Phase = corev1.PodSucceeded, corev1.PodPending
	named.Annotations = map[string]string{defaultContainer: "side"}
	ephemeral.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	for name, tc := range map[string]struct {
		why    string
		hooks  v1alpha1.SnapshotHooks
		pods   []corev1.Pod
		copies []string
		want   []string
	}{
		"one Pod, two claims": {"one freeze for all claims of a Pod", v1alpha1.SnapshotHooks{Before: before(run), After: after(run)}, []corev1.Pod{podOf("pg-0", "data", "wal")}, []string{"data", "wal"}, []string{"before[0]@pg-0/main [of-data of-wal] after[0]@pg-0/main"}},
		"replicas":            {"each replica by itself: one is frozen no longer than its own copies take", v1alpha1.SnapshotHooks{Before: before(run)}, []corev1.Pod{podOf("pg-1", "data-1"), podOf("pg-0", "data-0")}, []string{"data-0", "data-1"}, []string{"before[0]@pg-0/main [of-data-0]", "before[0]@pg-1/main [of-data-1]"}},
		"shared claim":        {"Pods that share a claim are frozen together, and what else they mount with it", v1alpha1.SnapshotHooks{Before: before(run)}, []corev1.Pod{podOf("a", "x", "shared"), podOf("b", "shared", "y")}, []string{"x", "y", "shared"}, []string{"before[0]@a/main before[0]@b/main [of-x of-y of-shared]"}},
		"chain":               {"also by way of others, in whatever order", v1alpha1.SnapshotHooks{Before: before(run)}, []corev1.Pod{podOf("a", "1", "4"), podOf("b", "2", "3"), podOf("c", "3", "4")}, []string{"1", "2", "3", "4", "5"}, []string{"before[0]@a/main before[0]@b/main before[0]@c/main [of-1 of-2 of-3 of-4]", "[of-5]"}},
		"nobody mounts it":    {"there is nothing to quiesce", v1alpha1.SnapshotHooks{Before: before(run), After: after(run)}, []corev1.Pod{podOf("other", "else"), ended, pending}, []string{"data"}, []string{"[of-data]"}},
		"selector":            {"is about all claims of the run", v1alpha1.SnapshotHooks{Before: before(on("op")), After: after(run)}, []corev1.Pod{podOf("op"), podOf("pg-0", "data-0")}, []string{"data-0", "data-1"}, []string{"before[0]@op/main [of-data-0 of-data-1] after[0]@op/main"}},
		"selector of nothing": {"is told, not passed over", v1alpha1.SnapshotHooks{Before: before(on("gone"), run)}, []corev1.Pod{podOf("pg-0", "data")}, []string{"data"}, []string{"before[0]: its podSelector matches no running Pod before[1]@pg-0/main [of-data]"}},
		"after in some":       {"a selector of after narrows", v1alpha1.SnapshotHooks{Before: before(run), After: after(on("b"))}, []corev1.Pod{podOf("a", "shared"), podOf("b", "shared")}, []string{"shared"}, []string{"before[0]@a/main before[0]@b/main [of-shared] after[0]@b/main"}},
		"hooks first":         {"a hook runs in all Pods before the next one", v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: run, OnError: v1alpha1.HookContinues}, {HookCommand: inside("side")}}}, []corev1.Pod{podOf("a", "shared"), podOf("b", "shared")}, []string{"shared"}, []string{"before[0]@a/main? before[0]@b/main? before[1]@a/side before[1]@b/side [of-shared]"}},
		"default container":   {"as kubectl has it", v1alpha1.SnapshotHooks{Before: before(run)}, []corev1.Pod{named}, []string{"data"}, []string{"before[0]@named/side [of-data]"}},
		"no such container":   {"is told before anything runs", v1alpha1.SnapshotHooks{Before: before(inside("pg"))}, []corev1.Pod{podOf("a", "data")}, []string{"data"}, []string{`before[0]: Pod a has no container "pg"; it has main, side [of-data]`}},
		"could not be undone": {"is not begun", v1alpha1.SnapshotHooks{Before: before(run), After: after(inside("pg"))}, []corev1.Pod{podOf("a", "data")}, []string{"data"}, []string{`after[0]: Pod a has no container "pg"; it has main, side before[0]@a/main [of-data] after[0]@a/pg`}},
		"ephemeral volume":    {"its claim is the Pod's", v1alpha1.SnapshotHooks{Before: before(run)}, []corev1.Pod{ephemeral}, []string{"eph-scratch"}, []string{"before[0]@eph/main [of-eph-scratch]"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Plan(&tc.hooks, tc.pods, copiesOf(tc.copies...)) {
				got = append(got, told(f))
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", tc.want) {
				t.Errorf("%s:\ngot  %q\nwant %q", tc.why, got, tc.want)
			}
		})
	}
}

// TestPlanOfGroups: a group is one cut of all its claims, so it holds their Pods
// together, and its name is no snapshot's.
func TestPlanOfGroups(t *testing.T) {
	pods := []corev1.Pod{podOf("pg-0", "data-0"), podOf("pg-1", "data-1"), podOf("pg-2", "data-2")}
	cuts := []Cut{{Name: GroupName("g"), Claims: []string{"data-0", "data-1"}}, {Name: "g", Claims: []string{"data-2"}}}
	got := Plan(&v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: []string{"sync"}}}}}, pods, cuts)
	if len(got) != 2 || fmt.Sprint(got[0].Copies) != "[group/g]" || len(got[0].Before) != 2 || fmt.Sprint(got[1].Copies) != "[g]" || len(got[1].Before) != 1 {
		t.Errorf("freezes are %+v", got)
	}
}
