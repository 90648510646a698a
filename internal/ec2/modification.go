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
	target   ebs.GiB
	progress int64 // percent
	began    time.Time
	message  string
}

// settled says whether the size of a modification can be used:
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
func (m *modification) settled() bool {
	return m == nil || m.state != types.VolumeModificationStateModifying
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
			state: m.ModificationState, target: ebs.GiB(aws.ToInt32(m.TargetSize)), progress: aws.ToInt64(m.Progress),
			began: aws.ToTime(m.StartTime), message: aws.ToString(m.StatusMessage),
		}
		if latest == nil || mod.began.After(latest.began) {
			latest = mod
		}
	}
	return latest, nil
}
