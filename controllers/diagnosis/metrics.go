package diagnosis

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/tally"
)

// instruments are the metrics of what is stuck or forgotten. Only the leader has
// them.
type instruments struct {
	pending, terminating, lost, attachments, released, releasedBytes, idle, idleBytes *tally.Gauge
}

func newInstruments() *instruments {
	return &instruments{
		pending: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_pending",
			Help: "Claims that have been Pending for over 15 minutes, by the likely reason.",
		}, []string{"namespace", "reason"})),
		terminating: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_terminating",
			Help: "Claims that have been Terminating for over 15 minutes, by what holds them.",
		}, []string{"namespace", "reason"})),
		lost: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_lost",
			Help: "Claims in phase Lost: they were bound, and their PersistentVolume is not there or another's.",
		}, []string{"namespace"})),
		attachments: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumeattachments_stuck",
			Help: "VolumeAttachments of nodes that are not there.",
		}, []string{"driver"})),
		released: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumes_released",
			Help: "PersistentVolumes whose claim is gone and that nobody deletes.",
		}, []string{"driver"})),
		releasedBytes: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumes_released_bytes",
			Help: "Capacity of such volumes.",
		}, []string{"driver"})),
		idle: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_idle",
			Help: "Bound claims that no Pod has used for a week, as Kubernetes tells by the condition Unused.",
		}, []string{"namespace"})),
		idleBytes: tally.Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_idle_bytes",
			Help: "Capacity of the volumes of such claims.",
		}, []string{"namespace"})),
	}
}

func (m *instruments) gauges() []*tally.Gauge {
	return []*tally.Gauge{m.pending, m.terminating, m.lost, m.attachments, m.released, m.releasedBytes, m.idle, m.idleBytes}
}
