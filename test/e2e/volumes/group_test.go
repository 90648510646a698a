//go:build e2e

package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// withClaim gives a Pod a second claim, at a path of its name.
func withClaim(name, claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// writesLogFirst has a Pod write numbers into /log and, once they are on the
// disk, into /data: two volumes of one instant differ by one at most.
func writesLogFirst(p *corev1.Pod) {
	p.Spec.Containers[0].Command = []string{"sh", "-c", `trap exit TERM
n=0
while :; do
  n=$((n + 1))
  echo $n >/log/next && sync && mv /log/next /log/last && sync
  echo $n >/data/next && sync && mv /data/next /data/last && sync
done`}
}

// Two claims of one Pod are snapshotted at one instant while it writes, and
// restored: the restored volumes fit together. A third volume of the node is not taken.
func TestGroupSnapshot(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	groups := s.GroupSnapshotClass("groups", map[string]string{"tagSpecification_1": "group={{ .VolumeGroupSnapshotName }}"})
	s.Claim("data", class, "1Gi", stage.InGroup("orders"))
	s.Claim("log", class, "1Gi", stage.InGroup("orders"))
	s.Claim("other", class, "1Gi")
	s.Pod("writer", "data", withClaim("log", "log"), withClaim("other", "other"), writesLogFirst)
	s.Ready("writer")
	s.In("writer", "sh", "-c", "until [ -s /data/last ]; do sleep 0.1; done")

	group := s.GroupSnapshot("orders", groups)
	members := s.GroupMembers(group)
	if len(members) != 2 || members["data"] == "" || members["log"] == "" {
		t.Fatalf("VolumeSnapshots of the group by claim: %v, want those of data and log", members)
	}
	taken := s.SnapshotsOfGroup("groupsnapshot-" + string(group.UID))
	if len(taken) != 2 || !taken[0].StartTime.Equal(*taken[1].StartTime) {
		t.Errorf("EC2 has %d snapshots of the group, want 2 of one instant", len(taken))
	}
	for _, sn := range taken {
		s.HasTags("snapshot", sn.Tags, map[string]string{"group": "orders", "ebs.csi.aws.com/cluster": "true"})
	}

	s.Claim("data-restored", class, "1Gi", stage.FromSnapshot(members["data"]))
	s.Claim("log-restored", class, "1Gi", stage.FromSnapshot(members["log"]))
	s.Pod("reader", "data-restored", withClaim("log", "log-restored"))
	s.Ready("reader")
	data, log := s.Number("reader", "/data/last"), s.Number("reader", "/log/last")
	t.Logf("restored: log %d, data %d", log, data)
	if data == 0 || log < data || log > data+1 {
		t.Errorf("log is at %d, data at %d: not of one instant", log, data)
	}
	if now := s.Number("writer", "/data/last"); now <= data {
		t.Errorf("the writer is at %d after the snapshot with %d: it did not go on", now, data)
	}
	s.DeletePod("reader")
	s.DeletePod("writer")
	s.Delete(group)
	s.GroupGone("groupsnapshot-" + string(group.UID))
}

// EC2 takes the volumes of one instance at one instant. A group over two nodes
// is refused, and the VolumeGroupSnapshot says which volume is where; so is one
// with a claim that nobody uses.
func TestGroupSnapshotOverTwoNodes(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("gp3", nil)
	groups := s.GroupSnapshotClass("groups", nil)
	s.Claim("one", class, "1Gi", stage.InGroup("spread"))
	s.Claim("two", class, "1Gi", stage.InGroup("spread"))
	s.Pod("first", "one", stage.OnNode("node-a1"))
	s.Pod("second", "two", stage.OnNode("node-a2"))
	s.Ready("first")
	s.Ready("second")
	group := s.GroupSnapshot("spread", groups)
	t.Log(s.GroupRefused(group, "several instances", s.VolumeID("one"), s.VolumeID("two")))
	if taken := s.SnapshotsOfGroup("groupsnapshot-" + string(group.UID)); len(taken) != 0 {
		t.Errorf("EC2 has %d snapshots of the refused group", len(taken))
	}
	s.DeletePod("second")
	s.Detached(s.VolumeID("two"))
	t.Log(s.GroupRefused(group, "no instance", s.VolumeID("two")))

	// Both on one node: the same object is taken now.
	s.Pod("second", "two", stage.OnNode("node-a1"))
	s.Ready("second")
	if members := s.GroupMembers(group); len(members) != 2 {
		t.Errorf("VolumeSnapshots of the group: %v, want two", members)
	}
	s.Delete(group)
}
