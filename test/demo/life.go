package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func (d *demo) claimWaits(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "claim.yaml"); err != nil {
		return nil, err
	}
	why, err := d.event(ctx, "data", "WaitForFirstConsumer")
	if err != nil {
		return nil, err
	}
	var claim corev1.PersistentVolumeClaim
	if err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "data"}, &claim); err != nil {
		return nil, err
	}
	volumes, err := d.volumesOfCluster(ctx)
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != corev1.ClaimPending || len(volumes) != 0 {
		return nil, fmt.Errorf("claim is %s and EC2 has %d volumes, want Pending and none", claim.Status.Phase, len(volumes))
	}
	return []string{"claim data: Pending; EC2 has no volume for it", why}, nil
}

func (d *demo) bound(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "pod.yaml"); err != nil {
		return nil, err
	}
	pv, err := d.persistentVolume(ctx, "data")
	if err != nil {
		return nil, err
	}
	d.volumeID = pv.Spec.CSI.VolumeHandle
	v, err := d.volume(ctx, d.volumeID)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("EC2 does not know volume %s of the PersistentVolume", d.volumeID)
	}
	zone := zonesOf(pv)
	if !slices.Equal(zone, []string{aws.ToString(v.AvailabilityZone)}) {
		return nil, fmt.Errorf("PersistentVolume allows zones %v, the volume is in %s", zone, aws.ToString(v.AvailabilityZone))
	}
	return []string{
		fmt.Sprintf("volume %s: %s, %d GiB, encrypted %t, in %s", d.volumeID, v.VolumeType, aws.ToInt32(v.Size), aws.ToBool(v.Encrypted), zone[0]),
		fmt.Sprintf("PersistentVolume %s: node affinity topology.kubernetes.io/zone in %v", pv.Name, zone),
	}, nil
}

// zonesOf are the zones that the node affinity of a PersistentVolume allows.
func zonesOf(pv *corev1.PersistentVolume) []string {
	var zones []string
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == corev1.LabelTopologyZone {
				zones = append(zones, e.Values...)
			}
		}
	}
	return zones
}

func (d *demo) attached(ctx context.Context) ([]string, error) {
	var seen []string
	err := testenv.Eventually(ctx, patience, "volume "+d.volumeID+" attached", func(ctx context.Context) (string, error) {
		attachment, err := d.attachmentOf(ctx, "data")
		if err != nil || attachment == nil || !attachment.Status.Attached {
			return "no VolumeAttachment that is attached", err
		}
		v, err := d.volume(ctx, d.volumeID)
		if err != nil || v == nil || len(v.Attachments) != 1 {
			return "EC2 shows no attachment", err
		}
		a := v.Attachments[0]
		seen = []string{
			fmt.Sprintf("VolumeAttachment on %s: attached, devicePath %s", attachment.Spec.NodeName, attachment.Status.AttachmentMetadata["devicePath"]),
			fmt.Sprintf("EC2: %s to %s as %s", a.State, aws.ToString(a.InstanceId), aws.ToString(a.Device)),
		}
		return "", nil
	})
	return seen, err
}

