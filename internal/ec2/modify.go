package ec2

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Modify makes a volume what is wanted and waits until that can be used. All is
// judged before anything is changed. Then comes the shape, because EC2 knows
// rules that we do not and may refuse it, then the tags: each repeat does what is
// left. A volume that is as wanted already costs no mutating call.
//
//	tags                  beyond EC2's limit          ErrInvalid
//	shape, see planModify: nothing, or wait           at once
//	 ModifyVolume         too many changes lately     ErrModificationRate, without a call until the time is up
//	                      else                        gathered with others of the volume, see changes
func (c *Client) Modify(ctx context.Context, id ebs.VolumeID, want ebs.Modification) (ebs.Volume, error) {
	if !want.ChangesShape() {
		vol, err := c.patientVolume(ctx, id, 0)
		if err == nil {
			err = checkTagCount(vol, want)
		}
		if err != nil {
			return ebs.Volume{}, err
		}
		return c.retag(ctx, vol, want)
	}
	came := c.changes.arrive(id)
	defer came.leave()
	vol, latest, err := c.lookToModify(ctx, id, came.patience)
	if err == nil {
		err = checkTagCount(vol, want)
	}
	if err != nil {
		return ebs.Volume{}, err
	}
	before := vol.Shape()
	if vol, err = c.reshape(ctx, came, vol, latest, want); err != nil {
		return ebs.Volume{}, err
	}
	vol, err = c.retag(ctx, vol, want)
	if err != nil && vol.Shape() != before {
		err = accepted(err) // the shape is changed: this call is not one that has changed nothing
	}
	return vol, err
}

