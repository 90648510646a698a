package ec2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// snapshotSpacing is how far apart EC2 wants two snapshots of one volume, see
// SnapshotCreationPerVolumeRateExceeded at
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
const snapshotSpacing = 15 * time.Second

// EnsureSnapshot starts the snapshot, or finds it where an earlier call did. It
// does not wait until the snapshot is completed.
func (c *Client) EnsureSnapshot(ctx context.Context, want ebs.SnapshotRequest) (ebs.Snapshot, error) {
	if !want.Volume.WellFormed() {
		return ebs.Snapshot{}, fmt.Errorf("%w: %q is no volume id", ebs.ErrNotFound, want.Volume)
	}
	for {
		snap, err := c.sentBefore(ctx, want.Name)
		if err != nil {
			return ebs.Snapshot{}, accepted(fmt.Errorf("look for a snapshot of that name: %w", err))
		}
		if snap != nil {
			return c.foundSnapshot(ctx, *snap, want)
		}
		// Only now: what was right when the snapshot was taken may not be any
		// more, and a final answer would make the caller forget the snapshot.
		if err := c.checkExtras(ctx, want.FastRestoreZones, want.Lock); err != nil {
			return ebs.Snapshot{}, err
		}
		created, err := c.createSnapshot(ctx, want)
		switch {
		case err == nil:
			// The answer may not reach the caller, whose repeat may come before EC2 shows the snapshot.
			c.noteUnsure("snapshot "+want.Name, ebs.Zone{})
			return created, c.addExtras(ctx, []ebs.SnapshotID{created.ID}, want.FastRestoreZones, want.Lock, true)
		case errors.Is(err, ebs.ErrMaybeAccepted):
			c.noteUnsure("snapshot "+want.Name, ebs.Zone{})
			if ctx.Err() != nil {
				return ebs.Snapshot{}, err
			}
			if snap, lookErr := c.sentBefore(ctx, want.Name); lookErr == nil && snap != nil {
				return c.foundSnapshot(ctx, *snap, want)
			}
			return ebs.Snapshot{}, err
		case hasCode(err, "SnapshotCreationPerVolumeRateExceeded") && c.timeFor(ctx, snapshotSpacing):
			if err := sleep(ctx, c.clock, snapshotSpacing); err != nil {
				return ebs.Snapshot{}, err
			}
		default:
			return ebs.Snapshot{}, c.maybeTaken(err)
		}
	}
}

// maybeTaken marks the refusal of a snapshot for the rate of its volume: shortly
// after this process began, the snapshot that the rate counts may be the wanted
// one, taken by a process before it and not shown yet.
func (c *Client) maybeTaken(err error) error {
	if hasCode(err, "SnapshotCreationPerVolumeRateExceeded") && c.clock.Since(c.started) < appearWithin {
		return accepted(err)
	}
	return err
}

// timeFor says whether ctx lasts longer than d.
func (c *Client) timeFor(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > d+time.Second
}

// foundSnapshot compares a snapshot that carries the name with what is wanted,
// and adds what it lacks.
//
// One that EC2 could not complete holds nothing and never will. No other is
// taken in its place: csi-snapshotter keeps the first id that it is told and
// would take another snapshot's state for this one's
// (external-snapshotter, updateSnapshotContentStatus).
func (c *Client) foundSnapshot(ctx context.Context, snap ebs.Snapshot, want ebs.SnapshotRequest) (ebs.Snapshot, error) {
	switch {
	case snap.Volume != want.Volume:
		return ebs.Snapshot{}, fmt.Errorf("%w: snapshot %s has the name and is of volume %s, wanted is one of %s", ebs.ErrAlreadyExists, snap.ID, snap.Volume, want.Volume)
	case snap.State == ebs.SnapshotFailed:
		return ebs.Snapshot{}, fmt.Errorf("%w: snapshot %s: delete it and take another", ebs.ErrSnapshotFailed, snap.ID)
	}
	return snap, c.addExtras(ctx, []ebs.SnapshotID{snap.ID}, want.FastRestoreZones, want.Lock, false)
}

// checkExtras judges what snapshots are to have besides their content, before
// any is taken.
func (c *Client) checkExtras(ctx context.Context, fastZones []string, lock *ebs.SnapshotLock) error {
	if lock != nil {
		if err := lock.CheckEnd(c.clock.Now()); err != nil {
			return err
		}
	}
	if err := c.checkZones(ctx, fastZones); err != nil {
		return fmt.Errorf("fast restore: %w", err)
	}
	return nil
}

