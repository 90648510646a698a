//go:build envtest

package stamp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const namespace = "default"

// TestStamps has claims and sets come in either order, be of two sets, and of a
// set that is made again, before a real API server.
func TestStamps(t *testing.T) {
	cfg := testenv.APIServer(t)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Logger: testr.New(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	told := events.NewFakeRecorder(100)
	if err := (&Reconciler{Client: mgr.GetClient(), Events: told}).Add(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(objects ...client.Object) {
		t.Helper()
		for _, o := range objects {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatalf("create %T %s: %v", o, o.GetName(), err)
			}
		}
	}

	first, later, byHand := claimOf("data-pg-0", "pg"), claimOf("data-pg-1", "pg"), claimOf("data-pg-2", "web")
	pg := living("pg", "data", "pg")
	create(first, byHand, pg, later)
	stamped(t, c, first, pg, "data", "0")
	stamped(t, c, later, pg, "data", "1")
	if a := read(t, c, byHand).Annotations; len(a) > 0 {
		t.Errorf("a claim with the labels of another is stamped: %v", a)
	}

	for _, set := range []*appsv1.StatefulSet{living("a-b", "data", "x"), living("b", "data-a", "x")} {
		create(set)
		if err := testenv.Eventually(t.Context(), time.Minute, "the manager sees StatefulSet "+set.Name, func(ctx context.Context) (string, error) {
			return "", mgr.GetCache().Get(ctx, client.ObjectKeyFromObject(set), &appsv1.StatefulSet{})
		}); err != nil {
			t.Fatal(err)
		}
	}
	create(claimOf("data-a-b-0", "x"))
	select {
	case e := <-told.Events:
		for _, part := range []string{"AmbiguousOwner", "a-b (template data)", "b (template data-a)"} {
			if !strings.Contains(e, part) {
				t.Errorf("told is %q, without %q", e, part)
			}
		}
	case <-time.After(time.Minute):
		t.Error("of a claim that fits two sets nothing is told")
	}
	if a := read(t, c, claimOf("data-a-b-0", "x")).Annotations; len(a) > 0 {
		t.Errorf("it is stamped: %v", a)
	}

	if err := c.Delete(t.Context(), pg, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	if was := read(t, c, first); was.Annotations[v1alpha1.AnnotationSetUID] != string(pg.UID) {
		t.Errorf("once its set has gone a claim carries %v", was.Annotations)
	}
	again := living("pg", "data", "pg")
	create(again)
	stamped(t, c, first, again, "data", "0")
	stamped(t, c, later, again, "data", "1")
}

func claimOf(name, app string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func living(name, template, app string) *appsv1.StatefulSet {
	s := set(name, template, app)
	s.Namespace = namespace
	s.Spec.VolumeClaimTemplates[0].Spec = claimOf(template, app).Spec
	s.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	return &s
}

func read(t *testing.T, c client.Client, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	now := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), now); err != nil {
		t.Fatal(err)
	}
	return now
}

// stamped waits until a claim says whose it is.
func stamped(t *testing.T, c client.Client, claim *corev1.PersistentVolumeClaim, of *appsv1.StatefulSet, template, ordinal string) {
	t.Helper()
	want := map[string]string{
		v1alpha1.AnnotationSetUID: string(of.UID), v1alpha1.AnnotationSetName: of.Name,
		v1alpha1.AnnotationSetTemplate: template, v1alpha1.AnnotationSetOrdinal: ordinal,
	}
	err := testenv.Eventually(t.Context(), time.Minute, "claim "+claim.Name+" is stamped", func(context.Context) (string, error) {
		now := read(t, c, claim)
		for k, v := range want {
			if now.Annotations[k] != v {
				return fmt.Sprintf("%s is %q, want %q", k, now.Annotations[k], v), nil
			}
		}
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
