package orphan

import "github.com/prometheus/client_golang/prometheus"

// instruments are the metrics of orphans. Only the leader has them.
type instruments struct {
	count, bytes, blocked *prometheus.GaugeVec
	snapshots, deleted    prometheus.Counter
}

func newInstruments() *instruments {
	each := []string{"namespace"}
	return &instruments{
		count: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims",
			Help: "Claims that a StatefulSet left behind and a policy says something of.",
		}, each),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims_bytes",
			Help: "Capacity of the volumes of such claims.",
		}, each),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_orphaned_claims_blocked",
			Help: "Orphaned claims that are due to be deleted and cannot be: no snapshot, or a refusal.",
		}, each),
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

// counts are the orphans of a namespace.
type counts struct{ claims, bytes, blocked float64 }

// set replaces the gauges by what a whole sweep has counted. Nothing is counted
// in them one by one: a scrape in between would see too few, and an alert begin
// its wait anew.
func (m *instruments) set(all map[string]*counts) {
	for _, g := range []*prometheus.GaugeVec{m.count, m.bytes, m.blocked} {
		g.Reset()
	}
	for namespace, n := range all {
		m.count.WithLabelValues(namespace).Set(n.claims)
		m.bytes.WithLabelValues(namespace).Set(n.bytes)
		m.blocked.WithLabelValues(namespace).Set(n.blocked) // 0 is told too
	}
}
