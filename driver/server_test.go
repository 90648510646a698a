package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// slowController answers DeleteVolume when it is let go, and panics where it should not be asked.
type slowController struct {
	csi.UnimplementedControllerServer
	entered, let chan struct{}
}

func (s *slowController) DeleteVolume(ctx context.Context, _ *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	s.entered <- struct{}{}
	select {
	case <-s.let:
		return &csi.DeleteVolumeResponse{}, nil
	case <-ctx.Done():
		return nil, grpcError(ctx.Err())
	}
}

func (s *slowController) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	panic("no capacity")
}

// serveTest runs a server until the test ends, or until stop is called, which returns Run's error.
func serveTest(t *testing.T, o ServerOptions) (s *Server, conn *grpc.ClientConn, stop func() error) {
	t.Helper()
	if o.Endpoint == "" {
		o.Endpoint = "unix://" + filepath.Join(t.TempDir(), "csi.sock")
	}
	if o.Identity == nil {
		o.Identity = &IdentityService{Name: DefaultName, Version: "v"}
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	conn, err = grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s, conn, stop
}

func TestServerOneRequestAtATime(t *testing.T) {
	slow := &slowController{entered: make(chan struct{}, 10), let: make(chan struct{})}
	_, conn, _ := serveTest(t, ServerOptions{Controller: slow})
	client := csi.NewControllerClient(conn)
	first := make(chan error, 1)
	go func() {
		_, err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"})
		first <- err
	}()
	<-slow.entered
	_, err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"})
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "vol-1") || !strings.Contains(err.Error(), "DeleteVolume") {
		t.Errorf("%v, want ABORTED that names what is under way", err)
	}
	go client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-2"})
	<-slow.entered // another volume is not held up
	close(slow.let)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"}); err != nil {
		t.Errorf("when the first has ended: %v", err)
	}
}

func TestLockKeys(t *testing.T) {
	held := func(a, b any) bool {
		l := newLocks()
		l.take(lockKeys(a), "first")
		_, _, ok := l.take(lockKeys(b), "second")
		return !ok
	}
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: "v"}
	onePublish := func(target string) *csi.NodePublishVolumeRequest {
		mode := csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		return &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: target, VolumeCapability: &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}}
	}
	for name, tc := range map[string]struct {
		why  string
		a, b any
		want bool
	}{
		"same name":            {"one creation of a name", &csi.CreateVolumeRequest{Name: "n"}, &csi.CreateVolumeRequest{Name: "n"}, true},
		"volume and snapshot":  {"names of two kinds", &csi.CreateVolumeRequest{Name: "n"}, &csi.CreateSnapshotRequest{Name: "n"}, false},
		"attach and detach":    {"one of them at a time", publish, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}, true},
		"attach and grow":      {"growing takes minutes and must not hold up a failover", publish, &csi.ControllerExpandVolumeRequest{VolumeId: "v"}, false},
		"attach and delete":    {"no deletion under an attach", publish, &csi.DeleteVolumeRequest{VolumeId: "v"}, true},
		"grow and delete":      {"no deletion under a growth", &csi.ControllerExpandVolumeRequest{VolumeId: "v"}, &csi.DeleteVolumeRequest{VolumeId: "v"}, true},
		"snapshot and delete":  {"one of them at a time", &csi.DeleteSnapshotRequest{SnapshotId: "s"}, &csi.DeleteSnapshotRequest{SnapshotId: "s"}, true},
		"group and delete":     {"a group's name is its id", &csi.CreateVolumeGroupSnapshotRequest{Name: "n"}, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "n"}, true},
		"stage and unstage":    {"one of them at a time", &csi.NodeStageVolumeRequest{VolumeId: "v"}, &csi.NodeUnstageVolumeRequest{VolumeId: "v"}, true},
		"stage and grow":       {"one of them at a time", &csi.NodeStageVolumeRequest{VolumeId: "v"}, &csi.NodeExpandVolumeRequest{VolumeId: "v"}, true},
		"publish for two Pods": {"each has a path of its own", &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/a"}, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/b"}, false},
		"publish, one writer":  {"two Pods would not see each other", onePublish("/a"), onePublish("/b"), true},
		"publish, unpublish":   {"one of them at a time", &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/a"}, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/a"}, true},
		"listing":              {"reads hold nothing", &csi.ListSnapshotsRequest{}, &csi.ListSnapshotsRequest{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := held(tc.a, tc.b); got != tc.want {
				t.Errorf("%s: held up is %v, want %v", tc.why, got, tc.want)
			}
		})
	}
}

