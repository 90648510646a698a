package modification

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestRefusedIsNotAskedAgainAndAgain: what somebody's policy refuses is told once, and
// asked for again after ten minutes, or at once where the annotations ask for another.
func TestRefusedIsNotAskedAgainAndAgain(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data", UID: "c", Annotations: map[string]string{driver + "/iops": "6000"}}}
	claim.Spec.VolumeName, claim.Status.Phase = "v", corev1.ClaimBound
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "v"}
	asked := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, volume).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			asked++
			return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("the house forbids it"))
		},
	}).Build()
	recorder, clock := events.NewFakeRecorder(10), clocktesting.NewFakeClock(time.Unix(1e9, 0))
	m := New(Options{Client: c, World: &world.World{Cache: c, Live: c, Clock: clock}, Events: recorder, Clock: clock})
	sweep := func(times int) {
		t.Helper()
		for range times {
			if err := m.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			clock.Step(Every)
		}
	}
	sweep(20)
	if asked != 1 || len(recorder.Events) != 1 {
		t.Errorf("within ten minutes it was asked for %d times, and told %d times; want once each", asked, len(recorder.Events))
	}
	sweep(1)
	if asked != 2 {
		t.Errorf("after ten minutes it was asked for %d times, want twice", asked)
	}
	claim.Annotations[driver+"/iops"] = "7000"
	if err := c.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	sweep(1)
	if asked != 3 {
		t.Errorf("with another value it was asked for %d times, want three times", asked)
	}
}
