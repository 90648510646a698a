//go:build e2e

package volumes

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// inTree makes a class one from before CSI, whose volumes are made at once.
func inTree(c *storagev1.StorageClass) {
	c.Provisioner = "kubernetes.io/aws-ebs"
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
}

// Classes of the in-tree plugin, as they are found in clusters, are csi-provisioner's
// to translate and ours to understand.
func TestInTreeClassBecomesVolume(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	nodes := s.Nodes()
	last := nodes[len(nodes)-1].Zone
	const key = "arn:aws:kms:us-east-1:000000000000:key/in-tree"
	for name, tc := range map[string]struct {
		why        string
		parameters map[string]string
		size       string
		want       types.Volume
		zone, key  string
	}{
		"zone": {
			why:        "one zone, by name",
			parameters: map[string]string{"type": "gp2", "zone": last},
			size:       "1Gi",
			want:       volume(1, types.VolumeTypeGp2, 100, 0, false),
			zone:       last,
		},
		"zones": {
			why:        "a list of zones",
			parameters: map[string]string{"type": "gp2", "zones": last},
			size:       "1Gi",
			want:       volume(1, types.VolumeTypeGp2, 100, 0, false),
			zone:       last,
		},
		"iops": {
			why:        "IOPS below the type's least are raised, as the plugin did",
			parameters: map[string]string{"type": "io1", "iopsPerGB": "10", "fsType": "ext4"},
			size:       "4Gi",
			want:       volume(4, types.VolumeTypeIo1, 100, 0, false),
		},
		"gp2-iops": {
			why:        "IOPS that gp2 does not have are ignored, as the plugin did",
			parameters: map[string]string{"type": "gp2", "iopsPerGB": "10", "fsType": "ext4"},
			size:       "4Gi",
			want:       volume(4, types.VolumeTypeGp2, 100, 0, false),
		},
		"key": {
			why:        "encrypted with a key",
			parameters: map[string]string{"type": "gp2", "encrypted": "true", "kmsKeyId": key},
			size:       "1Gi",
			want:       volume(1, types.VolumeTypeGp2, 100, 0, true),
			key:        key,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.With(t)
			s.Claim(name, s.Class(name, tc.parameters, inTree), tc.size)
			got := s.Volume(s.VolumeID(name))
			if g, w := shape(got), shape(tc.want); g != w {
				t.Errorf("%s: EC2 has %+v, want %+v", tc.why, g, w)
			}
			if zone := aws.ToString(got.AvailabilityZone); tc.zone != "" && zone != tc.zone {
				t.Errorf("%s: the volume is in %s, want %s", tc.why, zone, tc.zone)
			}
			if key := aws.ToString(got.KmsKeyId); tc.key != "" && key != tc.key {
				t.Errorf("%s: the volume's key is %s, want %s", tc.why, key, tc.key)
			}
		})
	}
}

// Filesystem and mount options of an in-tree class reach the Pod.
func TestInTreeClassIsMounted(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("mounted", map[string]string{"type": "gp2", "fsType": "xfs"}, func(c *storagev1.StorageClass) {
		inTree(c)
		c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		c.MountOptions = []string{"noatime"}
	})
	s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	s.Ready("app")
	if mounts := s.In("app", "grep", " /data ", "/proc/mounts"); !strings.Contains(mounts, " xfs ") || !strings.Contains(mounts, "noatime") {
		t.Errorf("/data is mounted %q, want xfs with noatime", mounts)
	}
}
