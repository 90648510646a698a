package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
)

func TestNodeFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		set  func(f *nodeFlags)
		want string // in the error, empty for none
	}{
		"defaults":   {"the defaults are right on a Nitro instance", func(*nodeFlags) {}, ""},
		"identity":   {"an unknown identity would prove nothing", func(f *nodeFlags) { f.deviceIdentity = "serial" }, "use nvme, xen or loop-backing-file"},
		"limit":      {"a negative limit is a mistake", func(f *nodeFlags) { f.attachLimit = -1 }, "--volume-attach-limit is -1"},
		"reserved":   {"-1 is the only negative number with a meaning", func(f *nodeFlags) { f.reserved = -2 }, "--reserved-volume-attachments is -2"},
		"both":       {"one of the two would have no effect", func(f *nodeFlags) { f.attachLimit, f.reserved = 5, 1 }, "exclude each other"},
		"limit only": {"each alone is fine", func(f *nodeFlags) { f.attachLimit = 5 }, ""},
	} {
		f := nodeFlags{deviceIdentity: "nvme", reserved: -1}
		tc.set(&f)
		_, err := f.check()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
}

func TestCheckIdentity(t *testing.T) {
	for _, tc := range []struct {
		identity     blockdev.Identity
		instanceType string
		ok           bool
	}{
		{blockdev.NVMe, "m5.large", true},
		{blockdev.NVMe, "t2.medium", false},
		{blockdev.Xen, "t2.medium", true},
		{blockdev.Xen, "m5.large", false},
		{blockdev.LoopBackingFile, "m5.large", true},
	} {
		if err := checkIdentity(tc.identity, tc.instanceType); (err == nil) != tc.ok {
			t.Errorf("%s on %s: got %v", tc.identity, tc.instanceType, err)
		}
	}
}

// metadataServer answers as IMDS of an m5.large does.
func metadataServer(t *testing.T) string {
	t.Helper()
	says := map[string]string{
		"/latest/dynamic/instance-identity/document": `{"instanceId":"i-0abc","instanceType":"m5.large","availabilityZone":"us-east-1b","region":"us-east-1"}`,
		"/latest/meta-data/network/interfaces/macs/": "0a:01/",
		"/latest/meta-data/block-device-mapping/":    "ami\nroot",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			_, _ = io.WriteString(w, "token")
			return
		}
		if text, ok := says[r.URL.Path]; ok {
			_, _ = io.WriteString(w, text)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// freeAddress is a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// healthOver asks the health check once.
func healthOver(address string) (int, string) {
	answer, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, fmt.Sprint(string(body), err)
}

// TestNodeProcess runs the node half as a node does and plays kubelet: it is
// registered, answers on its socket, tells its health, and stops without
// leaving sockets behind.
func TestNodeProcess(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadataServer(t))
	dir := t.TempDir()
	socket := filepath.Join(dir, "csi.sock")
	f := nodeFlags{
		endpoint: "unix://" + socket, driverName: "ebs.csi.aws.com", kubeletSocket: socket,
		registrationDir: dir, deviceIdentity: "nvme", reserved: -1, metadataSources: "imds,kubernetes", healthAddress: freeAddress(t), metricsAddress: freeAddress(t),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runNode(ctx, f, testr.New(t)) }()

	call, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kubelet := registration.NewRegistrationClient(dial(t, filepath.Join(dir, "ebs.csi.aws.com-reg.sock")))
	info, err := kubelet.GetInfo(call, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	node, err := csi.NewNodeClient(dial(t, info.GetEndpoint())).NodeGetInfo(call, &csi.NodeGetInfoRequest{})
	if err != nil || node.GetNodeId() != "i-0abc" || node.GetMaxVolumesPerNode() != 26 {
		t.Errorf("kubelet learns %v, %v", node, err)
	}
	if code, text := healthOver(f.healthAddress); code != http.StatusOK {
		t.Errorf("a registered node must be healthy: %d %s", code, text)
	}
	if answer, err := http.Get("http://" + f.metricsAddress + "/metrics"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("metrics: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
	if err := os.Remove(filepath.Join(dir, "ebs.csi.aws.com-reg.sock")); err != nil {
		t.Fatal(err)
	}
	if code, text := healthOver(f.healthAddress); code != http.StatusServiceUnavailable || !strings.Contains(text, "registration") {
		t.Errorf("without its registration socket the node must say so: %d %s", code, text)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a stop on request is no error: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.sock")); len(left) > 0 {
		t.Errorf("sockets were left behind: %v", left)
	}
}

// TestNodeProcessEndsWhenRefused: kubelet's refusal ends the process.
func TestNodeProcessEndsWhenRefused(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadataServer(t))
	dir := t.TempDir()
	f := nodeFlags{
		endpoint: "unix://" + filepath.Join(dir, "csi.sock"), driverName: "ebs.csi.aws.com", registrationDir: dir,
		deviceIdentity: "nvme", reserved: -1, metadataSources: "imds",
	}
	ended := make(chan error, 1)
	go func() { ended <- runNode(t.Context(), f, testr.New(t)) }()
	call, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kubelet := registration.NewRegistrationClient(dial(t, filepath.Join(dir, "ebs.csi.aws.com-reg.sock")))
	_, err := kubelet.NotifyRegistrationStatus(call, &registration.RegistrationStatus{Error: "no such node"}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("want kubelet's reason, got %v", err)
	}
}
