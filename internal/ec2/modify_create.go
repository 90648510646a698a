package ec2

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// asWanted says whether a volume that has the name is the wanted one, else
// ErrAlreadyExists with all differences. A volume that was modified since it was
// made is still the one: only what cannot be modified is compared then, and that
// it is large enough. Its creation may be repeated late, by a restored cluster
// for instance, and ErrAlreadyExists would never end.
func (c *Client) asWanted(ctx context.Context, vol ebs.Volume, want ebs.VolumeRequest) error {
	refusal := differences(vol, want)
	if refusal == nil {
		return nil
	}
	lasting := want
	lasting.Type, lasting.IOPS, lasting.ThroughputMiBps = vol.Type, 0, 0
	if vol.Size > want.Size {
		lasting.Size = vol.Size
	}
	if differences(vol, lasting) != nil {
		return refusal
	}
	latest, err := c.modification(ctx, vol.ID)
	switch {
	case err != nil:
		return accepted(err)
	case latest == nil || latest.state == types.VolumeModificationStateFailed:
		return refusal
	}
	return nil
}
