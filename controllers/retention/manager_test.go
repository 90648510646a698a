//go:build envtest

package retention

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// inManager: the watches wake whom they should. Each step waits for nothing but
// an event: time alone would take longer than the test waits.
func inManager(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: testScheme(t), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultTransform: snapshots.Slim, ByObject: map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: {Transform: slim.Claim}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	kinds, err := snapshots.New(t.Context(), mgr, registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(mgr, kinds, clock.RealClock{}, registry); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	soon := func(why string, is func() bool) {
		t.Helper()
		if err := testenv.Eventually(ctx, 40*time.Second, why, func(context.Context) (string, error) {
			if is() {
				return "", nil
			}
			return "there are " + h.there(), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) func() bool {
		return func() bool { return !slices.Contains(strings.Fields(h.there()), name) }
	}
	claim := h.claim("data", "", corev1.ClaimBound)
	restored := h.claim("restored", "used", corev1.ClaimPending)
	held := h.copyOf(claim, "held", 4*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1alpha1.AnnotationHold: "audit"}
	})
	content := h.content(held, snapshotv1.VolumeSnapshotContentRetain)
	h.copyOf(claim, "used", 3*time.Hour, true)
	h.copyOf(claim, "old", 2*time.Hour, true)
	h.copyOf(claim, "new", time.Hour, true)
	soon("a newer copy lets the older go", gone("old"))
	h.want("these are kept", "held new used")
	h.phase(restored, corev1.ClaimBound)
	soon("the claim has its volume", gone("used"))
	h.change(held, func() { held.Annotations = nil })
	soon("it is held no more", gone("held"))
	h.snapshotController()
	soon("the snapshot has gone, and its content is deleted", func() bool {
		err := h.c.Get(ctx, client.ObjectKeyFromObject(content), content)
		return apierrors.IsNotFound(err) || err == nil && content.DeletionTimestamp != nil
	})
	if went := h.snapshotController(); !slices.Equal(went, []string{content.Name}) {
		t.Errorf("cloud snapshots of %v went, want that of %s", went, content.Name)
	}
	soon("the status says so", func() bool {
		for _, c := range h.get("hourly").Status.Conditions {
			if c.Type == v1alpha1.ConditionCopiesOverdue && c.Status == metav1.ConditionFalse {
				return true
			}
		}
		return false
	})
}
