package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// EC2 has accepted the attachment, and reads still show the one before it.
func TestAttachWhileReadsShowTheInstanceBefore(t *testing.T) {
	r := newRegion(t)
	id := r.attached("pvc-1", nodeA)
	delays := r.Delays()
	delays.Detach, delays.Attach = 0, ec2sim.Duration(time.Second)
	if err := r.SetDelays(delays); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadLag(map[string]ec2sim.Duration{"*": ec2sim.Duration(8 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
	if _, err := admin(r).DetachVolume(t.Context(), &sdk.DetachVolumeInput{VolumeId: aws.String(string(id))}); err != nil {
		t.Fatal(err)
	}
	if att, err := r.client().Attach(t.Context(), id, nodeA2); err != nil || att.Instance != nodeA2 {
		t.Errorf("%+v, %v; want it attached to %s", att, err, nodeA2)
	}
}
