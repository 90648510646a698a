//go:build envtest

package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
)

// runningPod is a Pod that mounts claims, and that nobody runs.
func runningPod(t *testing.T, ns, name string, claims ...string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	for _, c := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	create(t, pod)
	pod.Status.Phase = corev1.PodRunning
	if err := server.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func hooked(spec *v1alpha1.SnapshotScheduleSpec) {
	spec.Hooks = &v1alpha1.SnapshotHooks{
		Before:           []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: []string{"freeze"}}}},
		After:            []v1alpha1.HookCommand{{Command: []string{"thaw"}}},
		MaxFreezeSeconds: 20,
	}
}

// testHooks: the copies of a Pod are cut between its hooks, those of another Pod
// whose hook fails are not made and told, and what no Pod mounts is just copied.
func testHooks(t *testing.T) {
	ns := namespace(t, 4)
	runningPod(t, ns, "good", "data-0", "data-1")
	runningPod(t, ns, "bad", "data-2")
	s := byHand(t, ns, "once", hooked)
	var mu sync.Mutex
	var did []string
	broken := true
	m := start(t, options{run: func(c hooks.Command) error {
		mu.Lock()
		defer mu.Unlock()
		did = append(did, fmt.Sprintf("%s %s, %d copies", c.Hook, c.Pod, len(taken(t, s))))
		if c.Pod == "bad" && c.Hook == "before[0]" && broken {
			return fmt.Errorf("%w with exit code 3", hooks.ErrRan)
		}
		return nil
	}})
	eventually(t, "the runner has looked for records", 20*time.Second, func() error {
		if r := m.r.hooks.Freeze(t.Context(), hooks.Owner{Namespace: "default"}, hooks.Freeze{Copies: []string{ns}, MaxFreeze: time.Second, Before: []hooks.Before{{Cannot: "a probe"}}}, nil); !strings.Contains(r.Failed, "a probe") {
			return errors.New(r.Failed)
		}
		return nil
	})
	cutter := make(chan struct{})
	go func() { // the driver
		defer close(cutter)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
			if all := taken(t, s); len(all) == 3 {
				for _, c := range all {
					if c.Status == nil {
						now, content := metav1.Now(), "content-"+c.Name
						c.Status = &snapshotv1.VolumeSnapshotStatus{CreationTime: &now, BoundVolumeSnapshotContentName: &content}
						if err := server.client.Status().Update(t.Context(), &c); err != nil {
							t.Error(err)
						}
					}
				}
				return
			}
		}
	}()
	slot := s.CreationTimestamp.Add(time.Second)
	st := m.must(s, slot)
	<-cutter
	marks := map[string]string{}
	for claim, c := range taken(t, s) {
		marks[claim] = c.Annotations[v1alpha1.AnnotationQuiesced]
	}
	if want := map[string]string{"data-0": "Yes", "data-1": "Yes", "data-3": ""}; fmt.Sprint(marks) != fmt.Sprint(want) {
		t.Errorf("copies are marked %v, want %v", marks, want)
	}
	mu.Lock()
	got := slices.DeleteFunc(slices.Clone(did), func(d string) bool { return strings.Contains(d, "bad") })
	if len(got) != 2 || !strings.HasPrefix(got[0], "before[0] good") || got[1] != "after[0] good, 3 copies" {
		t.Errorf("the good Pod saw %q", got)
	}
	if !slices.ContainsFunc(did, func(d string) bool { return strings.HasPrefix(d, "after[0] bad") }) {
		t.Errorf("the bad Pod is not let go: %q", did)
	}
	broken = false
	mu.Unlock()
	if len(st.Claims) != 1 || st.Claims[0].Name != "data-2" || st.Claims[0].Reason != v1alpha1.ClaimHookFailed || !strings.Contains(st.Claims[0].Message, "hook before[0] in container main of Pod bad") || !strings.Contains(st.Claims[0].Message, "exit code 3") {
		t.Errorf("the status tells %+v", st.Claims)
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionDegraded); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("Degraded is %+v", c)
	}
	if m.must(s, slot.Add(time.Second)); len(taken(t, s)) != 3 {
		t.Error("it is tried again at once")
	}
	// Nobody cuts this one.
	if err := server.client.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hooks":{"maxFreezeSeconds":1}}}`))); err != nil {
		t.Fatal(err)
	}
	m.must(s, slot.Add(lastRetry))
	late := taken(t, s)["data-2"]
	if late.Annotations[v1alpha1.AnnotationQuiesced] != v1alpha1.NotQuiesced {
		t.Errorf("a copy that is not cut in time is marked %v", late.Annotations)
	}
	st = m.must(s, slot.Add(lastRetry+time.Second))
	if len(st.Claims) != 1 || st.Claims[0].Reason != v1alpha1.ClaimNotQuiesced {
		t.Errorf("the status tells %+v", st.Claims)
	}
	const failures = "holdfast_hook_failures_total"
	if m.series(failures, ns) == 0 {
		t.Error("the hook that failed is not counted")
	}
	if err := server.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := m.look(s, slot.Add(lastRetry+2*time.Second)); err != nil || m.series(failures, ns) != 0 {
		t.Errorf("%d series of a schedule that is gone, %v", m.series(failures, ns), err)
	}
}

