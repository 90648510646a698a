package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Unprotected counts by namespace the claims that no schedule covers: none of
// their namespace that is valid, not suspended and not being deleted has them in
// its target. Claims that are being deleted or opted out, and those of system
// namespaces, are not counted.
func Unprotected(claims []corev1.PersistentVolumeClaim, schedules []v1alpha1.SnapshotSchedule) map[string]int {
	targets := map[string][]Target{}
	for i := range schedules {
		s := &schedules[i]
		if s.Spec.Suspend || s.DeletionTimestamp != nil {
			continue
		}
		if ready, errs := Compile(&s.Spec); len(errs) == 0 {
			targets[s.Namespace] = append(targets[s.Namespace], ready.Target)
		}
	}
	counts := map[string]int{}
	for i := range claims {
		c := &claims[i]
		_, out := c.Annotations[v1alpha1.AnnotationNoSnapshots]
		if out || c.DeletionTimestamp != nil || slices.Contains(v1alpha1.SystemNamespaces(), c.Namespace) ||
			slices.ContainsFunc(targets[c.Namespace], func(t Target) bool { return t.Matches(c) }) {
			continue
		}
		counts[c.Namespace]++
	}
	return counts
}

// coverage counts when it is scraped, from what the informers hold, and only on
// the leader: a sum over replicas would count twice.
type coverage struct {
	client  client.Reader
	elected <-chan struct{}
}

var unprotected = prometheus.NewDesc("holdfast_claims_unprotected",
	"Claims that no SnapshotSchedule of their namespace covers, without those that opted out. Namespaces without any are not listed.", []string{"namespace"}, nil)

// Describe names the metric.
func (c *coverage) Describe(to chan<- *prometheus.Desc) { to <- unprotected }

// scrapeWithin bounds one count.
const scrapeWithin = 5 * time.Second

// Collect counts.
func (c *coverage) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	var claims corev1.PersistentVolumeClaimList
	var schedules v1alpha1.SnapshotScheduleList
	for _, list := range []client.ObjectList{&claims, &schedules} {
		if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			to <- prometheus.NewInvalidMetric(unprotected, err)
			return
		}
	}
	for namespace, n := range Unprotected(claims.Items, schedules.Items) {
		to <- prometheus.MustNewConstMetric(unprotected, prometheus.GaugeValue, float64(n), namespace)
	}
}
