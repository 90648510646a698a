package expansion

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of expansions.
const (
	resultCompleted  = "completed"
	resultInfeasible = "infeasible"
	resultRefused    = "refused"
)

// instruments are the metrics of growth. Only the leader has them.
type instruments struct {
	results           *prometheus.CounterVec
	inFlight          prometheus.Gauge
	budgetLeft, atMax *prometheus.GaugeVec
}

func newInstruments() *instruments {
	m := &instruments{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_expansions_total",
			Help: "Growths of claims by policies, by result: completed, infeasible (the driver cannot), refused (by a guardrail or quota).",
		}, []string{"result"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_expansion_in_flight_since_timestamp_seconds",
			Help: "Since when the oldest resize that is under way is so, of the claims under an expansion; 0: none is.",
		}),
		budgetLeft: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_expansion_budget_left",
			Help: "Modifications that the budget of the policy leaves to the claim that has the fewest, its reserve included.",
		}, []string{"policy"}),
		atMax: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_claims_at_max",
			Help: "Claims of the policy that have the size that they may grow to.",
		}, []string{"policy"}),
	}
	for _, result := range []string{resultCompleted, resultInfeasible, resultRefused} {
		m.results.WithLabelValues(result) // 0 is told too
	}
	return m
}

func (m *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{m.results, m.inFlight, m.budgetLeft, m.atMax}
}

// figures are what one round comes to.
type figures struct {
	inFlight   time.Time
	budgetLeft map[string]int
	atMax      map[string]int
}

func newFigures() *figures {
	return &figures{budgetLeft: map[string]int{}, atMax: map[string]int{}}
}

// add counts one claim in.
func (f *figures) add(now time.Time, c *guarded, d Decision) {
	if !c.claim.Ready {
		return
	}
	if c.claim.InFlight || d.TargetBytes > 0 {
		since := now
		if m := d.Record.newest(); m != nil && m.Done == nil {
			since = m.At
		}
		if f.inFlight.IsZero() || since.Before(f.inFlight) {
			f.inFlight = since
		}
	}
	policy := c.rules.Policy
	if left, known := f.budgetLeft[policy]; d.BudgetLeft >= 0 && (!known || d.BudgetLeft < left) {
		f.budgetLeft[policy] = d.BudgetLeft
	}
	f.atMax[policy] += 0
	if d.AtMax {
		f.atMax[policy]++
	}
}

// set shows what a round came to; policies that are gone have no series.
func (m *instruments) set(f *figures) {
	m.inFlight.Set(0)
	if !f.inFlight.IsZero() {
		m.inFlight.Set(float64(f.inFlight.Unix()))
	}
	m.budgetLeft.Reset()
	for policy, n := range f.budgetLeft {
		m.budgetLeft.WithLabelValues(policy).Set(float64(n))
	}
	m.atMax.Reset()
	for policy, n := range f.atMax {
		m.atMax.WithLabelValues(policy).Set(float64(n))
	}
}