// attachmentOf finds the VolumeAttachment of a claim's volume, nil if there is none.
func (d *demo) attachmentOf(ctx context.Context, claim string) (*storagev1.VolumeAttachment, error) {
	pv, err := d.persistentVolume(ctx, claim)
	if err != nil {
		return nil, err
	}
	var all storagev1.VolumeAttachmentList
	if err := d.Client.List(ctx, &all); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if name := all.Items[i].Spec.Source.PersistentVolumeName; name != nil && *name == pv.Name {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}

func (d *demo) mounted(ctx context.Context) ([]string, error) {
	if _, err := d.WaitPodReady(ctx, namespace, "writer", patience); err != nil {
		return nil, err
	}
	mount, err := d.Exec(ctx, namespace, "writer", "grep", " /data ", "/proc/mounts")
	if err != nil {
		return nil, err
	}
	if !strings.Contains(mount, " ext4 ") {
		return nil, fmt.Errorf("/data is not ext4: %s", mount)
	}
	return []string{mount}, nil
}

func (d *demo) write(ctx context.Context) ([]string, error) {
	if _, err := d.Exec(ctx, namespace, "writer", "sh", "-c", "dd if=/dev/urandom of=/data/file bs=1M count=16 2>/dev/null && sync"); err != nil {
		return nil, err
	}
	var err error
	d.checksum, err = d.sum(ctx, "writer")
	return []string{"16 MiB, sha256 " + d.checksum}, err
}

func (d *demo) sum(ctx context.Context, pod string) (string, error) {
	out, err := d.Exec(ctx, namespace, pod, "sha256sum", "/data/file")
	if err != nil {
		return "", err
	}
	sum, _, _ := strings.Cut(out, " ")
	if len(sum) != 64 {
		return "", fmt.Errorf("sha256sum in pod %s said %q", pod, out)
	}
	return sum, nil
}

// same fails unless the file in the Pod has the checksum that was written.
func (d *demo) same(ctx context.Context, pod string) error {
	got, err := d.sum(ctx, pod)
	if err != nil {
		return err
	}
	if got != d.checksum {
		return fmt.Errorf("data differs in pod %s: sha256 %s, written was %s", pod, got, d.checksum)
	}
	return nil
}

// writerNode is the node that the Pod writer runs on.
func (d *demo) writerNode(ctx context.Context) (string, error) {
	p, err := d.WaitPodReady(ctx, namespace, "writer", patience)
	if err != nil {
		return "", err
	}
	return p.Spec.NodeName, nil
}

func (d *demo) zoneOf(node string) string {
	for _, n := range d.Nodes() {
		if n.Name == node {
			return n.Zone
		}
	}
	return ""
}

func (d *demo) move(ctx context.Context) ([]string, error) {
	from, err := d.writerNode(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := d.Kubectl(ctx, "cordon", from); err != nil {
		return nil, err
	}
	if err := d.deletePod(ctx, "writer"); err != nil {
		return nil, err
	}
	if err := d.apply(ctx, "pod.yaml"); err != nil {
		return nil, err
	}
	to, err := d.writerNode(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := d.Kubectl(ctx, "uncordon", from); err != nil {
		return nil, err
	}
	if to == from || d.zoneOf(to) != d.zoneOf(from) {
		return nil, fmt.Errorf("pod went from %s (%s) to %s (%s), want another node of the same zone", from, d.zoneOf(from), to, d.zoneOf(to))
	}
	return []string{fmt.Sprintf("from %s to %s, both in %s; checksum equal", from, to, d.zoneOf(to))}, d.same(ctx, "writer")
}

func (d *demo) wrongZone(ctx context.Context) ([]string, error) {
	at, err := d.writerNode(ctx)
	if err != nil {
		return nil, err
	}
	other := ""
	for _, n := range d.Nodes() {
		if n.Zone != d.zoneOf(at) {
			other = n.Name
		}
	}
	if err := d.deletePod(ctx, "writer"); err != nil {
		return nil, err
	}
	if err := d.forcePod(ctx, other); err != nil {
		return nil, err
	}
	why, err := d.event(ctx, "writer", "FailedAttachVolume", "InvalidVolume.ZoneMismatch")
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("nodeName: %s (%s), the volume is in %s", other, d.zoneOf(other), d.zoneOf(at)), why}, nil
}

// forcePod makes the Pod writer on a node, past the scheduler.
func (d *demo) forcePod(ctx context.Context, node string) error {
	manifest, err := d.Kubectl(ctx, "create", "--dry-run=client", "-o", "json", "-f", d.manifest("pod.yaml"))
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := decode(manifest, pod); err != nil {
		return err
	}
	pod.Spec.NodeName = node
	return d.Client.Create(ctx, pod)
}

func (d *demo) rightZone(ctx context.Context) ([]string, error) {
	if err := d.deletePod(ctx, "writer"); err != nil {
		return nil, err
	}
	if err := d.apply(ctx, "pod.yaml"); err != nil {
		return nil, err
	}
	node, err := d.writerNode(ctx)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("without nodeName the Pod runs on %s (%s); checksum equal", node, d.zoneOf(node))}, d.same(ctx, "writer")
}

func (d *demo) typo(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "claim-typo.yaml"); err != nil {
		return nil, err
	}
	why, err := d.event(ctx, "typo", "ProvisioningFailed", "encrypted", "yes", "true", "false")
	if err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "typo"}}
	return []string{why}, d.Client.Delete(ctx, claim)
}
