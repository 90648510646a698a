//go:build e2e

package examples

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func claimAndPod(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Event("data", "WaitForFirstConsumer")
	if phase := x.Run("-n", x.Namespace, "get", "pvc", "data", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("claim is %s before there is a Pod, want Pending", phase)
	}
	x.apply("30")
	pod := x.Ready("app")
	pv := x.PV("data")
	v := x.Volume(pv.Spec.CSI.VolumeHandle)
	if v.VolumeType != types.VolumeTypeGp3 || !aws.ToBool(v.Encrypted) || aws.ToInt32(v.Size) != 1 {
		t.Errorf("volume is %s of %d GiB, encrypted %v; want gp3, 1 GiB, encrypted", v.VolumeType, aws.ToInt32(v.Size), aws.ToBool(v.Encrypted))
	}
	zone := x.ZoneOf(pod.Spec.NodeName)
	if got := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]; got.Key != corev1.LabelTopologyZone || got.Values[0] != zone {
		t.Errorf("PersistentVolume is bound to %+v, want %s=%s", got, corev1.LabelTopologyZone, zone)
	}
	x.In("app", "sync")
	before := x.In("app", "head", "-n", "1", "/data/out.txt")
	x.DeletePod("app")
	x.apply("30")
	x.Ready("app")
	if after := x.In("app", "head", "-n", "1", "/data/out.txt"); before == "" || after != before {
		t.Errorf("first line of /data/out.txt is %q after the Pod came back, %q before", after, before)
	}
}

func statefulSet(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/database", "--timeout=3m")
	claims := func() string {
		return x.Run("-n", x.Namespace, "get", "pvc", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.volumeName} {.metadata.uid}{\"\\n\"}{end}")
	}
	before := claims()
	sums := map[string]string{}
	for i := range 3 {
		pod := fmt.Sprintf("database-%d", i)
		if member := x.In(pod, "cat", "/var/lib/data/member"); member != pod {
			t.Errorf("%s has the volume of %s", pod, member)
		}
		sums[pod] = x.FillAndSum(pod, "/var/lib/data/blob", 4)
	}
	x.Run("-n", x.Namespace, "scale", "statefulset/database", "--replicas=1")
	for _, pod := range []string{"database-2", "database-1"} {
		x.Must(x.WaitGone(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: x.Namespace, Name: pod}}, stage.Patience))
	}
	if now := claims(); now != before {
		t.Errorf("claims after scaling down:\n%s\nbefore:\n%s", now, before)
	}
	x.Run("-n", x.Namespace, "scale", "statefulset/database", "--replicas=3")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/database", "--timeout=3m")
	if now := claims(); now != before {
		t.Errorf("claims after scaling up again:\n%s\nbefore:\n%s", now, before)
	}
	for pod, sum := range sums {
		if got := x.Sum(pod, "/var/lib/data/blob"); got != sum {
			t.Errorf("%s: checksum is %s, want %s", pod, got, sum)
		}
	}
	journal := x.In("database-2", "cat", "/var/lib/data/journal")
	if strings.Count(journal, "started ") != 2 || strings.Count(journal, "stopped ") != 1 {
		t.Errorf("journal of database-2 does not tell started, stopped, started:\n%s", journal)
	}
}

func snapshotAndRestore(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("writer")
	sum := x.Sum("writer", "/data/blob")
	x.apply("30")
	x.Run("-n", x.Namespace, "wait", "volumesnapshot/source-1", "--for=jsonpath={.status.readyToUse}=true", "--timeout=2m")
	x.In("writer", "sh", "-c", "echo later >/data/later; sync")
	x.snapshotTagged(x.VolumeID("source"))

	x.apply("40")
	x.Ready("reader") // the Pod's own promise: the checksum that the writer noted fits
	if got := x.Sum("reader", "/data/blob"); got != sum {
		t.Errorf("checksum of the restored file is %s, want %s", got, sum)
	}
	if out, err := x.Exec(t.Context(), x.Namespace, "reader", "cat", "/data/later"); err == nil {
		t.Errorf("what was written after the snapshot is in the restored volume: %q", out)
	}
	source, restored := x.VolumeID("source"), x.VolumeID("restored")
	if source == restored {
		t.Errorf("the restored claim has the source's own volume %s", source)
	}
	if !aws.ToBool(x.Volume(restored).Encrypted) {
		t.Errorf("volume %s, restored by a class that encrypts, is not encrypted", restored)
	}
	x.Run("-n", x.Namespace, "delete", "volumesnapshot", "source-1", "--timeout=1m")
	x.Eventually("snapshot of "+source+" gone from EC2", func(ctx context.Context) (string, error) {
		left, err := x.snapshotsOf(ctx, source)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return fmt.Sprintf("%s is left", aws.ToString(left[0].SnapshotId)), nil
	})
}

