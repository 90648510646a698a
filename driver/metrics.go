package driver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// requestMetrics measures the requests to this server as the sidecars measure
// theirs (csi_sidecar_operations_seconds), with the same buckets and labels but for the
// driver's name:
//
//	holdfast_csi_operations_seconds{method_name,grpc_status_code}   how long a request took
//	holdfast_csi_operations_in_flight{method_name}                  how many are under way
type requestMetrics struct {
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newRequestMetrics() *requestMetrics {
	return &requestMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_csi_operations_seconds",
			Help:    "Time that a CSI request took, in seconds, by method and by the code of its answer.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"method_name", "grpc_status_code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_csi_operations_in_flight",
			Help: "CSI requests that are under way, by method.",
		}, []string{"method_name"}),
	}
}

// Describe implements prometheus.Collector.
func (m *requestMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.duration.Describe(ch)
	m.inFlight.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *requestMetrics) Collect(ch chan<- prometheus.Metric) {
	m.duration.Collect(ch)
	m.inFlight.Collect(ch)
}

// intercept measures a request. gRPC calls it for methods of the services
// alone, so the values of labels are few.
func (m *requestMetrics) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	inFlight := m.inFlight.WithLabelValues(info.FullMethod)
	inFlight.Inc()
	defer inFlight.Dec()
	start := time.Now()
	answer, err := handle(ctx, req)
	m.duration.WithLabelValues(info.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
	return answer, err
}

// newRegistry holds the metrics of the process, and further ones.
func newRegistry(further []prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	all := append([]prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, further...)
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return registry, nil
}

// serveMetrics answers /metrics on l until ctx ends.
func serveMetrics(ctx context.Context, l net.Listener, registry *prometheus.Registry) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err := serveHTTP(ctx, l, mux); err != nil {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}
	return nil
}