// patientVolume looks up a volume that must exist, the first time within a
// time. The answer NOT_FOUND would make csi-resizer give up for good, so a
// lagging read is waited out.
func (c *Client) patientVolume(ctx context.Context, id ebs.VolumeID, within time.Duration) (ebs.Volume, error) {
	vol, err := c.volumeWithin(ctx, id, within)
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

// lookToModify looks at a volume and, at the same time, at its latest change. It
// takes as long as patience allows: the look at the change shares the calls of
// the waits for others.
func (c *Client) lookToModify(ctx context.Context, id ebs.VolumeID, patience time.Duration) (vol ebs.Volume, latest *modification, err error) {
	if !id.WellFormed() {
		vol, err = c.volumeWithin(ctx, id, 0) // which says so
		return vol, nil, err
	}
	var changeErr error
	var looks sync.WaitGroup
	looks.Go(func() { latest, changeErr = c.modificationWithin(ctx, id, patience) })
	vol, err = c.patientVolume(ctx, id, patience)
	looks.Wait()
	if err == nil {
		err = changeErr
	}
	return vol, latest, err
}

// reshape gives a volume, that looks like that, the wanted shape.
func (c *Client) reshape(ctx context.Context, came *arrival, vol ebs.Volume, latest *modification, want ebs.Modification) (ebs.Volume, error) {
	p, err := planModify(vol, latest, want)
	var shape ebs.Shape
	switch {
	case err != nil && !infeasible(err):
		return vol, err
	case err == nil && p.step != modifySend:
		came.leave() // others of the volume need not wait for it
		shape, err = c.carryOut(ctx, vol.ID, p)
	default:
		// What is impossible alone may be possible with what comes in the next
		// moment: more IOPS with a larger size.
		if held := c.rates.held(vol.ID); held != nil && err == nil {
			return vol, held
		}
		shape, err = c.changes.do(ctx, came, vol, latest, want)
	}
	return vol.WithShape(shape), err
}

// carryOut does what a plan says and answers the shape that the volume then has.
func (c *Client) carryOut(ctx context.Context, id ebs.VolumeID, p modifyPlan) (ebs.Shape, error) {
	switch p.step {
	case modifyNothing:
		return p.target, nil
	case modifySend:
		if err := c.sendModify(ctx, id, p); err != nil {
			return p.from, err
		}
	}
	return p.target, accepted(c.waitReached(ctx, id, p.target))
}

// sendModify sends ModifyVolume once, as far as we are concerned.
//
//	accepted                                nil
//	refused for a change that goes on, or
//	the answer is lost   ours shows         nil
//	                     another shows      ErrNotReady, with what goes on
//	refused              too many changes   ErrModificationRate, and remembered
//	                     no such volume     ErrNotReady: we have just seen it
func (c *Client) sendModify(ctx context.Context, id ebs.VolumeID, p modifyPlan) error {
	_, err := mutate(ctx, func(ctx context.Context) (*sdk.ModifyVolumeOutput, error) {
		return c.api.ModifyVolume(ctx, modifyInput(id, p))
	})
	switch {
	case err == nil:
		logr.FromContextOrDiscard(ctx).Info("ModifyVolume: accepted", "volumeID", id, "from", p.from.String(), "to", p.target.String())
		return nil
	case errors.Is(err, ebs.ErrModificationRate):
		return c.holdModify(ctx, id, err)
	case errors.Is(err, ebs.ErrNotFound):
		return justSeen(id, err)
	case errors.Is(err, ebs.ErrNotReady), errors.Is(err, ebs.ErrMaybeAccepted) && ctx.Err() == nil:
		latest, lookErr := c.modification(ctx, id)
		switch {
		case lookErr != nil:
			return accepted(lookErr)
		case latest.reached(p.target):
			return nil
		case latest.underWay():
			return fmt.Errorf("%w: %w", busy(id, latest, p.target), err)
		}
	}
	return err
}

// justSeen is EC2's "not found" for a volume that it has shown a moment before: a
// matter of time, and no reason to give up for good.
func justSeen(id ebs.VolumeID, err error) error {
	if errors.Is(err, ebs.ErrNotFound) {
		return fmt.Errorf("%w: EC2 has just shown volume %s and does not know it now: %s", ebs.ErrNotReady, id, err.Error())
	}
	return err
}

// modifyInput names what changes. With a new type all of its numbers are said:
// EC2 would give it its own defaults, and CSI forbids to change what a request
// does not name.
func modifyInput(id ebs.VolumeID, p modifyPlan) *sdk.ModifyVolumeInput {
	in := &sdk.ModifyVolumeInput{VolumeId: aws.String(string(id))}
	typed := p.target.Type != p.from.Type
	if p.target.Size != p.from.Size {
		in.Size = aws.Int32(int32(p.target.Size))
	}
	if typed {
		in.VolumeType = types.VolumeType(p.target.Type)
	}
	if p.target.IOPS != 0 && (typed || p.target.IOPS != p.from.IOPS) {
		in.Iops = aws.Int32(p.target.IOPS)
	}
	if p.target.ThroughputMiBps != 0 && (typed || p.target.ThroughputMiBps != p.from.ThroughputMiBps) {
		in.Throughput = aws.Int32(p.target.ThroughputMiBps)
	}
	return in
}

// waitReached waits until the change to a shape shows and can be used.
func (c *Client) waitReached(ctx context.Context, id ebs.VolumeID, target ebs.Shape) error {
	start, last := c.clock.Now(), types.VolumeModificationState("")
	err := c.watch(ctx, modificationPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		mod, err := c.modificationWithin(ctx, id, within)
		switch {
		case err != nil:
			return false, err
		case mod == nil || mod.target != target: // not shown yet
			if c.clock.Since(start) >= appearWithin {
				return false, fmt.Errorf("%w: EC2 does not show the change", ebs.ErrNotReady)
			}
			return false, nil
		case mod.state == types.VolumeModificationStateFailed:
			return false, fmt.Errorf("EC2 could not make it: %s", mod.message)
		}
		if mod.state != last {
			logr.FromContextOrDiscard(ctx).Info("Waiting for volume modification", "volumeID", id, "actual", mod.state, "desired", types.VolumeModificationStateOptimizing)
			last = mod.state
		}
		return mod.settled(), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the change of volume %s to %s, in state %q: %w", id, target, last, err)
	}
	return nil
}
