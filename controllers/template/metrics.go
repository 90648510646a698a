package template

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// instruments are the metrics of templates. Only the leader has them.
type instruments struct {
	behind    *prometheus.GaugeVec
	recreates *prometheus.CounterVec

	mu   sync.Mutex
	sets map[types.NamespacedName]map[v1alpha1.TemplateAction]int
}

func newInstruments() *instruments {
	return &instruments{
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_statefulset_templates_behind",
			Help: "volumeClaimTemplates that ask for another size than their claims have, by what the policy says of them.",
		}, []string{"action"}),
		recreates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_statefulset_recreates_total",
			Help: "StatefulSets that were made anew (completed), or were to be and were left as they are (aborted).",
		}, []string{"result"}),
		sets: map[types.NamespacedName]map[v1alpha1.TemplateAction]int{},
	}
}

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.behind, m.recreates}
}

// differ notes how many templates of a set differ from their claims.
func (m *instruments) differ(set types.NamespacedName, templates map[v1alpha1.TemplateAction]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for action, n := range m.sets[set] {
		m.behind.WithLabelValues(string(action)).Sub(float64(n))
	}
	for action, n := range templates {
		m.behind.WithLabelValues(string(action)).Add(float64(n))
	}
	if m.sets[set] = templates; len(templates) == 0 {
		delete(m.sets, set)
	}
}
