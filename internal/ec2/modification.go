package ec2

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// modification is the latest change of a volume.
type modification struct {
	state    types.VolumeModificationState
	target   ebs.Shape
	progress int64 // percent
	began    time.Time
	message  string
}

// settled says whether what a modification made can be used:
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
func (m *modification) settled() bool {
	return m == nil || m.state != types.VolumeModificationStateModifying
}

// underWay says whether EC2 takes no other change yet.
func (m *modification) underWay() bool {
	return m != nil && (m.state == types.VolumeModificationStateModifying || m.state == types.VolumeModificationStateOptimizing)
}

// shapeOf is the shape that a volume has, or will have once the change that is
// under way is done: reads of the volume may lag behind those of its changes,
// and EC2 shows a new size before it can be used.
func shapeOf(vol ebs.Volume, latest *modification) ebs.Shape {
	now := vol.Shape()
	if latest == nil || latest.state == types.VolumeModificationStateFailed {
		return now
	}
	to := latest.target
	to.Size = max(to.Size, now.Size)
	return to
}

// modification looks up the latest change of a volume, nil where there was none.
func (c *Client) modification(ctx context.Context, id ebs.VolumeID) (*modification, error) {
	return c.modificationWithin(ctx, id, 0)
}

// modificationWithin is modification for a look that may take a time.
func (c *Client) modificationWithin(ctx context.Context, id ebs.VolumeID, within time.Duration) (*modification, error) {
	changes, _, err := c.lookups.changes.get(ctx, id, within)
	if err != nil {
		return nil, fmt.Errorf("look at the changes of volume %s: %w", id, err)
	}
	var latest *modification
	for _, m := range changes {
		mod := &modification{
			state: m.ModificationState, progress: aws.ToInt64(m.Progress), began: aws.ToTime(m.StartTime), message: aws.ToString(m.StatusMessage),
			target: ebs.NewShape(ebs.GiB(aws.ToInt32(m.TargetSize)), ebs.VolumeType(m.TargetVolumeType), aws.ToInt32(m.TargetIops), aws.ToInt32(m.TargetThroughput)),
		}
		if latest == nil || mod.began.After(latest.began) {
			latest = mod
		}
	}
	return latest, nil
}
