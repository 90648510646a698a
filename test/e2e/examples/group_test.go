//go:build e2e

package examples

import (
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
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

func oneInstant(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/orders", "--timeout=3m")
	x.apply("30")
	x.Run("-n", x.Namespace, "annotate", "snapsched", "hourly", v1alpha1.AnnotationRunNow+"=first")
	x.Run("-n", x.Namespace, "wait", "snapsched/hourly", "--for=jsonpath={.status.readyCount}=4", "--timeout=4m")
	x.healthy("hourly", 4)
	for _, uid := range strings.Fields(x.Run("-n", x.Namespace, "get", "volumegroupsnapshot", "-o", "jsonpath={.items[*].metadata.uid}")) {
		taken := x.SnapshotsOfGroup("groupsnapshot-" + uid)
		if len(taken) != 2 || !taken[0].StartTime.Equal(*taken[1].StartTime) {
			t.Errorf("EC2 has %d snapshots of group %s, want 2 of one instant", len(taken), uid)
		}
	}
	if cut := x.Run("-n", x.Namespace, "get", "snapsched", "hourly", "-o", "jsonpath={.status.lastGroupCut.groupCount} {.status.lastGroupCut.spreadSeconds}"); cut != "2 0" {
		t.Errorf("the status tells of %q, want two groups, cut at one instant each", cut)
	}
	x.Run("-n", x.Namespace, "patch", "snapsched", "hourly", "--type=merge", "-p", `{"spec":{"onScheduleDelete":"Delete"}}`)
	x.Run("-n", x.Namespace, "wait", "snapsched/hourly", "--for=jsonpath={.metadata.finalizers[0]}="+v1alpha1.FinalizerSnapshots, "--timeout=1m")
	x.Run("-n", x.Namespace, "delete", "snapsched", "hourly", "--timeout=2m")
	if left := x.Run("-n", x.Namespace, "get", "volumegroupsnapshot,volumesnapshot", "-o", "name"); left != "" {
		t.Errorf("the schedule has gone, and copies are left: %s", left)
	}
}
