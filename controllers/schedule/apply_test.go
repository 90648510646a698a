package schedule

import (
	"context"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// TestACopyFromBeforeTheHooksIsNotQuiesced: a creation without a clear answer is
// tried again, with the hooks around it. What the first try has made may have been
// cut while nothing was frozen.
func TestACopyFromBeforeTheHooksIsNotQuiesced(t *testing.T) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlay(t, hourly(), "10:30:00", "data-0", "data-1")
	hooked := hourly()
	hooked.Hooks = &v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: []string{"freeze"}}}}, MaxFreezeSeconds: 60}
	plan := p.look("11:00:00")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	for _, claim := range []string{"data-0", "data-1"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	pod.Status.Phase = corev1.PodRunning
	before := plan.Create[0].DeepCopy()
	before.Annotations[v1alpha1.AnnotationQuiesced] = v1alpha1.QuiescedPending
	cut := metav1.NewTime(time.Now().Add(-time.Minute))
	before.Status = &snapshotv1.VolumeSnapshotStatus{CreationTime: &cut}
	c := cuttingClient{fake.NewClientBuilder().WithScheme(kinds).WithObjects(pod, before).Build()}
	r := &Reconciler{client: c, live: c, hooks: hooks.NewRunner(hooks.Options{
		Client: c, Live: c, Events: events.NewFakeRecorder(10), Clock: clock.RealClock{}, Namespace: "holdfast-system", Registry: prometheus.NewRegistry(),
		Run: func(context.Context, hooks.Command, time.Duration) error { return nil },
	})}
	go func() { _ = r.hooks.Start(t.Context()) }()
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "hourly"}, Spec: hooked}
	asks := r.asks(plan)
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		if err := r.askAll(t.Context(), s, asks); err != nil {
			t.Fatal(err)
		}
		if err := asks[0].outcome; err == nil || !strings.Contains(err.Error(), "still looked up") || time.Now().After(deadline) {
			break
		}
	}
	for i, want := range []string{v1alpha1.NotQuiesced, v1alpha1.Quiesced} {
		got := &snapshotv1.VolumeSnapshot{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(&plan.Create[i]), got); err != nil {
			t.Fatal(err)
		}
		if is := got.Annotations[v1alpha1.AnnotationQuiesced]; asks[i].outcome != nil || is != want || copies.At(got).IsZero() {
			t.Errorf("the copy of %s is marked %q, want %q; asking for it ended with %v", got.Annotations[v1alpha1.AnnotationClaim], is, want, asks[i].outcome)
		}
	}
}

// cuttingClient cuts what is made by it at once, as a driver does.
type cuttingClient struct{ client.Client }

func (c cuttingClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if s, is := o.(*snapshotv1.VolumeSnapshot); is {
		now := metav1.Now()
		s.Status = &snapshotv1.VolumeSnapshotStatus{CreationTime: &now}
	}
	return c.Client.Create(ctx, o, opts...)
}
