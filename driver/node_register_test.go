package driver

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// startRegistrar runs a Registrar and returns it with kubelet's view of it and
// how it ends.
func startRegistrar(t *testing.T, dir string) (r *Registrar, kubelet registration.RegistrationClient, stop func(), ended <-chan error) {
	t.Helper()
	r = NewRegistrar(RegistrarOptions{
		DriverName: DefaultName, Dir: dir, CSISocket: "/var/lib/kubelet/plugins/" + DefaultName + "/csi.sock", Log: testr.New(t),
	})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+r.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return r, registration.NewRegistrationClient(conn), stop, result
}

func TestRegistration(t *testing.T) {
	r, kubelet, stop, ended := startRegistrar(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	info, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != "CSIPlugin" || info.GetName() != DefaultName || len(info.GetSupportedVersions()) == 0 ||
		info.GetEndpoint() != "/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock" {
		t.Errorf("kubelet is told %v", info)
	}
	if _, err := kubelet.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.Healthy(ctx); err != nil {
		t.Errorf("registered and unhealthy: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a stop on request is no error: %v", err)
	}
	if _, err := os.Lstat(r.Socket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket must be gone, or kubelet keeps calling it: %v", err)
	}
	if err := r.Healthy(ctx); err == nil {
		t.Error("without its socket the driver is not healthy")
	}
}

// TestRegistrationRefused: the process ends, so that it is started anew.
func TestRegistrationRefused(t *testing.T) {
	_, kubelet, _, ended := startRegistrar(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := kubelet.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: "NodeGetInfo: unavailable"}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "NodeGetInfo: unavailable") {
		t.Errorf("want an error with kubelet's reason, got %v", err)
	}
}

// TestRegistrationSocketLeft: what a killed process left behind is replaced,
// what another process serves is not.
func TestRegistrationSocketLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, DefaultName+"-reg.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, ended := startRegistrar(t, dir)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second driver must not take the first one's place, got %v", err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	_, kubelet, _, _ := startRegistrar(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a stale socket must be replaced: %v", err)
	}
}
