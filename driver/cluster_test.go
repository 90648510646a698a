package driver_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// These tests go all the way: a CSI client, a socket, the controller service,
// the AWS SDK, and a simulated EC2.

const (
	gib    = int64(1) << 30
	nodeA  = "i-0000000000000a001"
	nodeA2 = "i-0000000000000a002"
	nodeB  = "i-0000000000000b001"
	zoneA  = "us-east-1a"
	zoneB  = "us-east-1b"
)

// cluster is a region and a controller process in front of it.
type cluster struct {
	csi.ControllerClient
	groups   csi.GroupControllerClient
	identity csi.IdentityClient
	t        *testing.T
	sim      *ec2sim.Sim
	clock    *clocktesting.FakeClock
	url      string
	stop     func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))}
	var err error
	if c.sim, err = ec2sim.New(ec2sim.Config{Clock: c.clock}); err != nil {
		t.Fatal(err)
	}
	for id, zone := range map[string]string{nodeA: zoneA, nodeA2: zoneA, nodeB: zoneB} {
		if err := c.sim.AddInstance(ec2sim.Instance{ID: id, Zone: zone}); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(c.sim)
	c.url = srv.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { runClock(ctx, c.clock) })
	c.restart()
	t.Cleanup(func() {
		c.stop()
		cancel()
		running.Wait()
		srv.CloseClientConnections()
		srv.Close()
		for _, u := range c.sim.Unmodelled() {
			t.Errorf("asked for what the simulator does not model: %+v", u)
		}
	})
	return c
}

// runClock lets time pass while somebody waits for it.
func runClock(ctx context.Context, clk *clocktesting.FakeClock) {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if clk.HasWaiters() {
				clk.Step(100 * time.Millisecond)
			}
		}
	}
}

// restart begins anew with a controller process that remembers nothing.
func (c *cluster) restart() {
	c.t.Helper()
	if c.stop != nil {
		c.stop()
	}
	cfg := ec2sim.ClientConfig(c.url)
	cfg.RetryMaxAttempts = 2
	cloud := ec2.New(cfg, c.clock)
	socket := "unix://" + filepath.Join(c.t.TempDir(), "csi.sock")
	server, err := driver.NewServer(driver.ServerOptions{
		Endpoint: socket, Log: logr.Discard(), Identity: &driver.IdentityService{Ready: cloud.Reachable},
		Controller:      driver.NewControllerService(cloud, cloud, driver.Tagging{Extra: map[string]string{"env": "test"}}),
		GroupController: driver.NewGroupService(cloud, driver.Tagging{Extra: map[string]string{"env": "test"}}),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.ControllerClient = csi.NewControllerClient(conn)
	c.groups = csi.NewGroupControllerClient(conn)
	c.identity = csi.NewIdentityClient(conn)
	c.stop = sync.OnceFunc(func() {
		conn.Close()
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

func singleWriter() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

// wanted is what csi-provisioner asks for a claim of 10 GiB in zone a.
func wanted(name string, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	zone := []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zoneA}}}
	req := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 10 * gib}, VolumeCapabilities: []*csi.VolumeCapability{singleWriter()},
		Parameters:                map[string]string{"type": "gp3", "csi.storage.k8s.io/pvc/name": "data-0", "csi.storage.k8s.io/pvc/namespace": "db", "csi.storage.k8s.io/pv/name": name},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zone, Preferred: zone},
	}
	for _, f := range change {
		f(req)
	}
	return req
}

func (c *cluster) volume(name string, change ...func(*csi.CreateVolumeRequest)) *csi.Volume {
	c.t.Helper()
	answer, err := c.CreateVolume(c.t.Context(), wanted(name, change...))
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.GetVolume()
}

func (c *cluster) publish(id, node string) (*csi.ControllerPublishVolumeResponse, error) {
	return c.ControllerPublishVolume(c.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: singleWriter()})
}

func (c *cluster) unpublish(id, node string) error {
	_, err := c.ControllerUnpublishVolume(c.t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	return err
}

// calls is how often an action was called.
func (c *cluster) calls(action string) int {
	n := 0
	for _, k := range c.sim.Calls() {
		if k.Action == action {
			n += k.Count
		}
	}
	return n
}

func wantCode(t *testing.T, why string, err error, want codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", why, err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not name %q", why, err, text)
		}
	}
}