// addExtras adds fast restore and lock to snapshots that lack them: what they
// have is asked of EC2, unless they were just taken. Neither waits for the
// other, nor for the snapshots' completion, and whatever goes wrong the
// snapshots stay: the next call adds what is missing.
func (c *Client) addExtras(ctx context.Context, ids []ebs.SnapshotID, fastZones []string, lock *ebs.SnapshotLock, fresh bool) error {
	return accepted(errors.Join(
		c.lockSnapshots(ctx, ids, lock, fresh),
		c.enableFastRestores(ctx, ids, fastZones, fresh)))
}

// sentBefore looks for the snapshot of a name, for as long as one may be there
// that cannot be seen yet; nil where there is none. EC2 knows no client token
// for snapshots, so this look is all that keeps a name from getting two.
func (c *Client) sentBefore(ctx context.Context, name string) (*ebs.Snapshot, error) {
	snap, err := c.snapshotByName(ctx, name)
	if err != nil || snap != nil {
		return snap, err
	}
	until, _ := c.unsureUntil("snapshot " + name)
	if !c.clock.Now().Before(until) {
		return nil, nil
	}
	err = c.watch(ctx, lagPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		var err error
		snap, err = c.namedSnapshotWithin(ctx, name, within)
		return snap != nil || !c.clock.Now().Before(until), err
	})
	return snap, err
}

// snapshotByName looks for the snapshot that carries a name; the oldest where
// several do, so that every caller gets the same.
func (c *Client) snapshotByName(ctx context.Context, name string) (*ebs.Snapshot, error) {
	return c.namedSnapshotWithin(ctx, name, 0)
}

// namedSnapshotWithin is snapshotByName for a look that may take a time.
func (c *Client) namedSnapshotWithin(ctx context.Context, name string, within time.Duration) (*ebs.Snapshot, error) {
	found, _, err := c.lookups.namedSnapshots.get(ctx, name, within)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, nil
	}
	oldest := slices.MinFunc(found, func(a, b ebs.Snapshot) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(a.ID, b.ID))
	})
	return &oldest, nil
}

// createSnapshot sends CreateSnapshot until EC2 may have accepted it, and no more:
// the SDK's own repeat after a lost answer would make a second snapshot.
func (c *Client) createSnapshot(ctx context.Context, want ebs.SnapshotRequest) (ebs.Snapshot, error) {
	in := &sdk.CreateSnapshotInput{
		VolumeId:          aws.String(string(want.Volume)),
		Description:       aws.String("Created by Holdfast for volume " + string(want.Volume)),
		TagSpecifications: tagSpecification(types.ResourceTypeSnapshot, want.Tags),
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.CreateSnapshotOutput, error) {
		return c.api.CreateSnapshot(ctx, in, c.onlyThrottled)
	})
	if err != nil {
		return ebs.Snapshot{}, err
	}
	return snapshotFrom(types.Snapshot{
		SnapshotId: out.SnapshotId, VolumeId: out.VolumeId, VolumeSize: out.VolumeSize,
		State: out.State, StartTime: out.StartTime, Tags: out.Tags,
	}), nil
}

// DeleteSnapshot deletes a snapshot; one that does not exist is no error.
func (c *Client) DeleteSnapshot(ctx context.Context, id ebs.SnapshotID) error {
	return c.deleteSnapshots(ctx, []ebs.SnapshotID{id})
}

