//go:build envtest

package bench

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
)

// TestStop: a connection to etcd that was opened and not used, as happens where
// several objects are stored at once, does not keep etcd from stopping.
func TestStop(t *testing.T) {
	s, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectDone: func(string, string, error) { cancel() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Env.ControlPlane.Etcd.URL.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := etcd.Do(req)
	if err == nil {
		res.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the request was sent: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
