package ec2

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// initializationPatience is how long one call waits for a volume's content. It
// takes minutes to hours, so that most callers come again anyway; the time is
// below the 60 s after which the sidecars give up, so that they are told how far
// it is.
const initializationPatience = 45 * time.Second

// initializationPolls look seldom: EC2 says itself that its status lags.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-initialize-monitor.html
var initializationPolls = interval{first: 5 * time.Second, least: 5 * time.Second, most: 15 * time.Second, share: 0.125}

// initialization is how far a volume's content has arrived from its source.
type initialization struct {
	state    string // of initialization-state; empty where EC2 tells none yet
	progress int64  // percent, -1 where EC2 tells none
	left     time.Duration
}

// unknownInitialization is what EC2 tells of a volume before it tells anything.
var unknownInitialization = initialization{progress: -1}

// done says whether EC2 has said that all content is there.
func (i initialization) done() bool { return i.state == "completed" || i.progress >= 100 }

func (i initialization) String() string {
	text := i.state
	if text == "" {
		text = "EC2 tells no state of it yet"
	}
	if i.progress >= 0 {
		text += fmt.Sprintf(", %d %% of the content is there", i.progress)
	}
	if i.left > 0 {
		text += fmt.Sprintf(", about %v to go", i.left)
	}
	return text
}

// WaitInitialized waits until all content of a volume that was made from a
// snapshot or another volume is there; ErrNotReady, with the progress, where
// that takes longer than a request should.
// https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
func (c *Client) WaitInitialized(ctx context.Context, id ebs.VolumeID) error {
	if !id.WellFormed() {
		return fmt.Errorf("%w: %q is no volume id", ebs.ErrNotFound, id)
	}
	start, last := c.clock.Now(), unknownInitialization
	log := stateLogger(ctx, id, "initialized")
	look := func(ctx context.Context, within time.Duration) (bool, error) {
		now, found, err := c.lookups.initializations.get(ctx, id, within)
		switch {
		case err != nil:
			return false, err
		case !found:
			return false, fmt.Errorf("%w: volume %s", ebs.ErrNotFound, id)
		case now.done():
			return true, nil
		case now == unknownInitialization:
			if empty, err := c.madeOfNothing(ctx, id); empty || err != nil {
				return empty, err
			}
		}
		last = now
		log(now.String())
		if c.clock.Since(start) >= initializationPatience {
			return false, fmt.Errorf("%w: its content is still on the way", ebs.ErrNotReady)
		}
		return false, nil
	}
	done, err := look(ctx, 0)
	if !done && err == nil {
		err = c.watch(ctx, initializationPolls, look)
	}
	if err != nil {
		return fmt.Errorf("wait for the initialization of volume %s (%v): %w", id, last, err)
	}
	return nil
}

// madeOfNothing says whether a volume has no source: there is no content to wait for.
func (c *Client) madeOfNothing(ctx context.Context, id ebs.VolumeID) (bool, error) {
	vol, err := c.Volume(ctx, id)
	if err != nil {
		return false, fmt.Errorf("look at volume %s: %w", id, err)
	}
	return vol.Snapshot == "" && vol.Source == "", nil
}

// fetchInitializations asks by a list of ids, since DescribeVolumeStatus has no
// filter for them, see eachKnown.
func (c *Client) fetchInitializations(ctx context.Context, ids []ebs.VolumeID) (map[ebs.VolumeID]initialization, error) {
	found := map[ebs.VolumeID]initialization{}
	err := eachKnown(ids, func(some []ebs.VolumeID) error {
		in := &sdk.DescribeVolumeStatusInput{}
		for _, id := range some {
			in.VolumeIds = append(in.VolumeIds, string(id))
		}
		out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumeStatusOutput, error) {
			return c.api.DescribeVolumeStatus(ctx, in)
		})
		if err != nil {
			return fmt.Errorf("look at the status of %d volumes: %w", len(some), err)
		}
		for _, s := range out.VolumeStatuses {
			found[ebs.VolumeID(aws.ToString(s.VolumeId))] = initializationFrom(s)
		}
		return nil
	})
	return found, err
}

func initializationFrom(s types.VolumeStatusItem) initialization {
	i := unknownInitialization
	if s.VolumeStatus != nil {
		for _, d := range s.VolumeStatus.Details {
			if d.Name == types.VolumeStatusNameInitializationState {
				i.state = aws.ToString(d.Status)
			}
		}
	}
	if d := s.InitializationStatusDetails; d != nil {
		if d.Progress != nil {
			i.progress = *d.Progress
		}
		i.left = time.Duration(aws.ToInt64(d.EstimatedTimeToCompleteInSeconds)) * time.Second
	}
	return i
}
