package ec2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Grow makes a volume at least that large and waits until the size can be used.
// A volume that is large enough is not modified; EC2 allows few modifications.
//
//	a change in "modifying"             wait for it, then as below
//	large enough                        nothing to do
//	size beyond the type                ErrOutOfRange
//	else                                ModifyVolume, and wait
//	 refused: a change goes on          to that size: wait; to another: ErrNotReady
//	 refused: too many changes          ErrModificationRate
func (c *Client) Grow(ctx context.Context, id ebs.VolumeID, atLeast ebs.GiB) (ebs.Volume, error) {
	vol, err := c.patientVolume(ctx, id)
	if err != nil {
		return ebs.Volume{}, err
	}
	vol, err = c.settle(ctx, vol)
	if err != nil {
		return ebs.Volume{}, err
	}
	if vol.Size >= atLeast {
		return vol, nil
	}
	if err := ebs.CheckSize(vol.Type, atLeast); err != nil {
		return ebs.Volume{}, err
	}
	_, err = mutate(ctx, func(ctx context.Context) (*sdk.ModifyVolumeOutput, error) {
		return c.api.ModifyVolume(ctx, &sdk.ModifyVolumeInput{VolumeId: aws.String(string(id)), Size: aws.Int32(int32(atLeast))})
	})
	switch {
	case err == nil:
	case errors.Is(err, ebs.ErrNotReady), errors.Is(err, ebs.ErrMaybeAccepted) && ctx.Err() == nil:
		if err := c.underWay(ctx, id, atLeast, err); err != nil {
			return ebs.Volume{}, err
		}
	default:
		return ebs.Volume{}, err
	}
	grown, err := c.waitGrown(ctx, vol, atLeast)
	return grown, accepted(err)
}

// patientVolume looks up a volume that must exist. The answer NOT_FOUND would
// make csi-resizer give up for good, so a lagging read is waited out.
func (c *Client) patientVolume(ctx context.Context, id ebs.VolumeID) (ebs.Volume, error) {
	vol, err := c.Volume(ctx, id)
	if !errors.Is(err, ebs.ErrNotFound) || !id.WellFormed() {
		return vol, err
	}
	start := c.clock.Now()
	err = c.watch(ctx, lagPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		vol, err = c.volumeWithin(ctx, id, within)
		if errors.Is(err, ebs.ErrNotFound) && c.clock.Since(start) < appearWithin {
			return false, nil
		}
		return true, err
	})
	return vol, err
}

// settle waits for a change that is under way and answers the volume with the
// size that it then has: reads of the volume may lag behind those of the change.
func (c *Client) settle(ctx context.Context, vol ebs.Volume) (ebs.Volume, error) {
	mod, err := c.modification(ctx, vol.ID)
	if err != nil {
		return vol, err
	}
	if !mod.settled() {
		if mod, err = c.waitSettled(ctx, vol.ID, mod.target); err != nil {
			return vol, accepted(err)
		}
		if vol, err = c.Volume(ctx, vol.ID); err != nil {
			return vol, accepted(err)
		}
	}
	return withSizeOf(mod, vol), nil
}

// withSizeOf gives the volume the size of a change that has taken effect.
func withSizeOf(mod *modification, vol ebs.Volume) ebs.Volume {
	if mod != nil && (mod.state == types.VolumeModificationStateOptimizing || mod.state == types.VolumeModificationStateCompleted) {
		vol.Size = max(vol.Size, mod.target)
	}
	return vol
}

// underWay judges EC2's refusal to modify, or its lost answer, by the change
// that it shows: nil where that is the wanted one.
func (c *Client) underWay(ctx context.Context, id ebs.VolumeID, atLeast ebs.GiB, refusal error) error {
	mod, err := c.modification(ctx, id)
	switch {
	case err != nil:
		return accepted(err)
	case mod != nil && mod.target >= atLeast && mod.state != types.VolumeModificationStateFailed:
		return nil
	case mod != nil && mod.state == types.VolumeModificationStateOptimizing:
		return fmt.Errorf("the change to %d GiB that began at %s is still %s (%d %%), until then EC2 takes no other: %w",
			mod.target, mod.began.UTC().Format(time.RFC3339), mod.state, mod.progress, refusal)
	}
	return refusal
}

// waitGrown waits until the change to a size has taken effect.
func (c *Client) waitGrown(ctx context.Context, vol ebs.Volume, atLeast ebs.GiB) (ebs.Volume, error) {
	mod, err := c.waitSettled(ctx, vol.ID, atLeast)
	if err != nil {
		return vol, err
	}
	grown, err := c.Volume(ctx, vol.ID)
	if err != nil {
		return vol, fmt.Errorf("look at volume %s: %w", vol.ID, err)
	}
	return withSizeOf(mod, grown), nil
}

// waitSettled waits until the change to at least a size shows and is no longer in "modifying".
func (c *Client) waitSettled(ctx context.Context, id ebs.VolumeID, target ebs.GiB) (*modification, error) {
	var mod *modification
	start, last := c.clock.Now(), types.VolumeModificationState("")
	err := c.watch(ctx, modificationPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		var err error
		mod, err = c.modificationWithin(ctx, id, within)
		switch {
		case err != nil:
			return false, err
		case mod == nil || mod.target < target: // not shown yet
			if c.clock.Since(start) >= appearWithin {
				return false, fmt.Errorf("%w: EC2 does not show the change of volume %s to %d GiB", ebs.ErrNotReady, id, target)
			}
			return false, nil
		case mod.state == types.VolumeModificationStateFailed:
			return false, fmt.Errorf("EC2 could not grow volume %s to %d GiB: %s", id, mod.target, mod.message)
		}
		if mod.state != last {
			logr.FromContextOrDiscard(ctx).Info("Waiting for volume modification", "volumeID", id, "actual", mod.state, "desired", types.VolumeModificationStateOptimizing)
			last = mod.state
		}
		return mod.settled(), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the change of volume %s to %d GiB, in state %q: %w", id, target, last, err)
	}
	return mod, nil
}