func TestServerOutlivesAPanic(t *testing.T) {
	_, conn, _ := serveTest(t, ServerOptions{Controller: &slowController{}})
	for range 2 {
		_, err := csi.NewControllerClient(conn).GetCapacity(t.Context(), &csi.GetCapacityRequest{})
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "no capacity") {
			t.Errorf("%v, want INTERNAL with the panic's text", err)
		}
	}
}

func TestServerLogs(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{Verbosity: 1})
	_, conn, stop := serveTest(t, ServerOptions{Log: log, Controller: csi.UnimplementedControllerServer{}})
	_, err := csi.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: "vol-1", NodeId: "i-1", Secrets: map[string]string{"password": "hunter2"},
	})
	if status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{`"msg"="request"`, `"msg"="request failed"`, `"volumeID"="vol-1"`, `"nodeID"="i-1"`, `"code"="Unimplemented"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no line holds %s:\n%s", want, all)
		}
	}
	if strings.Contains(all, "hunter2") {
		t.Errorf("a secret is in the log:\n%s", all)
	}
}

func TestServerSockets(t *testing.T) {
	dir := t.TempDir()
	new := func(path string) error {
		s, err := NewServer(ServerOptions{Endpoint: "unix://" + path, Log: logr.Discard(), Identity: &IdentityService{}})
		if err == nil {
			s.listener.Close()
		}
		return err
	}
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := new(stale); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a served socket: %v, want that it is another's", err)
	}
	l.SetUnlinkOnClose(false) // as after kill -9
	l.Close()
	if err := new(stale); err != nil {
		t.Errorf("a stale socket: %v, want it replaced", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(file); err == nil {
		t.Error("a file in the socket's place was removed")
	}
	for _, endpoint := range []string{"", "tcp://127.0.0.1:1", "unix://csi.sock", "csi.sock"} {
		if _, err := NewServer(ServerOptions{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "unix:///csi/csi.sock") {
			t.Errorf("endpoint %q: %v, want an error that shows a good one", endpoint, err)
		}
	}
}

func TestServerStops(t *testing.T) {
	slow := &slowController{entered: make(chan struct{}, 1), let: make(chan struct{})}
	s, conn, stop := serveTest(t, ServerOptions{Controller: slow})
	answered := make(chan error, 1)
	go func() {
		_, err := csi.NewControllerClient(conn).DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"})
		answered <- err
	}()
	<-slow.entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case <-stopped:
		t.Error("the server stopped with a request under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.let)
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v, want it answered", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestServerStopsBeforeItServes: the end may come before the beginning, and is no failure then.
func TestServerStopsBeforeItServes(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 200 { // which of the two comes first is the scheduler's choice
		s, err := NewServer(ServerOptions{Endpoint: "unix://" + filepath.Join(t.TempDir(), "csi.sock"), Identity: &IdentityService{Name: DefaultName}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(ended); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the socket is left: %v", err)
		}
	}
}

func TestServerHealth(t *testing.T) {
	var mu sync.Mutex
	var notReady, unhealthy error
	set := func(r, h error) {
		mu.Lock()
		defer mu.Unlock()
		notReady, unhealthy = r, h
	}
	s, _, _ := serveTest(t, ServerOptions{
		HealthAddress: "127.0.0.1:0",
		Identity: &IdentityService{Ready: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return notReady
		}},
		Healthy: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return unhealthy
		},
	})
	check := func(why, path string, want int, text string) {
		t.Helper()
		answer, err := http.Get("http://" + addressOf(s.health) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != want || !strings.Contains(string(body), text) {
			t.Errorf("%s: %s is %d %q, want %d with %q", why, path, answer.StatusCode, body, want, text)
		}
	}
	check("all is well", "/healthz", 200, "ok")
	check("all is well", "/readyz", 200, "ok")
	set(errors.New("EC2 does not answer"), nil)
	check("a restart would not help", "/healthz", 200, "ok")
	check("cannot work yet", "/readyz", 503, "not ready")
	set(nil, errors.New("kubelet does not know us"))
	check("a restart helps", "/healthz", 503, "kubelet does not know us")
	check("no such page", "/metrics", 404, "")
}

func TestIdentity(t *testing.T) {
	_, conn, _ := serveTest(t, ServerOptions{Identity: &IdentityService{Name: "ebs.csi.aws.com", Version: "v1"}})
	client := csi.NewIdentityClient(conn)
	info, err := client.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "ebs.csi.aws.com" || info.GetVendorVersion() != "v1" {
		t.Errorf("%v, %v", info, err)
	}
	caps, err := client.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range caps.GetCapabilities() {
		names = append(names, c.String())
	}
	all := strings.Join(names, " ")
	for _, want := range []string{"type:CONTROLLER_SERVICE", "GROUP_CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS", "ONLINE"} {
		if !strings.Contains(all, want) {
			t.Errorf("capabilities %s, want %s", all, want)
		}
	}
}
