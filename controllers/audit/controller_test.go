package audit

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// scans counts the scans of a cluster without policies.
type scans struct {
	client.Reader
	n atomic.Int32
}

func (s *scans) List(context.Context, client.ObjectList, ...client.ListOption) error {
	s.n.Add(1)
	return nil
}

// TestScansSoonAfterAChange: a burst of changes is scanned once and soon, and
// without changes a scan comes each minute.
func TestScansSoonAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &scans{}
		a := New(nil, &world.World{Cache: seen}, clock.RealClock{}, prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Start(ctx) }()
		after := func(d time.Duration, want int32, why string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if n := seen.n.Load(); n != want {
				t.Errorf("%s: %d scans, want %d", why, n, want)
			}
		}
		after(time.Second, 1, "at the start")
		for range 100 {
			a.wake()
			<-time.After(10 * time.Millisecond)
		}
		after(0, 1, "while changes come")
		after(soon, 2, "soon after the first of them")
		after(soon, 3, "and once more for those that came after it had been heard")
		after(Every-soon, 3, "then nothing")
		after(2*soon, 4, "until a minute is over")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestDue is the table of due.
func TestDue(t *testing.T) {
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	status := func(at time.Duration, generation int64, violations int32) v1alpha1.StoragePolicyStatus {
		return v1alpha1.StoragePolicyStatus{LastScanTime: &metav1.Time{Time: start.Add(at)}, ObservedGeneration: generation, ViolationCount: violations}
	}
	for name, tc := range map[string]struct {
		old, now v1alpha1.StoragePolicyStatus
		want     bool
	}{
		"first":                        {v1alpha1.StoragePolicyStatus{}, status(0, 1, 0), true},
		"spec changed a moment later":  {status(0, 1, 0), status(time.Second, 2, 0), true},
		"other count a moment later":   {status(0, 1, 0), status(Every-time.Second, 1, 7), false},
		"other count a minute later":   {status(0, 1, 0), status(Every, 1, 7), true},
		"the same a minute later":      {status(0, 1, 7), status(Every, 1, 7), false},
		"the same ten minutes later":   {status(0, 1, 7), status(10*Every, 1, 7), true},
		"the same nine minutes later":  {status(0, 1, 7), status(9*Every, 1, 7), false},
		"spec changed, found the same": {status(0, 1, 7), status(5*time.Second, 2, 7), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := due(tc.old, tc.now); got != tc.want {
				t.Errorf("due is %v, want %v", got, tc.want)
			}
		})
	}
}
