//go:build sanity

package sanity

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/disk"
)

// inPrivateMounts is set in the process that has its own mount namespace.
const inPrivateMounts = "HOLDFAST_TEST_PRIVATE_MOUNTS"

// Where csi-sanity and the instance are.
const (
	binVariable = "HOLDFAST_BIN"
	instanceID  = "i-0000000000000a001"
)

// atOnce is how many runs there are at once: they mostly wait.
const atOnce = "8"

func TestMain(m *testing.M) {
	if os.Getenv(inPrivateMounts) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "make mounts private:", err)
			os.Exit(1)
		}
		flag.Parse()
		if err := flag.Set("test.parallel", atOnce); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests (build tag sanity) need root: run them with sudo")
		os.Exit(1)
	}
	if os.Getenv(binVariable) == "" {
		fmt.Fprintf(os.Stderr, "%s is not set: it is the folder with csi-sanity that `go run ./cmd/sandbox build` prints\n", binVariable)
		os.Exit(1)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inPrivateMounts+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is tied to the thread that starts the child
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Both kinds of volumes with EC2 at its best, and each kind of trouble that EC2
// makes. csi-sanity repeats nothing: what the driver does not overcome within a
// request fails.
func TestSanity(t *testing.T) {
	driver := buildDriver(t)
	for _, access := range []string{"mount", "block"} {
		t.Run(access, func(t *testing.T) {
			t.Parallel() // mostly waiting
			run(t, driver, access, trouble{})
		})
	}
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			run(t, driver, "mount", tr)
		})
	}
}

// run runs csi-sanity against a driver and a region of its own.
func run(t *testing.T, driver, access string, tr trouble) {
	b := newBench(t, tr)
	controller := b.start("controller", nil, driver, "controller", "--endpoint=unix://"+b.path("controller.sock"), "--health-address=", "-v=1")
	node := b.startNode(driver)
	awaitSocket(t, b.path("controller.sock"))
	awaitSocket(t, b.path("node.sock"))
	out, err := b.sanity(access, tr)
	t.Logf("%s", lastLines(out, 15))
	if err != nil {
		t.Errorf("csi-sanity (%s): %v\n%s", access, err, failures(out))
		t.Logf("controller:\n%s", lastLines(controller.Bytes(), 20))
		t.Logf("node:\n%s", lastLines(node.Bytes(), 20))
	}
	checkSkips(t, out)
	b.wasInTrouble(tr)
	b.nothingLeft()
}

// bench is a simulated region with one instance, in a folder.
type bench struct {
	t    *testing.T
	dir  string
	sim  *ec2sim.Sim
	ec2  string // URL
	imds string // URL
}

func newBench(t *testing.T, tr trouble) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	dev := b.path("dev")
	makeDev(t, dev)
	disks, err := disk.New(b.path("ec2"))
	if err != nil {
		t.Fatal(err)
	}
	b.sim, err = ec2sim.New(ec2sim.Config{
		StateDir: b.path("ec2"), Disks: disks,
		Zones:  []string{"us-east-1a"}, // csi-sanity asks for no topology and takes every volume to the one node
		Delays: &tr.delays,             // none without trouble: csi-sanity tests answers, not patience
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.sim.AddInstance(ec2sim.Instance{ID: instanceID, Zone: "us-east-1a", Sources: []string{"127.0.0.1"}, DevDir: dev}); err != nil {
		t.Fatal(err)
	}
	if err := b.sim.SetReadLag(tr.lag); err != nil {
		t.Fatal(err)
	}
	for _, f := range tr.faults {
		if err := b.sim.Inject(f); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		b.sim.Run(ctx)
		close(ended)
	}()
	b.ec2, b.imds = serve(t, b.sim), serve(t, b.sim.IMDS())
	t.Cleanup(func() {
		cancel()
		<-ended
		b.sim.Close()
	})
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func serve(t *testing.T, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// makeDev makes the /dev that the node sees: a few nodes and what the simulator attaches.
func makeDev(t *testing.T, dev string) {
	t.Helper()
	if err := os.Mkdir(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dev, unix.MNT_DETACH) })
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mknod(filepath.Join(dev, "loop-control"), unix.S_IFCHR|0o660, int(unix.Mkdev(10, 237))); err != nil {
		t.Fatal(err)
	}
}

// buildDriver builds the driver from this repository.
func buildDriver(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "holdfast-driver")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/holdfast-dev/holdfast/cmd/holdfast-driver")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	return bin
}