// snapshotTagged checks the tags that the driver and the class give a snapshot.
func (x *example) snapshotTagged(volume string) {
	x.T.Helper()
	snapshots, err := x.snapshotsOf(x.T.Context(), volume)
	x.Must(err)
	if len(snapshots) != 1 {
		x.T.Fatalf("EC2 has %d snapshots of %s, want 1", len(snapshots), volume)
	}
	uid := x.Run("-n", x.Namespace, "get", "volumesnapshot", "source-1", "-o", "jsonpath={.metadata.uid}")
	x.HasTags("snapshot", snapshots[0].Tags, map[string]string{
		"CSIVolumeSnapshotName":   "snapshot-" + uid,
		"ebs.csi.aws.com/cluster": "true",
		"Environment":             "example",
		"Claim":                   x.Namespace + "/source-1",
	})
}

func (x *example) snapshotsOf(ctx context.Context, volume string) ([]types.Snapshot, error) {
	out, err := x.EC2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{"self"},
		Filters:  []types.Filter{{Name: aws.String("volume-id"), Values: []string{volume}}},
	})
	if err != nil {
		return nil, err
	}
	return out.Snapshots, nil
}

func onlineExpansion(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	before := x.Ready("app")
	sum := x.FillAndSum("app", "/data/blob", 8)
	small := x.SizeKiB("app", "/data")
	x.apply("30")
	x.Grown("app", "data", "/data", "2Gi", small)
	after := x.Ready("app")
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod was restarted on the way")
	}
	if got := x.Sum("app", "/data/blob"); got != sum {
		t.Errorf("checksum after growing is %s, want %s", got, sum)
	}
	if v := x.Volume(x.VolumeID("data")); aws.ToInt32(v.Size) != 2 {
		t.Errorf("EC2 says %d GiB, want 2", aws.ToInt32(v.Size))
	}
}

func attributesClass(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	before := x.Ready("app")
	id := x.VolumeID("data")
	v := x.Volume(id)
	x.HasTags("made with its class", v.Tags, map[string]string{"tier": "silver"})
	small := x.SizeKiB("app", "/data")
	x.apply("30")
	x.Grown("app", "data", "/data", "2Gi", small)
	x.HasAttributes("data", "example-11-gold")
	v = x.Volume(id)
	if aws.ToInt32(v.Size) != 2 || aws.ToInt32(v.Throughput) != 250 {
		t.Errorf("volume has %d GiB, %d MiB/s; want 2, 250", aws.ToInt32(v.Size), aws.ToInt32(v.Throughput))
	}
	x.HasTags("after the change", v.Tags, map[string]string{"tier": "gold", "claim": "example-11/data"})
	x.OneModification(id)
	if after := x.Ready("app"); after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod was restarted on the way")
	}
}

func inTreeMigration(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	pod := x.Ready("app")
	pv := x.PV("data")
	v := x.Volume(x.VolumeID("data"))
	if v.VolumeType != types.VolumeTypeIo1 || aws.ToInt32(v.Iops) != 200 || !aws.ToBool(v.Encrypted) {
		t.Errorf("volume is %s with %d IOPS, encrypted %v; want io1, 200, encrypted", v.VolumeType, aws.ToInt32(v.Iops), aws.ToBool(v.Encrypted))
	}
	x.attachedBy(func(a *storagev1.VolumeAttachment) bool {
		return a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == pv.Name
	})

	zone := x.ZoneOf(pod.Spec.NodeName)
	made, err := x.EC2.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: &zone, Size: aws.Int32(1), VolumeType: types.VolumeTypeGp3})
	x.Must(err)
	id := aws.ToString(made.VolumeId)
	t.Cleanup(func() { x.deleteOwn(id) })
	x.applyWith("30", map[string]string{"VOLUME_ID": id, "ZONE": zone})
	x.Ready("inline")
	x.attachedBy(func(a *storagev1.VolumeAttachment) bool { return a.Spec.Source.InlineVolumeSpec != nil })
	sum := x.FillAndSum("inline", "/data/blob", 4)
	x.DeletePod("inline")
	x.Detached(id)
	x.applyWith("30", map[string]string{"VOLUME_ID": id, "ZONE": zone})
	x.Ready("inline")
	if got := x.Sum("inline", "/data/blob"); got != sum {
		t.Errorf("checksum on the inline volume is %s, want %s", got, sum)
	}
	x.DeletePod("inline")
	x.Detached(id)
}

// attachedBy holds that a VolumeAttachment exists that is the CSI driver's.
func (x *example) attachedBy(is func(*storagev1.VolumeAttachment) bool) {
	x.T.Helper()
	var all storagev1.VolumeAttachmentList
	x.Must(x.Client.List(x.T.Context(), &all))
	for i := range all.Items {
		if a := &all.Items[i]; is(a) {
			if a.Spec.Attacher != stage.Driver || !a.Status.Attached {
				x.T.Errorf("VolumeAttachment %s is of %s, attached %v; want %s, true", a.Name, a.Spec.Attacher, a.Status.Attached, stage.Driver)
			}
			return
		}
	}
	x.T.Errorf("no VolumeAttachment for the in-tree volume among %d", len(all.Items))
}

// deleteOwn deletes a volume that the test made itself.
func (x *example) deleteOwn(id string) {
	if _, err := x.EC2.DeleteVolume(context.Background(), &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
		x.T.Errorf("delete volume %s: %v", id, err)
	}
}

