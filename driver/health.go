package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// probeTime bounds one health check; kubelet's own time-out is usually longer.
const probeTime = 8 * time.Second

// serveHealth answers /healthz and /readyz on l until ctx ends.
//
//	/healthz  200 when Probe is answered over the CSI socket and healthy agrees:
//	          a process that hangs or lost its socket is restarted by kubelet
//	/readyz   200 when Probe says ready too
func serveHealth(ctx context.Context, l net.Listener, socket string, healthy func(context.Context) error) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect the health check to %s: %w", socket, err)
	}
	defer conn.Close()
	identity := csi.NewIdentityClient(conn)
	check := func(w http.ResponseWriter, r *http.Request, wantReady bool) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTime)
		defer cancel()
		if err := checkHealth(ctx, identity, healthy, wantReady); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { check(w, r, false) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { check(w, r, true) })
	if err := serveHTTP(ctx, l, mux); err != nil {
		return fmt.Errorf("serve health checks on %s: %w", l.Addr(), err)
	}
	return nil
}

// serveHTTP serves on l until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: probeTime}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checkHealth asks Probe over the socket, and healthy where there is one.
func checkHealth(ctx context.Context, identity csi.IdentityClient, healthy func(context.Context) error, wantReady bool) error {
	answer, err := identity.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return fmt.Errorf("probe over the CSI socket: %w", err)
	}
	if wantReady && answer.GetReady() != nil && !answer.GetReady().GetValue() {
		return errors.New("not ready yet: the log says what is waited for")
	}
	if healthy != nil {
		return healthy(ctx)
	}
	return nil
}
