package driver_test

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// Kubernetes' own suite names the deletion policy of a group among the parameters of
// its class: that is no unknown key, and has no effect.
func TestGroupClassNamesItsDeletionPolicy(t *testing.T) {
	c := newCluster(t)
	volume := c.attached("pvc-1", nodeA)
	for _, policy := range []string{"Delete", "Retain"} {
		if _, err := c.group("groupsnapshot-1", map[string]string{"deletionPolicy": policy}, volume); err != nil {
			t.Errorf("deletionPolicy %s: %v", policy, err)
		}
	}
	if n := len(c.sim.Snapshots()); n != 1 {
		t.Errorf("%d snapshots, want the one of the group", n)
	}
	_, err := c.group("groupsnapshot-2", map[string]string{"deletionPolicy": "Keep"}, volume)
	wantCode(t, "a policy that there is not", err, codes.InvalidArgument, `parameter deletionPolicy is "Keep": allowed are Delete and Retain`)
	_, err = c.group("groupsnapshot-2", map[string]string{"retentionPolicy": "Delete"}, volume)
	wantCode(t, "another key", err, codes.InvalidArgument, "retentionPolicy")
}
