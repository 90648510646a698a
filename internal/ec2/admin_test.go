package ec2_test

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// admin is a bare SDK client that goes past the wire: somebody else's hand.
func admin(r *region) *sdk.Client {
	cfg := ec2sim.ClientConfig(r.direct)
	return sdk.NewFromConfig(cfg)
}

func deleteInput(id string) *sdk.DeleteVolumeInput {
	return &sdk.DeleteVolumeInput{VolumeId: aws.String(id)}
}
