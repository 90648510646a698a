package tally

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestCount: what is counted is shown when it is whole, and what is gone goes.
func TestCount(t *testing.T) {
	g := Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"namespace", "reason"}))
	c := g.Count()
	c.Add(1, "shop", "a")
	c.Add(2, "shop", "a")
	c.Add(0, "bank", "b")
	if n := testutil.CollectAndCount(g); n != 0 {
		t.Errorf("%d series are shown before the counting is whole", n)
	}
	c.Show()
	if n := testutil.CollectAndCount(g); n != 2 || testutil.ToFloat64(g.WithLabelValues("shop", "a")) != 3 || testutil.ToFloat64(g.WithLabelValues("bank", "b")) != 0 {
		t.Errorf("%d series, want shop with 3 and bank with 0", n)
	}
	g.Count().Add(5, "shop", "a") // nobody shows it
	if got := testutil.ToFloat64(g.WithLabelValues("shop", "a")); got != 3 {
		t.Errorf("a counting that was given up shows: %v", got)
	}
	c = g.Count()
	c.Add(4, "shop", "a")
	c.Show()
	if n := testutil.CollectAndCount(g); n != 1 || testutil.ToFloat64(g.WithLabelValues("shop", "a")) != 4 {
		t.Errorf("%d series, want shop alone, with 4", n)
	}
}

// TestScrapedMeanwhile: a series that stays is in every scrape, whole.
func TestScrapedMeanwhile(t *testing.T) {
	g := Of(prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"namespace"}))
	registry := prometheus.NewRegistry()
	registry.MustRegister(g)
	count := func(others int) {
		c := g.Count()
		for range 3 {
			c.Add(1, "stays")
		}
		for i := range others {
			c.Add(1, string(rune('a'+i)))
		}
		c.Show()
	}
	count(0)
	done := make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				count(i % 20)
			}
		}
	})
	defer counting.Wait()
	defer close(done)
	for range 2000 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var value float64
		for _, m := range families[0].GetMetric() {
			if m.GetLabel()[0].GetValue() == "stays" {
				value = m.GetGauge().GetValue()
			}
		}
		if value != 3 {
			t.Fatalf("a scrape sees %v of the series that stays, want 3", value)
		}
	}
}
