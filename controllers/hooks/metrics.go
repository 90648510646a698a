package hooks

import "github.com/prometheus/client_golang/prometheus"

// Values of the label when.
const (
	whenBefore = "before"
	whenAfter  = "after"
)

// instruments are the metrics of hooks. Only the leader has them.
type instruments struct {
	failures *prometheus.CounterVec
	toUndo   *prometheus.GaugeVec
}

func newInstruments() *instruments {
	return &instruments{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_hook_failures_total",
			Help: "Hooks of SnapshotSchedules that failed, each counted where it is told: of before once a try, of after when it is not reached at first or is given up.",
		}, []string{"namespace", "schedule", "when"}),
		toUndo: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_hooks_to_undo",
			Help: "Freezes of Pods whose hooks of after have not all run yet, though their time has come: the Pods may still be frozen.",
		}, []string{"namespace", "schedule"}),
	}
}

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.failures, m.toUndo}
}
