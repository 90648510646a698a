package ec2

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// instance is what attaching needs to know of an instance.
type instance struct {
	zone    ebs.Zone
	devices map[string]ebs.VolumeID // by device name; may lag behind
}

// has says whether the instance's list of devices shows the volume.
func (i instance) has(id ebs.VolumeID) bool {
	for _, v := range i.devices {
		if v == id {
			return true
		}
	}
	return false
}

// instance looks an instance up; ErrInstanceNotFound where there is none or it is terminated.
func (c *Client) instance(ctx context.Context, id ebs.InstanceID) (instance, error) {
	if !id.WellFormed() {
		return instance{}, fmt.Errorf("%w: %q is no instance id", ebs.ErrInstanceNotFound, id)
	}
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeInstancesOutput, error) {
		return c.api.DescribeInstances(ctx, &sdk.DescribeInstancesInput{InstanceIds: []string{string(id)}})
	})
	if err != nil {
		return instance{}, fmt.Errorf("look up instance %s: %w", id, err)
	}
	if len(out.Reservations) == 0 || len(out.Reservations[0].Instances) == 0 {
		return instance{}, fmt.Errorf("%w: instance %s", ebs.ErrInstanceNotFound, id)
	}
	found := out.Reservations[0].Instances[0]
	if found.State != nil && found.State.Name == types.InstanceStateNameTerminated {
		return instance{}, fmt.Errorf("%w: instance %s is terminated", ebs.ErrInstanceNotFound, id)
	}
	return instanceFrom(found), nil
}

func instanceFrom(i types.Instance) instance {
	found := instance{devices: map[string]ebs.VolumeID{}}
	if i.Placement != nil {
		found.zone = ebs.Zone{Name: aws.ToString(i.Placement.AvailabilityZone), ID: aws.ToString(i.Placement.AvailabilityZoneId)}
	}
	for _, m := range i.BlockDeviceMappings {
		var id ebs.VolumeID
		if m.Ebs != nil {
			id = ebs.VolumeID(aws.ToString(m.Ebs.VolumeId))
		}
		found.devices[aws.ToString(m.DeviceName)] = id
	}
	return found
}
