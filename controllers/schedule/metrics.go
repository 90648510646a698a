package schedule

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// instruments are the metrics of schedules. Only the leader has them, and a
// schedule that is gone has none.
type instruments struct {
	interval, activeSince, lastSuccess, copies, failing *prometheus.GaugeVec
	missed                                              *prometheus.CounterVec
	ready                                               *prometheus.HistogramVec
}

func newInstruments() *instruments {
	each := []string{"namespace", "schedule"}
	return &instruments{
		interval: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_schedule_expected_interval_seconds",
			Help: "How long the schedule leaves between two runs around now. A suspended schedule has none.",
		}, each),
		activeSince: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_schedule_active_since_timestamp_seconds",
			Help: "Since when the schedule runs as it stands. A suspended schedule has none.",
		}, each),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_schedule_last_success_timestamp_seconds",
			Help: "When the newest ready copy of the schedule was cut; 0: none was ready yet.",
		}, each),
		copies: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_snapshots",
			Help: "VolumeSnapshots of the schedule by state: ready, pending, failed (not ready by their deadline).",
		}, append(each, "state")),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_schedule_claims_failing",
			Help: "Claims that the schedule does not copy as it should, 100 at most where single ones fail; all of them, and 1 at least, while it cannot be acted on. A suspended schedule has none.",
		}, each),
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_schedule_missed_slots_total",
			Help: "Runs that were missed: no manager ran, or no copy could be asked for in time.",
		}, each),
		ready: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_snapshot_ready_seconds",
			Help:    "Time from asking for a copy until it was seen to be ready.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600},
		}, each),
	}
}

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.interval, m.activeSince, m.lastSuccess, m.copies, m.failing, m.missed, m.ready}
}

// set shows what the status says.
func (m *instruments) set(now time.Time, s *v1alpha1.SnapshotSchedule, status v1alpha1.SnapshotScheduleStatus, ready *Ready) {
	if s.Spec.Suspend {
		m.interval.DeleteLabelValues(s.Namespace, s.Name)
		m.activeSince.DeleteLabelValues(s.Namespace, s.Name)
	} else {
		m.interval.WithLabelValues(s.Namespace, s.Name).Set(ready.Cron.Interval(now).Seconds())
		since := s.CreationTimestamp // as in the plan that comes, where none was made yet
		if status.ActiveSince != nil {
			since = *status.ActiveSince
		}
		m.activeSince.WithLabelValues(s.Namespace, s.Name).Set(float64(since.Unix()))
	}
	m.setFailing(s, status)
	m.missed.WithLabelValues(s.Namespace, s.Name) // 0 is told too
	last := m.lastSuccess.WithLabelValues(s.Namespace, s.Name)
	last.Set(0)
	if status.LastSuccessfulTime != nil {
		last.Set(float64(status.LastSuccessfulTime.Unix()))
	}
	for state, n := range map[string]int32{"ready": status.ReadyCount, "pending": status.PendingCount, "failed": status.FailedCount} {
		m.copies.WithLabelValues(s.Namespace, s.Name, state).Set(float64(n))
	}
}

// setFailing shows the part of set that there is of a schedule that cannot be read.
func (m *instruments) setFailing(s *v1alpha1.SnapshotSchedule, status v1alpha1.SnapshotScheduleStatus) {
	if s.Spec.Suspend {
		m.failing.DeleteLabelValues(s.Namespace, s.Name)
		return
	}
	m.failing.WithLabelValues(s.Namespace, s.Name).Set(float64(failing(status)))
}

// failing counts the claims that are not copied as they should be.
func failing(status v1alpha1.SnapshotScheduleStatus) int {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonClaimsNotCopied {
		return max(int(status.ClaimCount), 1) // of one that never could be acted on nobody has counted the claims
	}
	n := 0
	for _, claim := range status.Claims {
		if mildness(claim) < mild {
			n++
		}
	}
	return n
}

// becameReady counts how long a copy took, where this change made it ready.
func (m *instruments) becameReady(now time.Time, schedule types.NamespacedName, old, s *snapshotv1.VolumeSnapshot) {
	was, is := copies.Of(old, 0, now), copies.Of(s, 0, now)
	if was.State != copies.Ready && is.State == copies.Ready {
		m.ready.WithLabelValues(schedule.Namespace, schedule.Name).Observe(now.Sub(is.Asked).Seconds())
	}
}

// forget takes the series of a schedule away.
func (m *instruments) forget(key types.NamespacedName) {
	of := prometheus.Labels{"namespace": key.Namespace, "schedule": key.Name}
	m.interval.DeletePartialMatch(of)
	m.activeSince.DeletePartialMatch(of)
	m.lastSuccess.DeletePartialMatch(of)
	m.copies.DeletePartialMatch(of)
	m.failing.DeletePartialMatch(of)
	m.missed.DeletePartialMatch(of)
	m.ready.DeletePartialMatch(of)
}
