package stage

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// NothingLeft waits until nothing is left that nothing refers to: EC2 has a volume
// for each PersistentVolume and no other, a snapshot for each
// VolumeSnapshotContent, an attachment for each VolumeAttachment, the machine
// a loop device for each attachment, and no node a mount of a volume that is
// not attached to it. Tests that run beside others cannot ask for it.
// It may be called when the test is over.
func (s *Stage) NothingLeft() {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := noLeak(ctx, s.Cluster, s.Sim); err != nil {
		s.T.Error(err)
	}
}

func noLeak(ctx context.Context, c *testenv.Cluster, sim Sim) error {
	return testenv.Eventually(ctx, Patience, "nothing left over in EC2 or on a node", func(ctx context.Context) (string, error) {
		wanted, err := wantedBy(ctx, c)
		if err != nil {
			return "", err
		}
		state, err := sim.State(ctx)
		if err != nil {
			return "", err
		}
		trouble := compare(wanted, inEC2(state))
		nodes, err := onNodes(ctx, c, wanted)
		if err != nil {
			return "", err
		}
		all, err := loops()
		if err != nil {
			return "", err
		}
		machine := onMachine(all, filepath.Dir(c.Kubeconfig()), state)
		return strings.Join(slices.Concat(trouble, nodes, machine), "\n  "), nil
	})
}

// belongings are ids of volumes and snapshots, and attachments as
// "vol-… at i-…".
type belongings struct{ volumes, snapshots, attachments []string }

// wantedBy is what the objects of the cluster stand for.
func wantedBy(ctx context.Context, c *testenv.Cluster) (belongings, error) {
	var b belongings
	var pvs corev1.PersistentVolumeList
	var contents snapshotv1.VolumeSnapshotContentList
	var attachments storagev1.VolumeAttachmentList
	if err := errors.Join(c.Client.List(ctx, &pvs), c.Client.List(ctx, &contents), c.Client.List(ctx, &attachments)); err != nil {
		return b, err
	}
	handles := map[string]string{}
	for i := range pvs.Items {
		if id := handle(&pvs.Items[i]); id != "" {
			handles[pvs.Items[i].Name] = id
			b.volumes = append(b.volumes, id)
		}
	}
	for _, content := range contents.Items {
		if content.Status != nil && content.Status.SnapshotHandle != nil {
			b.snapshots = append(b.snapshots, *content.Status.SnapshotHandle)
		}
	}
	instances := map[string]string{}
	for _, n := range c.Nodes() {
		instances[n.Name] = n.InstanceID
	}
	for _, a := range attachments.Items {
		if a.Spec.Attacher != Driver {
			continue
		}
		b.attachments = append(b.attachments, attachedVolume(&a, handles)+" at "+instances[a.Spec.NodeName])
	}
	return b, nil
}

func attachedVolume(a *storagev1.VolumeAttachment, handles map[string]string) string {
	if a.Spec.Source.PersistentVolumeName != nil {
		return handles[*a.Spec.Source.PersistentVolumeName]
	}
	// an inline volume, translated
	return handle(&corev1.PersistentVolume{Spec: *a.Spec.Source.InlineVolumeSpec})
}

// inEC2 is what EC2 has; the state does not list the instances' own root disks.
func inEC2(state ec2sim.State) belongings {
	var b belongings
	for _, v := range state.Volumes {
		b.volumes = append(b.volumes, v.ID)
		for _, a := range v.Attachments {
			b.attachments = append(b.attachments, v.ID+" at "+a.InstanceID)
		}
	}
	for _, sn := range state.Snapshots {
		b.snapshots = append(b.snapshots, sn.ID)
	}
	return b
}

func compare(wanted, have belongings) []string {
	return slices.Concat(
		difference("volume", "PersistentVolume", wanted.volumes, have.volumes),
		difference("snapshot", "VolumeSnapshotContent", wanted.snapshots, have.snapshots),
		difference("attachment", "VolumeAttachment", wanted.attachments, have.attachments))
}

func difference(what, object string, wanted, have []string) []string {
	var trouble []string
	for _, id := range have {
		if !slices.Contains(wanted, id) {
			trouble = append(trouble, fmt.Sprintf("%s %s is in EC2 and no %s names it", what, id, object))
		}
	}
	for _, id := range wanted {
		if !slices.Contains(have, id) {
			trouble = append(trouble, fmt.Sprintf("a %s names %s %s, which EC2 does not have", object, what, id))
		}
	}
	return trouble
}

// csiDir is where kubelet has CSI volumes staged, a folder each that is named
// after the hash of the volume's handle (kubernetes/pkg/volume/csi/csi_attacher.go).
const csiDir = "/var/lib/kubelet/plugins/kubernetes.io/csi/"

// onNodes tells of mounts on the nodes that belong to no attachment.
func onNodes(ctx context.Context, c *testenv.Cluster, wanted belongings) ([]string, error) {
	var trouble []string
	for _, n := range c.Nodes() {
		mounts, err := c.NodeCommand(ctx, n.Name, "cat", "/proc/mounts")
		if err != nil {
			return nil, fmt.Errorf("mounts of %s: %w", n.Name, err)
		}
		trouble = append(trouble, strayMounts(n.Name, n.InstanceID, mounts, wanted)...)
	}
	return trouble, nil
}

// strayMounts are a node's mounts of CSI volumes that are not attached to it.
func strayMounts(node, instance string, mounts []byte, wanted belongings) []string {
	var trouble []string
	for _, target := range mountTargets(mounts) {
		if strings.HasPrefix(target, csiDir) && !staged(target, instance, wanted) {
			trouble = append(trouble, fmt.Sprintf("node %s: %s is mounted and its volume is not attached", node, target))
		}
	}
	return trouble
}

func staged(target, instance string, wanted belongings) bool {
	for _, a := range wanted.attachments {
		volume, at, _ := strings.Cut(a, " at ")
		if at == instance && (strings.Contains(target, hash(volume)) || strings.Contains(target, "volumeDevices")) {
			return true
		}
	}
	return false
}

func hash(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return hex.EncodeToString(sum[:])
}

// mountTargets are the mount points in the text of /proc/mounts.
func mountTargets(mounts []byte) []string {
	var targets []string
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 {
			targets = append(targets, f[1])
		}
	}
	return targets
}

// loop is a loop device of this machine and the file it is on.
type loop struct{ device, file string }

// loops are the machine's loop devices.
func loops() ([]loop, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var all []loop
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // detached meanwhile
		}
		all = append(all, loop{filepath.Base(filepath.Dir(filepath.Dir(f))), strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")})
	}
	return all, nil
}

// onMachine tells of loop devices on this sandbox's disks whose volume is not
// attached. Other sandboxes' loop devices are no business of ours.
func onMachine(all []loop, stateDir string, state ec2sim.State) []string {
	attached := map[string]bool{}
	for _, v := range state.Volumes {
		attached[v.ID] = len(v.Attachments) > 0
	}
	disks := filepath.Join(stateDir, "ec2", "volumes")
	var trouble []string
	for _, l := range all {
		id := strings.TrimSuffix(filepath.Base(l.file), ".img")
		if filepath.Dir(l.file) == disks && !attached[id] {
			trouble = append(trouble, fmt.Sprintf("%s is on the disk of volume %s, which is not attached", l.device, id))
		}
	}
	return trouble
}
