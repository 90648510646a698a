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

// lockSnapshots locks the snapshots that were never locked; nil is no lock. A
// lock that is there stays as it is, over or not: whoever may change it has
// perhaps done so.
func (c *Client) lockSnapshots(ctx context.Context, ids []ebs.SnapshotID, lock *ebs.SnapshotLock, fresh bool) error {
	if lock == nil {
		return nil
	}
	if lock.Over(c.clock.Now()) {
		logr.FromContextOrDiscard(ctx).Info("No lock: it would be over", "snapshotIDs", ids, "until", lock.Until)
		return nil
	}
	locked := map[ebs.SnapshotID]types.LockedSnapshotsInfo{}
	if !fresh {
		var err error
		if locked, err = c.locks(ctx, ids); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if _, already := locked[id]; already {
			continue
		}
		if err := c.lockSnapshot(ctx, id, *lock); err != nil {
			return fmt.Errorf("lock snapshot %s: %w", id, err)
		}
	}
	return nil
}

// lockSnapshot locks a snapshot, pending or completed. A repeat by the SDK makes
// the same lock again.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockSnapshot.html
func (c *Client) lockSnapshot(ctx context.Context, id ebs.SnapshotID, lock ebs.SnapshotLock) error {
	in := &sdk.LockSnapshotInput{SnapshotId: aws.String(string(id)), LockMode: types.LockMode(lock.Mode)}
	if lock.Days != 0 {
		in.LockDuration = aws.Int32(lock.Days)
	}
	if !lock.Until.IsZero() {
		in.ExpirationDate = aws.Time(lock.Until)
	}
	if lock.CoolOffHours != 0 {
		in.CoolOffPeriod = aws.Int32(lock.CoolOffHours)
	}
	_, err := mutate(ctx, func(ctx context.Context) (*sdk.LockSnapshotOutput, error) { return c.api.LockSnapshot(ctx, in) })
	return err
}

// locks asks EC2 for the locks of snapshots; those that were never locked have none.
func (c *Client) locks(ctx context.Context, ids []ebs.SnapshotID) (map[ebs.SnapshotID]types.LockedSnapshotsInfo, error) {
	found := map[ebs.SnapshotID]types.LockedSnapshotsInfo{}
	in := &sdk.DescribeLockedSnapshotsInput{SnapshotIds: texts(ids)}
	for {
		out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeLockedSnapshotsOutput, error) {
			return c.api.DescribeLockedSnapshots(ctx, in)
		})
		if errors.Is(err, ebs.ErrNotFound) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for locks: %w", err)
		}
		for _, l := range out.Snapshots {
			found[ebs.SnapshotID(aws.ToString(l.SnapshotId))] = l
		}
		if aws.ToString(out.NextToken) == "" {
			return found, nil
		}
		in.NextToken = out.NextToken
	}
}

// heldByLock says which lock keeps a snapshot from being deleted; empty for none.
func (c *Client) heldByLock(ctx context.Context, id ebs.SnapshotID) (string, error) {
	locks, err := c.locks(ctx, []ebs.SnapshotID{id})
	if err != nil {
		return "", err
	}
	l, locked := locks[id]
	switch {
	case !locked, l.LockState == types.LockStateExpired:
		return "", nil
	case l.LockExpiresOn != nil:
		return fmt.Sprintf("%s until %s", l.LockState, l.LockExpiresOn.UTC().Format(time.RFC3339)), nil
	}
	return fmt.Sprintf("%s for %d days from its completion", l.LockState, aws.ToInt32(l.LockDuration)), nil
}

// heldError: a locked snapshot is in use until its lock ends.
func heldError(id ebs.SnapshotID, held string, refusal error) error {
	if held == "" {
		return refusal
	}
	return fmt.Errorf("%w: snapshot %s is locked (%s): it can be deleted afterwards, or when somebody who may has taken a governance lock, or one that is still cooling off, away: %s", ebs.ErrInUse, id, held, refusal.Error())
}
