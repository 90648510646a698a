//go:build root

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

// These tests run the node service on loop devices and real mounts. They need
// root and the tools of the node image, and run in a mount namespace of their
// own, so that nothing is left mounted when the process ends.

// inPrivateMounts is set in the process that has its own mount namespace.
const inPrivateMounts = "HOLDFAST_TEST_PRIVATE_MOUNTS"

func TestMain(m *testing.M) {
	if os.Getenv(inPrivateMounts) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "make mounts private:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests (build tag root) need root: run them with sudo")
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

// bench is a node with loop devices for volumes.
type bench struct {
	t    *testing.T
	dir  string
	node *NodeService
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	must(t, os.Mkdir(b.path("dev"), 0o755))
	must(t, unix.Mount("tmpfs", b.path("dev"), "tmpfs", 0, "")) // of the kind that /dev is
	t.Cleanup(func() { unix.Unmount(b.path("dev"), unix.MNT_DETACH) })
	must(t, os.MkdirAll(b.path("dev/disk/by-id"), 0o755))
	finder := blockdev.NewFinder(blockdev.Options{
		Identity: blockdev.LoopBackingFile,
		Tree:     blockdev.Tree{Dev: filepath.Join(b.dir, "dev")},
		Patience: 300 * time.Millisecond,
	})
	b.node = NewNodeService(finder, fs.NewMounter(), fixedInstance{}, VolumeLimits{Reserved: -1})
	return b
}

// fixedInstance is an instance's metadata.
type fixedInstance struct{}

func (fixedInstance) Instance(context.Context) (imds.Instance, error) {
	return imds.Instance{ID: "i-0abc", Type: "m5.large", Zone: "us-east-1a", Region: "us-east-1"}, nil
}

func (fixedInstance) Occupancy(context.Context) (ebs.Occupancy, error) {
	return ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}, nil
}

// run runs a tool and returns its output.
func (b *bench) run(name string, args ...string) string {
	b.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// disk is an attached volume.
type disk struct {
	volume string
	file   string
	loop   string // loop3
}

// attach makes a volume of this size and attaches it as the simulator does.
func (b *bench) attach(volume string, mib int64) disk {
	b.t.Helper()
	d := disk{volume: volume, file: filepath.Join(b.dir, volume+".img")}
	file, err := os.OpenFile(d.file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := file.Truncate(mib << 20); err != nil {
		b.t.Fatal(err)
	}
	file.Close()
	d.loop = filepath.Base(b.run("losetup", "-f", "--show", d.file))
	b.t.Cleanup(func() { b.run("losetup", "-d", "/dev/"+d.loop) })
	b.link(volume, d.loop)
	return d
}

// link shows a loop device as a volume.
func (b *bench) link(volume, loop string) {
	b.t.Helper()
	var number int
	if _, err := fmt.Sscanf(loop, "loop%d", &number); err != nil {
		b.t.Fatal(err)
	}
	node := filepath.Join(b.dir, "dev", loop)
	err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(number))))
	if err != nil && err != unix.EEXIST {
		b.t.Fatal(err)
	}
	link := filepath.Join(b.dir, "dev/disk/by-id", "nvme-Amazon_Elastic_Block_Store_"+strings.Replace(volume, "-", "", 1))
	if err := os.Symlink("../../"+loop, link); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func mountOf(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
}

func blockOf() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

func (b *bench) stage(volume string, capability *csi.VolumeCapability) error {
	return b.stageWith(volume, capability, nil)
}

// stageWith stages a volume whose PV has this volume context.
func (b *bench) stageWith(volume string, capability *csi.VolumeCapability, volumeContext map[string]string) error {
	_, err := b.node.NodeStageVolume(b.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: b.path("stage-" + volume), VolumeCapability: capability, VolumeContext: volumeContext,
	})
	if err == nil {
		b.t.Cleanup(func() { _ = b.unstage(volume) })
	}
	return err
}

func (b *bench) unstage(volume string) error {
	_, err := b.node.NodeUnstageVolume(context.WithoutCancel(b.t.Context()), &csi.NodeUnstageVolumeRequest{
		VolumeId: volume, StagingTargetPath: b.path("stage-" + volume),
	})
	return err
}

func (b *bench) publish(volume, target string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := b.node.NodePublishVolume(b.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: b.path("stage-" + volume), TargetPath: b.path(target),
		VolumeCapability: capability, Readonly: readOnly,
	})
	if err == nil {
		b.t.Cleanup(func() { _ = b.unpublish(volume, target) })
	}
	return err
}

