package orphan

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/tally"
)

// instruments are the metrics of orphans. Only the leader has them.
type instruments struct {
	count, bytes, blocked *tally.Gauge
	snapshots, deleted    prometheus.Counter
}

func newInstruments() *instruments {
	return &instruments{
		count: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims",
			Help: "Claims that a StatefulSet left behind and a policy says something of.",
		}, []string{"namespace"})),
		bytes: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims_bytes",
			Help: "Capacity of the volumes of such claims.",
		}, []string{"namespace"})),
		blocked: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims_blocked",
			Help: "Orphaned claims that are due to be deleted and cannot be: no snapshot, or a refusal.",
		}, []string{"namespace"})),
		snapshots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_orphaned_claim_snapshots_total",
			Help: "Snapshots taken of orphaned claims before their deletion.",
		}),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_orphaned_claims_deleted_total",
			Help: "Orphaned claims that were deleted.",
		}),
	}
}

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.count, m.bytes, m.blocked, m.snapshots, m.deleted}
}
