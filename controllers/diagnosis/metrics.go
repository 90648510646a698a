package diagnosis

import "github.com/prometheus/client_golang/prometheus"

// instruments are the metrics of what is stuck or forgotten. Only the leader has
// them.
type instruments struct {
	pending, terminating, attachments, released, releasedBytes, idle, idleBytes *prometheus.GaugeVec
}

func newInstruments() *instruments {
	each := []string{"namespace"}
	return &instruments{
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_pending",
			Help: "Claims that have been Pending for over 15 minutes, by the likely reason.",
		}, append(each, "reason")),
		terminating: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_terminating",
			Help: "Claims that have been Terminating for over 15 minutes, by what holds them.",
		}, append(each, "reason")),
		attachments: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumeattachments_stuck",
			Help: "VolumeAttachments of nodes that are not there.",
		}, []string{"driver"}),
		released: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumes_released",
			Help: "PersistentVolumes whose claim is gone and that nobody deletes.",
		}, []string{"driver"}),
		releasedBytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_volumes_released_bytes",
			Help: "Capacity of such volumes.",
		}, []string{"driver"}),
		idle: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_idle",
			Help: "Bound claims that no Pod has used for a week, as Kubernetes tells by the condition Unused.",
		}, each),
		idleBytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_idle_bytes",
			Help: "Capacity of the volumes of such claims.",
		}, each),
	}
}

func (m *instruments) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.pending, m.terminating, m.attachments, m.released, m.releasedBytes, m.idle, m.idleBytes}
}