func (b *bench) unpublish(volume, target string) error {
	_, err := b.node.NodeUnpublishVolume(context.WithoutCancel(b.t.Context()), &csi.NodeUnpublishVolumeRequest{
		VolumeId: volume, TargetPath: b.path(target),
	})
	return err
}

// must fails the test on an error, wantCode on any other answer than this code.
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

const volumeA, volumeB = "vol-0123456789abcdef0", "vol-0123456789abcdef1"

func TestFilesystemLifeOnLoop(t *testing.T) {
	for _, fsType := range []string{"ext4", "ext3", "XFS"} {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			b.attach(volumeA, 512)
			capability := mountOf(fsType, "noatime")
			must(t, b.stage(volumeA, capability))
			must(t, b.stage(volumeA, capability)) // a repeat is fine
			must(t, b.publish(volumeA, "pod1", capability, false))
			must(t, b.publish(volumeA, "pod1", capability, false))
			must(t, os.WriteFile(b.path("pod1/data"), []byte("kept"), 0o600))
			must(t, b.publish(volumeA, "pod2", capability, true))
			if err := os.WriteFile(b.path("pod2/data"), nil, 0o600); err == nil {
				t.Error("a read-only publication must refuse writes")
			}
			wantCode(t, b.publish(volumeA, "pod2", capability, false), codes.AlreadyExists, "read-only")
			wantCode(t, b.stage(volumeA, mountOf(otherType(fsType))), codes.AlreadyExists, "wanted is")
			options := b.run("findmnt", "-no", "OPTIONS", b.path("pod1"))
			if !strings.Contains(options, "noatime") {
				t.Errorf("mount flags must reach the Pod's mount, got %s", options)
			}
			must(t, b.unpublish(volumeA, "pod1"))
			must(t, b.unpublish(volumeA, "pod1"))
			must(t, b.unpublish(volumeA, "pod2"))
			must(t, b.unstage(volumeA))
			must(t, b.unstage(volumeA))
			if _, err := os.Stat(b.path("pod1")); !os.IsNotExist(err) {
				t.Errorf("the target path must be gone, got %v", err)
			}
			must(t, b.stage(volumeA, capability))
			must(t, b.publish(volumeA, "pod1", capability, false))
			data, err := os.ReadFile(b.path("pod1/data"))
			if diff := cmp.Diff("kept", string(data)); diff != "" || err != nil {
				t.Errorf("data must be there after the next stage: %v %s", err, diff)
			}
		})
	}
}

func otherType(fsType string) string {
	if fsType == "XFS" {
		return "ext4"
	}
	return "xfs"
}

// TestGrowOnLoop grows an xfs while it is mounted; ext4 needs a right that some
// build machines withhold and is grown in the test machine (test/node).
func TestGrowOnLoop(t *testing.T) {
	b := newBench(t)
	d := b.attach(volumeA, 320)
	must(t, b.stage(volumeA, mountOf("xfs")))
	must(t, b.publish(volumeA, "pod", mountOf("xfs"), false))
	must(t, os.Truncate(d.file, 640<<20))
	b.run("losetup", "-c", "/dev/"+d.loop)
	answer, err := b.node.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: volumeA, VolumePath: b.path("pod"), CapacityRange: &csi.CapacityRange{RequiredBytes: 640 << 20},
	})
	must(t, err)
	if answer.GetCapacityBytes() != 640<<20 {
		t.Errorf("the answer must be the disk's size, got %d", answer.GetCapacityBytes())
	}
	stats, err := b.node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeA, VolumePath: b.path("pod")})
	must(t, err)
	if total := stats.GetUsage()[0].GetTotal(); total < 560<<20 {
		t.Errorf("the filesystem must have the disk's 640 MiB, it has %d bytes", total)
	}
}

// TestWrongLoopBehindLink: the link of one volume leads to another's file.
func TestWrongLoopBehindLink(t *testing.T) {
	b := newBench(t)
	other := b.attach(volumeB, 64)
	b.link(volumeA, other.loop)
	wantCode(t, b.stage(volumeA, mountOf("ext4")), codes.FailedPrecondition, volumeB)
	data, err := os.ReadFile(other.file)
	must(t, err)
	if strings.Trim(string(data), "\x00") != "" {
		t.Error("the other volume was written to")
	}
	wantCode(t, b.stage("vol-0123456789abcdef9", mountOf("ext4")), codes.NotFound, "vol-0123456789abcdef9")
}

