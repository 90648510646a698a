// Package tally keeps gauges whose series are counted all at once, again and again.
//
// Prometheus may scrape at any instant. A gauge that is emptied and then filled
// shows too little in between, and an alert that waits for a day begins its wait
// anew each time that a scrape falls into such a gap. Here a counting is shown when
// it is whole: a series that stays is never missing, and never wrong.
package tally

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauge is a gauge with labels, as its last whole counting has it.
type Gauge struct {
	*prometheus.GaugeVec
	shown map[string][]string // labels of its series
}

// Of is such a gauge of one that has no series yet.
func Of(gauge *prometheus.GaugeVec) *Gauge { return &Gauge{GaugeVec: gauge} }

// Count is a counting of a Gauge. One that is not shown changes nothing.
type Count struct {
	gauge  *Gauge
	labels map[string][]string
	values map[string]float64
}

// Count begins to count anew. One goroutine counts at a time.
func (g *Gauge) Count() *Count {
	return &Count{gauge: g, labels: map[string][]string{}, values: map[string]float64{}}
}

// Add adds to the series of some labels, given in their order. 0 is told too.
func (c *Count) Add(value float64, labels ...string) {
	key := strings.Join(labels, "\x00")
	c.labels[key] = labels
	c.values[key] += value
}

// Show lets the gauge have what was counted, and no other series.
func (c *Count) Show() {
	for key, labels := range c.labels {
		c.gauge.WithLabelValues(labels...).Set(c.values[key])
	}
	for key, labels := range c.gauge.shown {
		if _, stays := c.labels[key]; !stays {
			c.gauge.DeleteLabelValues(labels...)
		}
	}
	c.gauge.shown = c.labels
}
