//go:build e2e

package examples

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func sharedDevice(t *testing.T, x *example) {
	x.apply("00", "10", "20", "30")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/member", "--timeout=3m") // the Pods' own promise: each has read the other's
	if one, two := x.Ready("member-0").Spec.NodeName, x.Ready("member-1").Spec.NodeName; one == two {
		t.Errorf("both Pods are on %s", one)
	}
	if v := x.Volume(x.VolumeID("shared")); !aws.ToBool(v.MultiAttachEnabled) || len(v.Attachments) != 2 {
		t.Errorf("volume %s: Multi-Attach %v, attachments %+v, want two", *v.VolumeId, aws.ToBool(v.MultiAttachEnabled), v.Attachments)
	}
}