// TestBlockOnLoop publishes a raw block volume.
func TestBlockOnLoop(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 64)
	must(t, b.stage(volumeA, blockOf()))
	must(t, b.publish(volumeA, "block", blockOf(), false))
	must(t, b.publish(volumeA, "block", blockOf(), false))
	if size := b.run("blockdev", "--getsize64", b.path("block")); size != fmt.Sprint(64<<20) {
		t.Errorf("the published device must have the volume's size, got %s", size)
	}
	wantCode(t, b.publish(volumeA, "block", blockOf(), true), codes.AlreadyExists, "read-only")
	must(t, b.unpublish(volumeA, "block"))
	must(t, b.unstage(volumeA))
}

// TestOneWriter: a volume of one writer is shown at one target path at a time,
// one of several at any number, as the second table of NodePublishVolume asks.
func TestOneWriter(t *testing.T) {
	for name, capability := range map[string]*csi.VolumeCapability{"mount": mountOf("ext4"), "block": blockOf()} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.attach(volumeA, 64)
			b.attach(volumeB, 64)
			mode := func(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
				return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: m}, AccessType: capability.GetAccessType()}
			}
			one, several := mode(oneWriter), mode(multiWriter)
			must(t, b.stage(volumeA, one))
			must(t, b.publish(volumeA, "pod1", one, false))
			must(t, b.publish(volumeA, "pod1", one, false)) // a repeat is fine
			wantCode(t, b.publish(volumeA, "pod2", one, false), codes.FailedPrecondition, b.path("pod1"))
			wantCode(t, b.publish(volumeA, "pod2", one, true), codes.FailedPrecondition, b.path("pod1"))
			wantCode(t, b.publish(volumeA, "pod1", one, true), codes.AlreadyExists, "read-only")
			must(t, b.stage(volumeB, several))
			must(t, b.publish(volumeB, "pod2", several, false)) // another volume is not held up
			must(t, b.publish(volumeB, "pod3", several, false))
			must(t, b.publish(volumeB, "pod4", mode(writer), false)) // from a kubelet that knows no exact modes
			must(t, b.unpublish(volumeA, "pod1"))
			must(t, b.publish(volumeA, "pod5", one, false)) // the next Pod
		})
	}
}

// TestFilesystemShutOff: the kernel has shut a filesystem off after an error. A
// further Pod is not given what it cannot write to; a Pod that only reads is, the
// Pod that has it keeps it, and the next mount checks it and all is well.
func TestFilesystemShutOff(t *testing.T) {
	for name, shut := range map[string]func(b *bench, loop string){
		"ext4": func(b *bench, loop string) {
			must(b.t, os.WriteFile("/sys/fs/ext4/"+loop+"/trigger_fs_error", []byte("1"), 0o200))
		},
		"xfs": func(b *bench, _ string) { b.run("xfs_io", "-x", "-c", "shutdown", b.path("stage-"+volumeA)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			d := b.attach(volumeA, 320)
			writes := mountOf(name)
			if name == "ext4" {
				writes = mountOf(name, "errors=remount-ro")
			}
			must(t, b.stage(volumeA, writes))
			must(t, b.publish(volumeA, "pod1", writes, false))
			if got := b.health(volumeA, true); got != "" {
				t.Errorf("a filesystem that is well: %s", got)
			}
			shut(b, d.loop)
			if got := b.health(volumeA, true); got != "INACCESSIBLE FilesystemShutOff" {
				t.Errorf("health after it was shut off: %q", got)
			}
			wantCode(t, b.publish(volumeA, "pod2", writes, false), codes.FailedPrecondition, "shut it off after an error")
			if _, err := os.Stat(b.path("pod2")); !os.IsNotExist(err) {
				t.Errorf("the refused target was made: %v", err)
			}
			must(t, b.publish(volumeA, "pod1", writes, false))
			if name == "ext4" { // xfs gives nothing to read any more
				must(t, b.publish(volumeA, "reader", writes, true))
			}
			// It stays mounted: the code must let kubelet unstage it.
			wantCode(t, b.stage(volumeA, writes), codes.Unavailable, "next mount")
			must(t, b.unpublish(volumeA, "pod1"))
			must(t, b.unpublish(volumeA, "reader"))
			must(t, b.unstage(volumeA))
			must(t, b.stage(volumeA, writes))
			must(t, b.publish(volumeA, "pod2", writes, false))
			must(t, os.WriteFile(b.path("pod2/file"), []byte("written"), 0o600))
		})
	}
}

// TestFullFilesystem: one that is full is no broken one.
func TestFullFilesystem(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 16)
	must(t, b.stage(volumeA, mountOf("ext4")))
	for n := range 1 << 20 {
		file, err := os.OpenFile(filepath.Join(b.path("stage-"+volumeA), fmt.Sprint(n)), os.O_CREATE|os.O_WRONLY, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		must(t, err)
		file.Close()
	}
	must(t, b.publish(volumeA, "pod", mountOf("ext4"), false))
}