// start starts a process that ends with the test, and keeps what it logs.
func (b *bench) start(name string, wrap []string, argv ...string) *bytes.Buffer {
	b.t.Helper()
	argv = append(wrap, argv...)
	log := &bytes.Buffer{}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 25 * time.Second
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL_EC2="+b.ec2, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+b.imds)
	if name == "controller" {
		cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=AKIAHOLDFASTCONTROLLER", "AWS_SECRET_ACCESS_KEY=not-checked", "AWS_EC2_METADATA_DISABLED=true")
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("start %s: %v", name, err)
	}
	b.t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if path := os.Getenv("HOLDFAST_SANITY_LOGS"); path != "" {
			os.WriteFile(filepath.Join(path, strings.ReplaceAll(b.t.Name(), "/", "-")+"-"+name+".log"), log.Bytes(), 0o644)
		}
	})
	return log
}

// startNode starts the node half in a mount namespace of its own, in which /dev
// is the instance's.
func (b *bench) startNode(driver string) *bytes.Buffer {
	enter := []string{"unshare", "--mount", "--propagation=private", "sh", "-c", `mount --bind "$1" /dev && shift && exec "$@"`, "sh", b.path("dev")}
	return b.start("node", enter, driver, "node", "--endpoint=unix://"+b.path("node.sock"), "--registration-dir=",
		"--device-identity=loop-backing-file", "--health-address=", "-v=1")
}

func awaitSocket(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return
		}
	}
	t.Fatalf("nobody serves %s", path)
}

// sanity runs csi-sanity.
func (b *bench) sanity(access string, tr trouble) ([]byte, error) {
	args := []string{
		"-csi.endpoint=unix://" + b.path("node.sock"), "-csi.controllerendpoint=unix://" + b.path("controller.sock"),
		"-csi.mountdir=" + b.path("mount"), "-csi.stagingdir=" + b.path("staging"),
		"-csi.testvolumeaccesstype=" + access, "-csi.testnodevolumeattachlimit",
		"-csi.testvolumesize=" + strconv.Itoa(1<<30), "-csi.testvolumeexpandsize=" + strconv.Itoa(2<<30),
		"-csi.testvolumemutableparameters=" + b.attributes(),
		"-ginkgo.no-color", "-ginkgo.v",
	}
	for _, e := range tr.except {
		b.t.Logf("left out: %q: %s", e.test, e.why)
		args = append(args, "-ginkgo.skip="+e.test)
	}
	cmd := exec.CommandContext(b.t.Context(), filepath.Join(os.Getenv(binVariable), "csi-sanity"), args...)
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	if path := os.Getenv("HOLDFAST_SANITY_LOGS"); path != "" {
		os.WriteFile(filepath.Join(path, strings.ReplaceAll(b.t.Name(), "/", "-")+".log"), out, 0o644)
	}
	return out, err
}

// skipLine is csi-sanity's reason for a test that it skips.
var skipLine = regexp.MustCompile(`(?m)^\s+\[SKIPPED\] (.*[^\d\n])$`)

// checkSkips compares what csi-sanity skipped with skipped.txt, both ways.
func checkSkips(t *testing.T, out []byte) {
	t.Helper()
	explained := readSkips(t)
	skipped := map[string]bool{}
	for _, m := range skipLine.FindAllSubmatch(out, -1) {
		if reason := string(m[1]); !strings.HasPrefix(reason, "in [") {
			skipped[reason] = true
		}
	}
	for reason := range skipped {
		if explained[reason] == "" {
			t.Errorf("csi-sanity skipped tests with %q, for which skipped.txt has no reason", reason)
		}
	}
	for reason := range explained {
		if !skipped[reason] {
			t.Errorf("skipped.txt explains %q, which csi-sanity did not skip: remove the line", reason)
		}
	}
}

// readSkips reads skipped.txt.
func readSkips(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("skipped.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	explained := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			skipped, reason, ok := strings.Cut(line, "\t")
			if !ok || reason == "" {
				t.Fatalf("skipped.txt: %q: want what csi-sanity says and the reason, separated by a tab", line)
			}
			explained[skipped] = reason
		}
	}
	return explained
}

// nothingLeft says what the run leaked in EC2.
func (b *bench) nothingLeft() {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); len(b.sim.Volumes())+len(b.sim.Snapshots()) > 0 && time.Now().Before(deadline); {
		<-tick.C // what is being deleted goes soon
	}
	for _, v := range b.sim.Volumes() {
		b.t.Errorf("volume %s (%s) is left in EC2, %s", v.ID, v.Tags["CSIVolumeName"], v.State)
	}
	for _, s := range b.sim.Snapshots() {
		b.t.Errorf("snapshot %s is left in EC2, %s", s.ID, s.State)
	}
	for _, u := range b.sim.Unmodelled() {
		b.t.Errorf("asked for what the simulator does not model: %+v", u)
	}
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// failures is ginkgo's summary of what failed.
func failures(out []byte) string {
	_, summary, found := strings.Cut(string(out), "Summarizing")
	if !found {
		return lastLines(out, 80)
	}
	return "Summarizing" + summary
}
