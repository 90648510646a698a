package driver

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
)

// scrape asks for the metrics once.
func scrape(t *testing.T, s *Server) string {
	t.Helper()
	answer, err := http.Get("http://" + addressOf(s.metrics) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", answer.Status, err, body)
	}
	return string(body)
}

func TestServerMetrics(t *testing.T) {
	further := prometheus.NewCounter(prometheus.CounterOpts{Name: "further_total", Help: "Of the caller."})
	slow := &slowController{entered: make(chan struct{}, 1), let: make(chan struct{})}
	s, conn, _ := serveTest(t, ServerOptions{MetricsAddress: "127.0.0.1:0", Metrics: []prometheus.Collector{further}, Controller: slow})
	client := csi.NewControllerClient(conn)
	ended := make(chan error, 1)
	go func() {
		_, err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"})
		ended <- err
	}()
	<-slow.entered
	// What is refused for a held lock, and what panics, is measured as it is answered.
	if _, err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"}); err == nil {
		t.Fatal("two at a time")
	}
	if _, err := client.GetCapacity(t.Context(), &csi.GetCapacityRequest{}); err == nil {
		t.Fatal("no panic")
	}
	check := func(why string, lines ...string) {
		t.Helper()
		text := scrape(t, s)
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s: no line %s", why, line)
			}
		}
	}
	check("one request is under way",
		`holdfast_csi_operations_in_flight{method_name="/csi.v1.Controller/DeleteVolume"} 1`,
		`holdfast_csi_operations_seconds_count{grpc_status_code="Aborted",method_name="/csi.v1.Controller/DeleteVolume"} 1`,
		`holdfast_csi_operations_seconds_count{grpc_status_code="Internal",method_name="/csi.v1.Controller/GetCapacity"} 1`)
	close(slow.let)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	check("all have ended",
		`holdfast_csi_operations_in_flight{method_name="/csi.v1.Controller/DeleteVolume"} 0`,
		`holdfast_csi_operations_seconds_count{grpc_status_code="OK",method_name="/csi.v1.Controller/DeleteVolume"} 1`,
		`further_total 0`,
		`# TYPE process_resident_memory_bytes gauge`, `# TYPE go_goroutines gauge`)
}

// A server that cannot have all that it needs takes nothing.
func TestServerMetricsCannotBeServed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	o := ServerOptions{
		Endpoint: "unix://" + filepath.Join(t.TempDir(), "csi.sock"), Identity: &IdentityService{},
		HealthAddress: free.Addr().String(), MetricsAddress: taken.Addr().String(),
	}
	if _, err := NewServer(o); err == nil || !strings.Contains(err.Error(), "metrics on "+o.MetricsAddress) {
		t.Errorf("an address that is taken: %v, want that it is named", err)
	}
	o.MetricsAddress = ""
	s, err := NewServer(o)
	if err != nil {
		t.Fatalf("the first try kept something: %v", err)
	}
	s.listener.Close()
	s.health.Close()
	twice := prometheus.NewCounter(prometheus.CounterOpts{Name: "twice_total", Help: "Twice."})
	o.Metrics = []prometheus.Collector{twice, twice}
	if _, err := NewServer(o); err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("one metric given twice: %v, want an error", err)
	}
}