// TestImmutableRoot: in one whose root takes no new files others may be written.
func TestImmutableRoot(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 64)
	must(t, b.stage(volumeA, mountOf("ext4")))
	b.run("chattr", "+i", b.path("stage-"+volumeA))
	t.Cleanup(func() { b.run("chattr", "-i", b.path("stage-"+volumeA)) })
	must(t, b.publish(volumeA, "pod", mountOf("ext4"), false))
	must(t, b.unpublish(volumeA, "pod"))
}

// TestReadOnlyAmongOptions: "ro" counts, in whichever way a class writes it.
func TestReadOnlyAmongOptions(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 64)
	must(t, b.stage(volumeA, mountOf("ext4")))
	must(t, b.unstage(volumeA))
	for _, options := range [][]string{{"noatime", "ro"}, {"noatime,ro"}} {
		must(t, b.stage(volumeA, mountOf("ext4", options...)))
		must(t, b.publish(volumeA, "reader", mountOf("ext4", options...), false))
		must(t, b.unpublish(volumeA, "reader"))
		must(t, b.unstage(volumeA))
	}
}

// TestWriteProtectedDevice: mount(8) mounts one read-only and calls it a success.
func TestWriteProtectedDevice(t *testing.T) {
	b := newBench(t)
	d := b.attach(volumeA, 64)
	must(t, b.stage(volumeA, mountOf("ext4")))
	must(t, b.unstage(volumeA))
	b.run("blockdev", "--setro", "/dev/"+d.loop)
	t.Cleanup(func() { b.run("blockdev", "--setrw", "/dev/"+d.loop) })
	wantCode(t, b.stage(volumeA, mountOf("ext4")), codes.Unavailable, "mounted read-only")
	must(t, b.unstage(volumeA))
	must(t, b.stage(volumeA, mountOf("ext4", "ro")))
	must(t, b.publish(volumeA, "reader", mountOf("ext4", "ro"), false))
}

// TestSELinuxLabel: the label that kubelet asks for reaches mount(8) as one
// option, its comma included. (Where SELinux is off, as in most kernels that
// tests run on, mount(8) then leaves it out.)
func TestSELinuxLabel(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 64)
	real, err := exec.LookPath("mount")
	must(t, err)
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$@\" >%s\nexec %s \"$@\"\n", b.path("argv"), real)
	must(t, os.Mkdir(b.path("bin"), 0o755))
	must(t, os.WriteFile(b.path("bin/mount"), []byte(script), 0o755))
	t.Setenv("PATH", b.path("bin")+":"+os.Getenv("PATH"))
	const context = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	label := mountOf("ext4", context, "noatime")
	must(t, b.stage(volumeA, label))
	argv, err := os.ReadFile(b.path("argv"))
	must(t, err)
	if want := context + ",noatime,defaults"; !slices.Contains(strings.Split(string(argv), "\n"), want) {
		t.Errorf("mount was called with\n%swant an argument %s", argv, want)
	}
	must(t, b.stage(volumeA, label))
	must(t, b.publish(volumeA, "pod", label, false))
	must(t, b.publish(volumeA, "pod", label, false))
}

// health is the one condition of a volume as the node tells it, "" for none.
func (b *bench) health(volume string, staged bool) string {
	b.t.Helper()
	req := &csi.NodeGetVolumeHealthRequest{VolumeId: volume}
	if staged {
		req.StagingTargetPath = b.path("stage-" + volume)
	}
	answer, err := b.node.NodeGetVolumeHealth(b.t.Context(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	text := ""
	for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
		text += s.GetStatus().String() + " " + s.GetReason()
	}
	return text
}

// A volume's health is asked for with and without paths, staged and not.
func TestNodeVolumeHealth(t *testing.T) {
	b := newBench(t)
	b.attach(volumeA, 64)
	for _, staged := range []bool{false, true} {
		if got := b.health(volumeA, staged); got != "" {
			t.Errorf("attached, nothing staged: %q", got)
		}
	}
	must(t, b.stage(volumeA, mountOf("ext4")))
	for _, staged := range []bool{false, true} {
		if got := b.health(volumeA, staged); got != "" {
			t.Errorf("staged: %q", got)
		}
	}
	_, err := b.node.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeB, StagingTargetPath: b.path("stage-" + volumeA)})
	wantCode(t, err, codes.NotFound, volumeB)
	_, err = b.node.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{})
	wantCode(t, err, codes.InvalidArgument, "volume_id")
}