// testHangingHooks: hooks of other people that hang do not stop a schedule
// without hooks.
func testHangingHooks(t *testing.T) {
	for range workers {
		ns := namespace(t, 1)
		runningPod(t, ns, "app", "data-0")
		byHand(t, ns, "once", hooked)
	}
	began, release := make(chan struct{}, 2*workers), make(chan struct{})
	start(t, options{running: true, run: func(c hooks.Command) error {
		if c.Hook == "before[0]" {
			began <- struct{}{}
			<-release
		}
		return nil
	}})
	t.Cleanup(func() { close(release) }) // before the manager is stopped
	for range quiescing {
		select {
		case <-began:
		case <-time.After(noticed):
			t.Fatalf("fewer than %d schedules are at their hooks", quiescing)
		}
	}
	plain := byHand(t, namespace(t, 1), "once")
	eventually(t, "a schedule without hooks is run", noticed, func() error {
		if n := len(taken(t, plain)); n != 1 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
}

// testHooksNotEnabled: nothing is copied as it comes where hooks are wanted.
func testHooksNotEnabled(t *testing.T) {
	ns := namespace(t, 1)
	s := byHand(t, ns, "once", hooked)
	st := start(t, options{}).must(s, s.CreationTimestamp.Add(time.Second))
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonHooksNotEnabled || len(taken(t, s)) != 0 {
		t.Errorf("%d copies, Ready is %+v", len(taken(t, s)), c)
	}
}

// deaf does not list Pods while it is told so.
type deaf struct {
	client.Reader
	pods bool
}

func (d *deaf) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*corev1.PodList); is && d.pods {
		return errors.New("the API server does not answer")
	}
	return d.Reader.List(ctx, list, opts...)
}

// testPodsNotListed: copies that were planned and that nobody asked for, since the
// Pods could not be listed, are no copies: the run goes on.
func testPodsNotListed(t *testing.T) {
	ns := namespace(t, 2)
	s := byHand(t, ns, "once", hooked)
	m := start(t, options{run: func(hooks.Command) error { return nil }})
	live := &deaf{Reader: m.r.live, pods: true}
	m.r.live = live
	at := s.CreationTimestamp.Add(time.Second)
	for i := range 2 {
		if _, err := m.look(s, at.Add(time.Duration(i)*time.Second)); err == nil {
			t.Errorf("look %d does not say that the Pods cannot be listed", i)
		}
		if st := status(t, s); st.LastRunToken != "" || len(taken(t, s)) != 0 {
			t.Fatalf("%d copies, and the run is over: %q", len(taken(t, s)), st.LastRunToken)
		}
	}
	live.pods = false
	if st := m.must(s, at.Add(3*time.Second)); st.LastRunToken != "once" || len(taken(t, s)) != 2 {
		t.Errorf("%d copies, last run %q; want both and it over", len(taken(t, s)), st.LastRunToken)
	}
}

// testNoPlace: a run that waits for a place among schedules with hooks is no
// missed one, also where nothing is made up for.
func testNoPlace(t *testing.T) {
	ns := namespace(t, 1)
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "full"}, Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "0 * * * *", CatchUp: v1alpha1.CatchUpNone}}
	hooked(&s.Spec)
	create(t, s)
	m := start(t, options{run: func(hooks.Command) error { return nil }})
	for range quiescing {
		m.r.places <- struct{}{}
	}
	slot := s.CreationTimestamp.Truncate(time.Hour).Add(time.Hour)
	m.must(s, slot.Add(-time.Second))
	result, err := m.look(s, slot)
	if err != nil || len(taken(t, s)) != 0 || result.RequeueAfter > placeWait {
		t.Errorf("without a place: %d copies, looks again after %v, %v", len(taken(t, s)), result.RequeueAfter, err)
	}
	for range quiescing {
		<-m.r.places
	}
	st := m.must(s, slot.Add(lateAfter+time.Second))
	if len(taken(t, s)) != 1 || st.MissedSlots != 0 || st.LastScheduleTime == nil {
		t.Errorf("with a place: %d copies, %d missed, last run %v", len(taken(t, s)), st.MissedSlots, st.LastScheduleTime)
	}
}
