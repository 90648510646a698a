//go:build e2e

package examples

import (
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func groupSnapshot(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("writer")
	x.apply("30")
	x.Run("-n", x.Namespace, "wait", "volumegroupsnapshot/orders-1", "--for=jsonpath={.status.readyToUse}=true", "--timeout=2m")
	x.GroupMembers(&groupsnapshotv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: x.Namespace, Name: "orders-1"}})
	of := func(claim string) string { // as the README says
		return x.Run("-n", x.Namespace, "get", "volumesnapshot", "-o", "jsonpath={.items[?(@.spec.source.persistentVolumeClaimName=='"+claim+"')].metadata.name}")
	}
	x.applyWith("40", map[string]string{"SNAPSHOT_OF_LOG": of("log"), "SNAPSHOT_OF_DATA": of("data")})
	x.Ready("reader") // the Pod's own promise: log and data are of one instant
	t.Log(x.Run("-n", x.Namespace, "logs", "reader"))
	uid := x.Run("-n", x.Namespace, "get", "volumegroupsnapshot", "orders-1", "-o", "jsonpath={.metadata.uid}")
	taken := x.SnapshotsOfGroup("groupsnapshot-" + uid)
	if len(taken) != 2 {
		t.Errorf("EC2 has %d snapshots of the group, want 2", len(taken))
	}
	for _, sn := range taken {
		x.HasTags("snapshot", sn.Tags, map[string]string{"Environment": "example", "Group": x.Namespace + "/orders-1", "ebs.csi.aws.com/cluster": "true"})
	}
	x.Run("-n", x.Namespace, "delete", "volumegroupsnapshot", "orders-1", "--timeout=1m")
	x.GroupGone("groupsnapshot-" + uid)
}