func wrongZone(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	at := x.Ready("app").Spec.NodeName
	id, zone := x.VolumeID("data"), x.ZoneOf(at)
	line := x.In("app", "head", "-n", "1", "/data/out.txt")
	other := ""
	for _, n := range x.Nodes() {
		if n.Zone != zone {
			other = n.Name
		}
	}
	x.DeletePod("app")
	x.applyWith("30", map[string]string{"NODE_NAME": other})
	why := x.Event("forced", "FailedAttachVolume", "InvalidVolume.ZoneMismatch")
	t.Log(why)
	for _, z := range []string{zone, x.ZoneOf(other)} {
		if !strings.Contains(why, z) {
			t.Errorf("the event does not name zone %s: %s", z, why)
		}
	}
	x.DeletePod("forced")
	x.apply("40")
	if node := x.Ready("cured").Spec.NodeName; x.ZoneOf(node) != zone {
		t.Errorf("the cured Pod is on %s in %s, want %s", node, x.ZoneOf(node), zone)
	}
	if got := x.In("cured", "head", "-n", "1", "/data/out.txt"); got != line {
		t.Errorf("first line is %q, want %q: another volume than %s?", got, line, id)
	}
}

func retainAndDelete(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("app")
	keep, scratch := x.PV("keep"), x.PV("scratch")
	x.DeletePod("app")
	x.Run("-n", x.Namespace, "delete", "pvc", "keep", "scratch")
	x.VolumeGone(scratch.Spec.CSI.VolumeHandle)
	x.Must(x.WaitGone(t.Context(), scratch, stage.Patience))
	x.Detached(keep.Spec.CSI.VolumeHandle)
	x.Released(keep)
	x.Run("patch", "pv", keep.Name, "--type=json", "-p", `[{"op":"remove","path":"/spec/claimRef"}]`)
	x.applyWith("30", map[string]string{"PV_NAME": keep.Name})
	x.Ready("reader") // the Pod's own promise: the note is there
	if got := x.PV("keep").Name; got != keep.Name {
		t.Errorf("the new claim has PersistentVolume %s, want %s", got, keep.Name)
	}
	x.Run("patch", "pv", keep.Name, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	x.DeletePod("reader")
	x.Run("-n", x.Namespace, "delete", "pvc", "keep")
	x.VolumeGone(keep.Spec.CSI.VolumeHandle)
}

func rawBlockAndReadOnly(t *testing.T, x *example) {
	x.apply("00", "10", "20", "30")
	x.Ready("raw") // the Pod's own promise: what was read is what was written
	if size := x.In("raw", "blockdev", "--getsize64", "/dev/volume"); size != "1073741824" {
		t.Errorf("the device has %s bytes, want 1 GiB", size)
	}
	x.Run("-n", x.Namespace, "wait", "pod/writer", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=2m")
	x.DeletePod("writer")
	x.apply("40")
	x.Ready("reader") // the Pod's own promise: the note is there, writing is refused
	if mounts := x.In("reader", "grep", " /data ", "/proc/mounts"); !strings.Contains(mounts, " ro,") {
		t.Errorf("/data is mounted %q, want read-only", mounts)
	}
}

func io2Database(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/database", "--timeout=2m")
	pv := x.PV("data-database-0")
	id := pv.Spec.CSI.VolumeHandle
	v := x.Volume(id)
	if v.VolumeType != types.VolumeTypeIo2 || aws.ToInt32(v.Iops) != 200 || !aws.ToBool(v.Encrypted) {
		t.Errorf("volume is %s with %d IOPS, encrypted %v; want io2, 200, encrypted", v.VolumeType, aws.ToInt32(v.Iops), aws.ToBool(v.Encrypted))
	}
	x.HasTags("volume", v.Tags, map[string]string{"team": "database", "claim": x.Namespace + "/data-database-0"})

	// the class retains: volume and PersistentVolume outlive the namespace
	x.Run("delete", "namespace", x.Namespace, "--timeout=2m")
	x.Detached(id)
	x.Released(pv)
	x.Delete(pv)
	if x.Volume(id).State != types.VolumeStateAvailable {
		t.Errorf("volume %s was touched when its PersistentVolume was deleted", id)
	}
	x.deleteOwn(id)
}

func filesystemOptions(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("app")
	for file, want := range map[string]string{
		"/small/made": "/small: blocks of 1024 bytes, 262144 inodes",
		"/large/made": "/large: blocks of 4096 bytes, 1024 inodes",
	} {
		if got := x.In("app", "cat", file); got != want {
			t.Errorf("the README says %q, it is %q", want, got)
		}
	}
	want := map[string]string{"bytesperinode": "1048576", "ext4bigalloc": "true", "ext4clustersize": "65536"}
	for key, value := range want {
		if got := x.PV("large-files").Spec.CSI.VolumeAttributes[key]; got != value {
			t.Errorf("the PersistentVolume has %s=%q, want %q", key, got, value)
		}
	}
}
