package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func (d *demo) manifest(file string) string {
	return filepath.Join(d.Root, "test", "demo", "manifests", file)
}

func decode(manifest []byte, into any) error {
	if err := json.Unmarshal(manifest, into); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

func (d *demo) snapshot(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "snapshot.yaml"); err != nil {
		return nil, err
	}
	snapshot, err := d.waitSnapshot(ctx, "data-copy")
	if err != nil {
		return nil, err
	}
	var content snapshotv1.VolumeSnapshotContent
	if err := d.Client.Get(ctx, client.ObjectKey{Name: *snapshot.Status.BoundVolumeSnapshotContentName}, &content); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("snapshot %s of %s, %s, taken %s", *content.Status.SnapshotHandle, d.volumeID,
		snapshot.Status.RestoreSize, snapshot.Status.CreationTime.UTC().Format("15:04:05Z"))}, nil
}

func (d *demo) restore(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "restore.yaml"); err != nil {
		return nil, err
	}
	if _, err := d.WaitPodReady(ctx, namespace, "reader", patience); err != nil {
		return nil, err
	}
	pv, err := d.persistentVolume(ctx, "restored")
	if err != nil {
		return nil, err
	}
	if pv.Spec.CSI.VolumeHandle == d.volumeID {
		return nil, fmt.Errorf("the restored claim has the source's volume %s", d.volumeID)
	}
	return []string{fmt.Sprintf("volume %s made from the snapshot; checksum equal", pv.Spec.CSI.VolumeHandle)}, d.same(ctx, "reader")
}

func (d *demo) growExt4(ctx context.Context) ([]string, error) {
	may, err := mayGrowMountedExt4()
	if err != nil {
		return nil, err
	}
	if !may {
		return []string{"this machine withholds CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4;",
			"`make test-node` shows it in a VM, here only xfs can be shown"}, nil
	}
	return d.grow(ctx, "ext4", "grow-ext4.yaml", "growing-ext4", "grower-ext4")
}

// mayGrowMountedExt4 tells whether this machine has CAP_SYS_RESOURCE, which
// EXT4_IOC_RESIZE_FS asks for (fs/ext4/ioctl.c).
func mayGrowMountedExt4() (bool, error) {
	set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("ask for CAP_SYS_RESOURCE: %w", err)
	}
	return set == 1, nil
}

func (d *demo) grow(ctx context.Context, fs, file, claim, pod string) ([]string, error) {
	if err := d.apply(ctx, file); err != nil {
		return nil, err
	}
	before, err := d.WaitPodReady(ctx, namespace, pod, patience)
	if err != nil {
		return nil, err
	}
	sizeBefore, err := d.df(ctx, pod)
	if err != nil {
		return nil, err
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`))
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim}}
	if err := d.Client.Patch(ctx, c, patch); err != nil {
		return nil, err
	}
	sizeAfter := sizeBefore
	err = testenv.Eventually(ctx, patience, "claim "+claim+" grown to 2Gi", func(ctx context.Context) (string, error) {
		if err := d.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if got := c.Status.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse("2Gi")) < 0 {
			return "capacity " + got.String(), nil
		}
		var err error
		if sizeAfter, err = d.df(ctx, pod); err != nil {
			return "", err
		}
		if sizeAfter < sizeBefore*3/2 {
			return fmt.Sprintf("df still shows %d KiB", sizeAfter), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	after, err := d.WaitPodReady(ctx, namespace, pod, patience)
	if err != nil {
		return nil, err
	}
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		return nil, errors.New("the Pod was restarted on the way")
	}
	return []string{fmt.Sprintf("df /data (%s): %d KiB before, %d KiB after, the Pod ran on", fs, sizeBefore, sizeAfter)}, nil
}

// df is the size of /data in KiB as the Pod sees it.
func (d *demo) df(ctx context.Context, pod string) (int64, error) {
	out, err := d.Exec(ctx, namespace, pod, "df", "-k", "/data")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(out, "\n")
	columns := strings.Fields(lines[len(lines)-1])
	if len(columns) < 6 {
		return 0, fmt.Errorf("df said %q", out)
	}
	return strconv.ParseInt(columns[1], 10, 64)
}

func (d *demo) setUp(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "statefulset.yaml"); err != nil {
		return nil, err
	}
	ids, err := d.ids(ctx, 3)
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// ids waits for the set's replicas and tells what each has on its volume.
func (d *demo) ids(ctx context.Context, replicas int) ([]string, error) {
	var seen []string
	for i := range replicas {
		pod, claim := fmt.Sprintf("db-%d", i), fmt.Sprintf("data-db-%d", i)
		if _, err := d.WaitPodReady(ctx, namespace, pod, patience); err != nil {
			return nil, err
		}
		id, err := d.Exec(ctx, namespace, pod, "cat", "/data/id")
		if err != nil {
			return nil, err
		}
		pv, err := d.persistentVolume(ctx, claim)
		if err != nil {
			return nil, err
		}
		seen = append(seen, fmt.Sprintf("%s: claim %s, volume %s, content %s", pod, claim, pv.Spec.CSI.VolumeHandle, id))
	}
	return seen, nil
}

func (d *demo) scale(ctx context.Context) ([]string, error) {
	before, err := d.ids(ctx, 3)
	if err != nil {
		return nil, err
	}
	if err := d.scaleTo(ctx, 1); err != nil {
		return nil, err
	}
	for _, pod := range []string{"db-1", "db-2"} {
		if err := d.WaitGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}}, patience); err != nil {
			return nil, err
		}
		if _, err := d.persistentVolume(ctx, "data-"+pod); err != nil {
			return nil, fmt.Errorf("after scaling down: %w", err)
		}
	}
	if err := d.scaleTo(ctx, 3); err != nil {
		return nil, err
	}
	after, err := d.ids(ctx, 3)
	if err != nil {
		return nil, err
	}
	if strings.Join(before, "\n") != strings.Join(after, "\n") {
		return after, fmt.Errorf("claims or content changed, before: %s", strings.Join(before, "; "))
	}
	return after, nil
}

func (d *demo) scaleTo(ctx context.Context, replicas int) error {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
	return d.Client.Patch(ctx, set, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
}

func (d *demo) deleteAll(ctx context.Context) ([]string, error) {
	before, err := d.volumesOfCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.deleteNamespace(ctx); err != nil {
		return nil, err
	}
	err = testenv.Eventually(ctx, patience, "no volume of the demo left in EC2", func(ctx context.Context) (string, error) {
		left, err := d.volumesOfCluster(ctx)
		if err != nil {
			return "", err
		}
		var ids []string
		for _, v := range left {
			ids = append(ids, aws.ToString(v.VolumeId))
		}
		return strings.Join(ids, ", "), nil
	})
	return []string{fmt.Sprintf("%d volumes were there, none is left", len(before))}, err
}
