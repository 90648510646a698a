package stage

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv8 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// groupLabel marks the claims of a group.
const groupLabel = "e2e.holdfast.dev/group"

// InGroup has a claim belong to a group of that name.
func InGroup(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{groupLabel: name} }
}

// GroupSnapshotClass makes a VolumeGroupSnapshotClass for the test alone and returns its name.
func (s *Stage) GroupSnapshotClass(suffix string, parameters map[string]string) string {
	s.T.Helper()
	c := &groupsnapshotv1.VolumeGroupSnapshotClass{
		ObjectMeta:     metav1.ObjectMeta{Name: s.Namespace + "-" + suffix},
		Driver:         Driver,
		DeletionPolicy: snapshotv8.VolumeSnapshotContentDelete,
		Parameters:     parameters,
	}
	s.Create(c)
	return c.Name
}

// GroupSnapshot asks for a snapshot of all claims of the group of that name.
func (s *Stage) GroupSnapshot(name, class string) *groupsnapshotv1.VolumeGroupSnapshot {
	s.T.Helper()
	g := &groupsnapshotv1.VolumeGroupSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: groupsnapshotv1.VolumeGroupSnapshotSpec{
			VolumeGroupSnapshotClassName: &class,
			Source:                       groupsnapshotv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{groupLabel: name}}},
		},
	}
	s.Create(g)
	return g
}

// GroupMembers waits until a group is ready and returns the names of its
// VolumeSnapshots by the claims that they are of.
func (s *Stage) GroupMembers(g *groupsnapshotv1.VolumeGroupSnapshot) map[string]string {
	s.T.Helper()
	var members map[string]string
	s.Eventually("group snapshot "+g.Name+" and its VolumeSnapshots ready", func(ctx context.Context) (string, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return "", err
		}
		if g.Status == nil || !ptr.Deref(g.Status.ReadyToUse, false) {
			return "not ready: " + groupError(g), nil
		}
		var all snapshotv1.VolumeSnapshotList
		if err := s.Client.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
			return "", err
		}
		members = map[string]string{}
		for _, v := range all.Items {
			if !ownedBy(&v, g) {
				continue
			}
			if v.Status == nil || !ptr.Deref(v.Status.ReadyToUse, false) {
				return fmt.Sprintf("VolumeSnapshot %s is not ready", v.Name), nil
			}
			members[ptr.Deref(v.Spec.Source.PersistentVolumeClaimName, "")] = v.Name
		}
		return "", nil
	})
	return members
}

func ownedBy(v *snapshotv1.VolumeSnapshot, g *groupsnapshotv1.VolumeGroupSnapshot) bool {
	for _, o := range v.OwnerReferences {
		if o.UID == g.UID {
			return true
		}
	}
	return false
}

// GroupRefused waits until the VolumeGroupSnapshot itself says all of want.
func (s *Stage) GroupRefused(g *groupsnapshotv1.VolumeGroupSnapshot, want ...string) string {
	s.T.Helper()
	said := ""
	s.Eventually(fmt.Sprintf("group snapshot %s refused with %q", g.Name, want), func(ctx context.Context) (string, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return "", err
		}
		if said = groupError(g); !containsAll(said, want) {
			return "it says " + said, nil
		}
		return "", nil
	})
	return said
}

func groupError(g *groupsnapshotv1.VolumeGroupSnapshot) string {
	if g.Status == nil || g.Status.Error == nil {
		return "nothing"
	}
	return ptr.Deref(g.Status.Error.Message, "")
}

// SnapshotsOfGroup are EC2's snapshots of a group of that CSI name.
func (s *Stage) SnapshotsOfGroup(name string) []types.Snapshot {
	s.T.Helper()
	snapshots, err := s.snapshotsOfGroup(s.T.Context(), name)
	s.Must(err)
	return snapshots
}

func (s *Stage) snapshotsOfGroup(ctx context.Context, name string) ([]types.Snapshot, error) {
	out, err := s.EC2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{"self"},
		Filters:  []types.Filter{{Name: aws.String("tag:ebs.csi.aws.com/group-snapshot-name"), Values: []string{name}}},
	})
	if err != nil {
		return nil, err
	}
	return out.Snapshots, nil
}

// GroupGone waits until EC2 has no snapshot of a group.
func (s *Stage) GroupGone(name string) {
	s.T.Helper()
	s.Eventually("snapshots of group "+name+" gone from EC2", func(ctx context.Context) (string, error) {
		left, err := s.snapshotsOfGroup(ctx, name)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d are left", len(left)), nil
	})
}

// Number reads a number from a file in a Pod.
func (s *Stage) Number(pod, file string) int {
	s.T.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s.In(pod, "cat", file)))
	s.Must(err)
	return n
}
