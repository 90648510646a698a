//go:build vmguest

package guest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
	"github.com/holdfast-dev/holdfast/internal/imds"
	"github.com/holdfast-dev/holdfast/internal/testvm/guest"
	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

func TestMain(m *testing.M) { guest.Main(m) }

// node is a running node service, reached over its socket.
type node struct {
	t      *testing.T
	client csi.NodeClient
	dir    string
}

// instance is the metadata of the instance that the machine stands for.
type instance struct{}

func (instance) Instance(context.Context) (imds.Instance, error) {
	return imds.Instance{ID: "i-0123456789abcdef0", Type: "m5.large", Zone: "us-east-1a", Region: "us-east-1"}, nil
}

func (instance) Occupancy(context.Context) (ebs.Occupancy, error) {
	return ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}, nil
}

// patience is how long the node service waits for devices in these tests: a
// plugged disk needs about a quarter of a second under emulation.
const patience = 5 * time.Second

// startNode starts a node service that ends with the test.
func startNode(t *testing.T, options blockdev.Options) *node {
	t.Helper()
	if options.Patience == 0 {
		options.Patience = patience
	}
	n := &node{t: t, dir: t.TempDir()}
	socket := filepath.Join(n.dir, "csi.sock")
	server, err := driver.NewServer(driver.ServerOptions{
		Endpoint: "unix://" + socket,
		Log:      testr.NewWithOptions(t, testr.Options{Verbosity: 0}),
		Identity: &driver.IdentityService{Name: driver.DefaultName, Version: "test"},
		Node:     driver.NewNodeService(blockdev.NewFinder(options), fs.NewMounter(), instance{}, driver.VolumeLimits{Reserved: -1}),
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		conn.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("node service: %v", err)
		}
	})
	n.client = csi.NewNodeClient(conn)
	return n
}

// volumes are numbered, so that each test has its own.
const (
	volumeA = "vol-0123456789abcdefa"
	volumeB = "vol-0123456789abcdefb"
)

func serial(volume string) string { return strings.Replace(volume, "-", "", 1) }

// attach plugs a volume's disk in for the rest of the test. A new disk is made
// with this size; the disk's name includes the test's, so that each test has
// empty disks.
func attach(t *testing.T, volume string, mib int64) {
	t.Helper()
	attachAs(t, wire.Request{Disk: diskName(t, volume), Serial: serial(volume), SizeBytes: mib << 20})
}

func attachAs(t *testing.T, r wire.Request) {
	t.Helper()
	r.Do = wire.Attach
	_, err := guest.Ask(r)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			report(t)
		}
		_, _ = guest.Ask(wire.Request{Do: wire.Detach, Disk: r.Disk}) // a test may have pulled it out
	})
}

func detach(t *testing.T, volume string) {
	t.Helper()
	_, err := guest.Ask(wire.Request{Do: wire.Detach, Disk: diskName(t, volume)})
	must(t, err)
}

// checksum is what the host sees of a disk.
func checksum(t *testing.T, disk string) string {
	t.Helper()
	answer, err := guest.Ask(wire.Request{Do: wire.Checksum, Disk: disk})
	must(t, err)
	return answer.Checksum
}

func diskName(t *testing.T, volume string) string {
	return strings.ReplaceAll(t.Name(), "/", "-") + "-" + volume
}

// report prints what the kernel sees, for a test that failed.
func report(t *testing.T) {
	disks, _ := filepath.Glob("/sys/block/nvme*")
	for _, d := range disks {
		serial, _ := os.ReadFile(filepath.Join(d, "device/serial"))
		size, _ := os.ReadFile(filepath.Join(d, "size"))
		t.Logf("%s serial %s size %s", d, strings.TrimSpace(string(serial)), strings.TrimSpace(string(size)))
	}
}

// device waits for a disk and returns its node, found by the test's own means.
func device(t *testing.T, volume string) string {
	t.Helper()
	var found string
	eventually(t, "disk of "+volume, func() bool {
		files, _ := filepath.Glob("/sys/block/nvme*/device/serial")
		for _, file := range files {
			data, _ := os.ReadFile(file)
			name := filepath.Base(filepath.Dir(filepath.Dir(file)))
			if strings.TrimSpace(string(data)) == serial(volume) {
				if _, err := os.Stat("/dev/" + name); err == nil {
					found = "/dev/" + name
				}
			}
		}
		return found != ""
	})
	return found
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 10 s", what)
		case <-tick.C:
		}
	}
}

func mountOf(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
}

func readerOf(fsType string) *csi.VolumeCapability {
	c := mountOf(fsType)
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	return c
}

func blockOf() *csi.VolumeCapability {
	c := mountOf("")
	c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	return c
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) stageRequest(volume string, c *csi.VolumeCapability) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: n.path("stage-" + volume), VolumeCapability: c,
		PublishContext: map[string]string{"devicePath": "/dev/xvdaa"},
	}
}

func (n *node) stage(volume string, c *csi.VolumeCapability) error {
	_, err := n.client.NodeStageVolume(n.t.Context(), n.stageRequest(volume, c))
	if err == nil {
		n.t.Cleanup(func() { _ = n.unstage(volume) })
	}
	return err
}

func (n *node) unstage(volume string) error {
	_, err := n.client.NodeUnstageVolume(context.Background(), &csi.NodeUnstageVolumeRequest{
		VolumeId: volume, StagingTargetPath: n.path("stage-" + volume),
	})
	return err
}

func (n *node) publish(volume, target string, c *csi.VolumeCapability, readOnly bool) error {
	_, err := n.client.NodePublishVolume(n.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: n.path("stage-" + volume), TargetPath: n.path(target),
		VolumeCapability: c, Readonly: readOnly,
	})
	if err == nil {
		n.t.Cleanup(func() { _ = n.unpublish(volume, target) })
	}
	return err
}

func (n *node) unpublish(volume, target string) error {
	_, err := n.client.NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{
		VolumeId: volume, TargetPath: n.path(target),
	})
	return err
}

// stats asks for the first usage of the volume at target.
func (n *node) stats(volume, target string) (*csi.NodeGetVolumeStatsResponse, error) {
	return n.client.NodeGetVolumeStats(n.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: n.path(target)})
}

// totalBytes is the size that the node service reports at target.
func (n *node) totalBytes(volume, target string) int64 {
	n.t.Helper()
	answer, err := n.stats(volume, target)
	must(n.t, err)
	return answer.GetUsage()[0].GetTotal()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want codes.Code, part string) {
	t.Helper()
	if status.Code(err) != want || !strings.Contains(err.Error(), part) {
		t.Fatalf("want %s with %q in it, got %v", want, part, err)
	}
}

// run runs a tool.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// writeSynced writes a file that survives a crash.
func writeSynced(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.Create(path)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, err)
	must(t, file.Sync())
	must(t, file.Close())
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Fatalf("%s: want %q, got %q, %v", path, want, got, err)
	}
}
