//go:build e2e

package volumes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A class, a claim and a Pod become a tagged volume with a filesystem.
func TestClaimAndPod(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs", "ext3"} {
		t.Run(fs, func(t *testing.T) {
			t.Parallel()
			s := stage.New(t)
			class := s.Class("gp3", map[string]string{
				"csi.storage.k8s.io/fstype": fs,
				"encrypted":                 "true",
				"tagSpecification_1":        "owner={{ .PVCNamespace }}",
			})
			s.Claim("data", class, "1Gi")
			s.Pod("app", "data")
			pod := s.Ready("app")
			pv := s.PV("data")
			v := s.Volume(pv.Spec.CSI.VolumeHandle)
			// the tags that dashboards and IAM policies of the AWS driver's users rest on
			s.HasTags("volume", v.Tags, map[string]string{
				"CSIVolumeName":                           pv.Name,
				"ebs.csi.aws.com/cluster":                 "true",
				"kubernetes.io/created-for/pvc/name":      "data",
				"kubernetes.io/created-for/pvc/namespace": s.Namespace,
				"kubernetes.io/created-for/pv/name":       pv.Name,
				"owner":                                   s.Namespace,
			})
			if zone := s.ZoneOf(pod.Spec.NodeName); *v.AvailabilityZone != zone || !*v.Encrypted {
				t.Errorf("volume is in %s, encrypted %v; the pod's node %s is in %s, want there and encrypted",
					*v.AvailabilityZone, *v.Encrypted, pod.Spec.NodeName, zone)
			}
			if got := mountOf(s, "app", "/data").kind; got != fs {
				t.Errorf("/data is %s, want %s", got, fs)
			}
			sum := s.FillAndSum("app", "/data/file", 8)
			s.DeletePod("app")
			s.Pod("again", "data")
			s.Ready("again")
			if got := s.Sum("again", "/data/file"); got != sum {
				t.Errorf("checksum after the next mount is %s, want %s", got, sum)
			}
		})
	}
}

// mount is a line of /proc/mounts.
type mount struct{ device, target, kind, options string }

func mountOf(s *stage.Stage, pod, target string) mount {
	s.T.Helper()
	text := s.In(pod, "cat", "/proc/mounts")
	for line := range strings.SplitSeq(text, "\n") {
		if f := strings.Fields(line); len(f) > 3 && f[1] == target {
			return mount{f[0], f[1], f[2], f[3]}
		}
	}
	s.T.Fatalf("nothing is mounted at %s in pod %s:\n%s", target, pod, text)
	return mount{}
}

func (m mount) has(option string) bool {
	return strings.Contains(","+m.options+",", ","+option+",")
}

func TestRawBlock(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("disk", s.Class("gp3", nil), "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	})
	first := s.Pod("first", "disk", asDevice)
	s.Ready(first.Name)
	if size := s.In("first", "blockdev", "--getsize64", "/dev/disk"); size != "1073741824" {
		t.Errorf("the device has %s bytes, want 1 GiB", size)
	}
	// at the start and at the very end, past where a filesystem's label would be
	write := "dd if=/dev/urandom of=/tmp/piece bs=4096 count=16 2>/dev/null;" +
		"for at in 0 262128; do dd if=/tmp/piece of=/dev/disk bs=4096 seek=$at conv=notrunc 2>/dev/null; done; sync; sha256sum </tmp/piece"
	sum := s.In("first", "sh", "-c", write)
	s.DeletePod("first")
	s.Pod("second", "disk", asDevice)
	s.Ready("second")
	for _, at := range []string{"0", "262128"} {
		got := s.In("second", "sh", "-c", "dd if=/dev/disk bs=4096 count=16 skip="+at+" 2>/dev/null | sha256sum")
		if got != sum {
			t.Errorf("checksum of the blocks at %s after the next attachment is %s, want %s", at, got, sum)
		}
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("gp3", nil), "1Gi")
	s.Pod("writer", "data")
	s.Ready("writer")
	sum := s.FillAndSum("writer", "/data/file", 4)
	s.DeletePod("writer")
	s.Pod("reader", "data", func(p *corev1.Pod) {
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	})
	s.Ready("reader")
	if m := mountOf(s, "reader", "/data"); !m.has("ro") {
		t.Errorf("/data is mounted %s, want ro", m.options)
	}
	if got := s.Sum("reader", "/data/file"); got != sum {
		t.Errorf("checksum in the reader is %s, want %s", got, sum)
	}
	if out, err := s.Exec(t.Context(), s.Namespace, "reader", "touch", "/data/more"); err == nil || !strings.Contains(out+err.Error(), "Read-only") {
		t.Errorf("writing into the read-only mount: %q, %v; want Read-only file system", out, err)
	}
}

func TestFSGroup(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "1Gi")
	s.Pod("app", "data", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1001), RunAsGroup: ptr.To[int64](1001), FSGroup: ptr.To[int64](2002),
		}
	})
	s.Ready("app")
	if got := s.In("app", "stat", "-c", "%g %A", "/data"); !strings.HasPrefix(got, "2002 drwxrws") {
		t.Errorf("/data is %q, want group 2002 with write and set-group-id", got)
	}
	if got := s.In("app", "sh", "-c", "echo written >/data/file && stat -c '%u %g' /data/file"); got != "1001 2002" {
		t.Errorf("a new file belongs to %q, want user 1001 and group 2002", got)
	}
}

func TestMountOptions(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("noatime", map[string]string{"csi.storage.k8s.io/fstype": "ext4"}, func(c *storagev1.StorageClass) {
		c.MountOptions = []string{"noatime", "commit=17"}
	})
	s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	s.Ready("app")
	m := mountOf(s, "app", "/data")
	for _, option := range []string{"noatime", "commit=17"} {
		if !m.has(option) {
			t.Errorf("/data is mounted %s, want %s among the options", m.options, option)
		}
	}
}

// ReadWriteOncePod gives the claim to one Pod only.
func TestReadWriteOncePod(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("gp3", nil), "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	s.Pod("only", "data")
	pod := s.Ready("only")
	s.Pod("other", "data", stage.OnNode(pod.Spec.NodeName))
	s.T.Log(s.Event("other", "FailedScheduling", "ReadWriteOncePod"))
	s.DeletePod("only")
	s.Ready("other")
}

// Kubelet tells how full a volume is.
func TestVolumeStats(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "1Gi")
	s.Pod("app", "data")
	node := s.Ready("app").Spec.NodeName
	want := fmt.Sprintf(`kubelet_volume_stats_capacity_bytes{namespace="%s",persistentvolumeclaim="data"}`, s.Namespace)
	s.Eventually("kubelet's figures of the volume", kubeletMetric(s, node, want))
}

// kubeletMetric looks for a metric on a node's kubelet.
func kubeletMetric(s *stage.Stage, node, series string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/metrics")
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(out), series) {
			return "no " + series, nil
		}
		return "", nil
	}
}
