//go:build e2e

package volumes

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A claim's event is where its owner learns what is wrong with the class.
func TestWrongClassIsExplained(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	for name, tc := range map[string]struct {
		why        string
		parameters map[string]string
		size       string
		event      []string
	}{
		"unknown-key": {
			why:        "a key with a slip of the pen is not ignored",
			parameters: map[string]string{"type": "gp3", "iopPerGB": "10"},
			event:      []string{"iopPerGB", "iopsPerGB"},
		},
		"encrypted-yes": {
			why:        "never silently unencrypted",
			parameters: map[string]string{"encrypted": "yes"},
			event:      []string{"encrypted", "yes", "true", "false"},
		},
		"type": {
			why:        "the volume types are named",
			parameters: map[string]string{"type": "gp9"},
			event:      []string{"type", "gp9", "gp3", "io2"},
		},
		"iops-and-per-gb": {
			why:        "one of them would be ignored",
			parameters: map[string]string{"type": "io2", "iops": "1000", "iopsPerGB": "10"},
			event:      []string{"iops", "iopsPerGB"},
		},
		"iops-too-many": {
			why:        "the limit of the type is told",
			parameters: map[string]string{"type": "gp3", "iops": "90000"},
			event:      []string{"iops", "90000", "80000"},
		},
		"throughput": {
			why:        "only gp3 has a throughput to set",
			parameters: map[string]string{"type": "gp2", "throughput": "200"},
			event:      []string{"throughput", "gp2", "gp3"},
		},
		"fstype": {
			why:        "a filesystem that the node cannot make is refused before a volume is made",
			parameters: map[string]string{"csi.storage.k8s.io/fstype": "zfs"},
			event:      []string{"zfs", "ext4", "xfs"},
		},
		"xfs-bigalloc": {
			why:        "what mkfs would refuse on the node is told before a volume is made",
			parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs", "ext4BigAlloc": "true"},
			event:      []string{"ext4BigAlloc", "xfs"},
		},
		"block-size": {
			why:        "the sizes that mkfs knows are told",
			parameters: map[string]string{"blockSize": "4000"},
			event:      []string{"blockSize", "4000", "1024", "65536"},
		},
		"fetch-rate": {
			why:        "the limits of EC2 are told",
			parameters: map[string]string{"volumeInitializationRate": "50"},
			event:      []string{"volumeInitializationRate", "50", "100", "300"},
		},
		"reserved-tag": {
			why:        "tags of AWS's own cannot be set",
			parameters: map[string]string{"tagSpecification_1": "aws:owner=me"},
			event:      []string{"tagSpecification_1", "aws:"},
		},
		"size": {
			why:        "a size that the type does not offer",
			parameters: map[string]string{"type": "st1"},
			event:      []string{"st1", "125"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.With(t)
			class := s.Class(name, tc.parameters, func(c *storagev1.StorageClass) {
				c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
			})
			claim := s.Claim(name, class, "1Gi")
			t.Logf("%s\n  %s", tc.why, s.Event(name, append([]string{"ProvisioningFailed"}, tc.event...)...))
			if made := s.Named("pvc-" + string(claim.UID)); len(made) != 0 {
				t.Errorf("%s: EC2 has %d volumes for the refused claim, want none", tc.why, len(made))
			}
		})
	}
}

// What a class asks for is what EC2 is told.
func TestClassBecomesVolume(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	for name, tc := range map[string]struct {
		why        string
		parameters map[string]string
		size       string
		want       types.Volume
	}{
		"default": {
			why:  "gp3 with what EC2 gives it, not encrypted",
			size: "1Gi",
			want: volume(1, types.VolumeTypeGp3, 3000, 125, false),
		},
		"rounded": {
			why:  "EC2 counts in GiB",
			size: "1500Mi",
			want: volume(2, types.VolumeTypeGp3, 3000, 125, false),
		},
		"gp3-faster": {
			why:        "iops and throughput of gp3, keys and truth value in whatever case",
			parameters: map[string]string{"Type": "gp3", "IOPS": "4000", "throughput": "250", "encrypted": "True"},
			size:       "8Gi",
			want:       volume(8, types.VolumeTypeGp3, 4000, 250, true),
		},
		"io2-per-gb": {
			why:        "the database class of the articles",
			parameters: map[string]string{"type": "io2", "iopsPerGB": "50", "encrypted": "true"},
			size:       "4Gi",
			want:       volume(4, types.VolumeTypeIo2, 200, 0, true),
		},
		"io1-raised": {
			why:        "allowAutoIOPSPerGBIncrease lifts what is below the type's least",
			parameters: map[string]string{"type": "io1", "iopsPerGB": "1", "allowAutoIOPSPerGBIncrease": "true"},
			size:       "4Gi",
			want:       volume(4, types.VolumeTypeIo1, 100, 0, false),
		},
		"block-express": {
			why:        "a key of old io2 classes that has no effect any more",
			parameters: map[string]string{"type": "io2", "iops": "4000", "blockExpress": "true"},
			size:       "4Gi",
			want:       volume(4, types.VolumeTypeIo2, 4000, 0, false),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.With(t)
			class := s.Class(name, tc.parameters, func(c *storagev1.StorageClass) {
				c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
			})
			s.Claim(name, class, tc.size)
			got := s.Volume(s.VolumeID(name))
			if g, w := shape(got), shape(tc.want); g != w {
				t.Errorf("%s: EC2 has %+v, want %+v", tc.why, g, w)
			}
		})
	}
}

// what is compared of a volume
type volumeShape struct {
	gib, iops, throughput int32
	kind                  types.VolumeType
	encrypted             bool
}

func shape(v types.Volume) volumeShape {
	return volumeShape{aws.ToInt32(v.Size), aws.ToInt32(v.Iops), aws.ToInt32(v.Throughput), v.VolumeType, aws.ToBool(v.Encrypted)}
}

func volume(gib int32, kind types.VolumeType, iops, throughput int32, encrypted bool) types.Volume {
	return types.Volume{Size: &gib, VolumeType: kind, Iops: &iops, Throughput: &throughput, Encrypted: &encrypted}
}