// deleteSnapshots deletes snapshots, in their order, and stops at the first that
// cannot be deleted.
//
//	EC2 has deleted it, or has none           the next
//	it is locked                              ErrInUse, with the lock and its end
//	its fast restore is on somewhere          turned off, waited for, deleted last
//	an image is made of it, or anything else  what EC2 says
//
// Fast restore is looked at only where EC2 has refused, and turned off only
// where no lock keeps the snapshot anyway.
func (c *Client) deleteSnapshots(ctx context.Context, ids []ebs.SnapshotID) error {
	var fast []ebs.SnapshotID
	for _, id := range ids {
		err := c.deleteSnapshot(ctx, id)
		switch {
		case err == nil:
		case !isRefusal(err):
			return err
		default:
			if held, lockErr := c.heldByLock(ctx, id); held != "" || lockErr != nil {
				// The word for EC2's own code says less than the lock does.
				return errors.Join(lockErr, heldError(id, held, err))
			}
			states, lookErr := c.fastRestores(ctx, []ebs.SnapshotID{id})
			if lookErr != nil || len(states.on(id)) == 0 || messageHas(err, "by ami-") {
				return errors.Join(err, lookErr)
			}
			fast = append(fast, id)
		}
	}
	if len(fast) == 0 {
		return nil
	}
	logr.FromContextOrDiscard(ctx).Info("Fast restore is turned off before the deletion", "snapshotIDs", fast)
	if err := c.disableFastRestores(ctx, fast); err != nil {
		return accepted(err)
	}
	for _, id := range fast {
		if err := c.deleteSnapshot(ctx, id); err != nil {
			return accepted(err)
		}
	}
	return nil
}

func (c *Client) deleteSnapshot(ctx context.Context, id ebs.SnapshotID) error {
	if !id.WellFormed() {
		return nil
	}
	_, err := mutate(ctx, func(ctx context.Context) (*sdk.DeleteSnapshotOutput, error) {
		return c.api.DeleteSnapshot(ctx, &sdk.DeleteSnapshotInput{SnapshotId: aws.String(string(id))})
	})
	if errors.Is(err, ebs.ErrNotFound) {
		return nil
	}
	return err
}

// isRefusal says whether EC2 has said no for a reason that lies in the thing
// itself. Which code it has for a locked snapshot is not documented.
func isRefusal(err error) bool {
	for _, other := range []error{ebs.ErrMaybeAccepted, ebs.ErrThrottled, ebs.ErrUnavailable} {
		if errors.Is(err, other) {
			return false
		}
	}
	return isAnswer(err) && !hasCode(err, "UnauthorizedOperation")
}

// ListSnapshots answers one page of snapshots: the one with an id, those of a
// volume, or all that the account owns. What does not exist is an empty page.
func (c *Client) ListSnapshots(ctx context.Context, q ebs.SnapshotQuery) (ebs.SnapshotPage, error) {
	if q.ID != "" {
		return c.snapshotByID(ctx, q)
	}
	if q.Volume != "" && !q.Volume.WellFormed() {
		return ebs.SnapshotPage{}, nil
	}
	at, err := parsePageToken(q.Token)
	if err != nil {
		return ebs.SnapshotPage{}, err
	}
	at = at.sizedFor(q.MaxEntries)
	in := &sdk.DescribeSnapshotsInput{OwnerIds: []string{"self"}, MaxResults: aws.Int32(at.size), NextToken: at.nextToken()}
	if q.Volume != "" {
		in.Filters = []types.Filter{{Name: aws.String("volume-id"), Values: []string{string(q.Volume)}}}
	}
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) {
		return c.api.DescribeSnapshots(ctx, in)
	})
	if err != nil {
		return ebs.SnapshotPage{}, err
	}
	var page ebs.SnapshotPage
	part, next := at.cut(len(out.Snapshots), out.NextToken, q.MaxEntries)
	for _, s := range out.Snapshots[part.from:part.to] {
		page.Snapshots = append(page.Snapshots, snapshotFrom(s))
	}
	if next != nil {
		page.NextToken = next.String()
	}
	return page, nil
}

func (c *Client) snapshotByID(ctx context.Context, q ebs.SnapshotQuery) (ebs.SnapshotPage, error) {
	if !q.ID.WellFormed() {
		return ebs.SnapshotPage{}, nil
	}
	snap, found, err := c.lookups.snapshots.get(ctx, q.ID, 0)
	if err != nil || !found || q.Volume != "" && snap.Volume != q.Volume {
		return ebs.SnapshotPage{}, err
	}
	return ebs.SnapshotPage{Snapshots: []ebs.Snapshot{snap}}, nil
}

func snapshotFrom(s types.Snapshot) ebs.Snapshot {
	return ebs.Snapshot{
		ID: ebs.SnapshotID(aws.ToString(s.SnapshotId)), Volume: ebs.VolumeID(aws.ToString(s.VolumeId)), Size: ebs.GiB(aws.ToInt32(s.VolumeSize)),
		State: ebs.SnapshotState(s.State), StartTime: aws.ToTime(s.StartTime), Tags: tagsFrom(s.Tags),
	}
}
