package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// drainTime is how long a stopping server lets requests end by themselves
// before it cuts them off: shorter than the 30 s that kubelet gives a Pod.
const drainTime = 20 * time.Second

// ServerOptions say what a Server serves and where.
type ServerOptions struct {
	// Endpoint is the CSI socket, e.g. "unix:///csi/csi.sock".
	Endpoint string
	// HealthAddress is where HTTP health is served, e.g. ":9808"; empty: nowhere.
	HealthAddress string
	// MetricsAddress is where Prometheus finds /metrics, e.g. ":9810"; empty: nowhere.
	MetricsAddress string
	// Metrics are served besides those of the requests and of the process.
	Metrics []prometheus.Collector
	// Log receives one line per failed request, and every request at V(1).
	Log logr.Logger
	// Identity is served always.
	Identity csi.IdentityServer
	// Controller, GroupController and Node are served where they are not nil.
	Controller      csi.ControllerServer
	GroupController csi.GroupControllerServer
	Node            csi.NodeServer
	// Healthy is asked by /healthz besides the Probe over the socket; nil: nothing more to ask.
	Healthy func(ctx context.Context) error
}

// Server serves CSI on a unix socket and health on HTTP.
type Server struct {
	opts     ServerOptions
	grpc     *grpc.Server
	listener net.Listener
	health   net.Listener
	metrics  net.Listener
	registry *prometheus.Registry
	socket   string
}

// NewServer takes the socket and the addresses, so that an error about
// them comes before anything is served. A socket that a dead process left
// behind is removed; one that is answered is an error.
func NewServer(o ServerOptions) (*Server, error) {
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return nil, err
	}
	requests := newRequestMetrics()
	registry, err := newRegistry(append([]prometheus.Collector{requests}, o.Metrics...))
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, registry: registry, socket: path}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(
		requests.intercept, logRequests(o.Log), recoverPanics, newLocks().intercept,
	))
	csi.RegisterIdentityServer(s.grpc, o.Identity)
	if o.Controller != nil {
		csi.RegisterControllerServer(s.grpc, o.Controller)
	}
	if o.GroupController != nil {
		csi.RegisterGroupControllerServer(s.grpc, o.GroupController)
	}
	if o.Node != nil {
		csi.RegisterNodeServer(s.grpc, o.Node)
	}
	return s, nil
}

// listen takes the socket and the addresses, all or none.
func (s *Server) listen() (err error) {
	if s.listener, err = listenUnix(s.socket); err != nil {
		return err
	}
	if s.opts.HealthAddress != "" {
		if s.health, err = net.Listen("tcp", s.opts.HealthAddress); err != nil {
			return errors.Join(fmt.Errorf("listen for health checks on %s: %w", s.opts.HealthAddress, err), s.listener.Close())
		}
	}
	if s.opts.MetricsAddress == "" {
		return nil
	}
	if s.metrics, err = net.Listen("tcp", s.opts.MetricsAddress); err != nil {
		err = errors.Join(fmt.Errorf("listen for metrics on %s: %w", s.opts.MetricsAddress, err), s.listener.Close())
		if s.health != nil {
			err = errors.Join(err, s.health.Close())
		}
	}
	return err
}

// serveGRPC serves until the server is stopped, which is no error, also where
// that comes before it has begun.
func serveGRPC(server *grpc.Server, listener net.Listener) error {
	err := server.Serve(listener)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Run serves until ctx ends or serving fails. It then lets requests end, for
// drainTime at most, and removes the socket.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	running := 1
	go func() { failed <- serveGRPC(s.grpc, s.listener) }()
	if s.health != nil {
		running++
		go func() { failed <- serveHealth(ctx, s.health, s.socket, s.opts.Healthy) }()
	}
	if s.metrics != nil {
		running++
		go func() { failed <- serveMetrics(ctx, s.metrics, s.registry) }()
	}
	s.opts.Log.Info("serving", "endpoint", s.opts.Endpoint, "health", addressOf(s.health), "metrics", addressOf(s.metrics))

	var first error
	select {
	case <-ctx.Done():
	case first = <-failed:
		running--
	}
	cancel()
	s.stop()
	for ; running > 0; running-- {
		first = errors.Join(first, <-failed)
	}
	s.opts.Log.Info("stopped", "endpoint", s.opts.Endpoint)
	return first
}

// addressOf is an address as taken, which tells the port where :0 was asked
// for; empty where nothing listens.
func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// stop ends the gRPC server, softly first.
func (s *Server) stop() {
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(drained)
	}()
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		s.grpc.Stop() // ends the contexts of the requests, and with them their waits
		<-drained
	}
}

// socketPath is the file of an endpoint: "unix:///csi/csi.sock", "unix:/csi/csi.sock" or a bare absolute path.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	path = strings.TrimPrefix(path, "unix:")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: want unix:// and an absolute path, such as unix:///csi/csi.sock", endpoint)
	}
	return path, nil
}

// listenUnix takes the socket at path.
func listenUnix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("endpoint %s is a %s, not a socket: remove it or choose another path", path, info.Mode().Type())
	default:
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("socket %s is served by another process: two drivers cannot share it", path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove stale socket %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return l, nil
}
