package ec2

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

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
			return c.judgeSnapshot(ctx, *snap, want)
		}
		created, err := c.createSnapshot(ctx, want)
		switch {
		case err == nil:
			return created, nil
		case errors.Is(err, ebs.ErrMaybeAccepted):
			c.noteUnsure("snapshot "+want.Name, ebs.Zone{})
			if ctx.Err() != nil {
				return ebs.Snapshot{}, err
			}
			if snap, lookErr := c.sentBefore(ctx, want.Name); lookErr == nil && snap != nil {
				return c.judgeSnapshot(ctx, *snap, want)
			}
			return ebs.Snapshot{}, err
		case hasCode(err, "SnapshotCreationPerVolumeRateExceeded") && c.timeFor(ctx, snapshotSpacing):
			if err := c.sleep(ctx, snapshotSpacing); err != nil {
				return ebs.Snapshot{}, err
			}
		default:
			return ebs.Snapshot{}, err
		}
	}
}

// timeFor says whether ctx lasts longer than d.
func (c *Client) timeFor(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > d+time.Second
}

// judgeSnapshot compares a snapshot that carries the name with what is wanted.
// One that EC2 could not complete holds nothing and never will: it is deleted,
// so that the next call takes another and nothing is left behind.
func (c *Client) judgeSnapshot(ctx context.Context, snap ebs.Snapshot, want ebs.SnapshotRequest) (ebs.Snapshot, error) {
	switch {
	case snap.Volume != want.Volume:
		return ebs.Snapshot{}, fmt.Errorf("%w: snapshot %s has the name and is of volume %s, wanted is one of %s", ebs.ErrAlreadyExists, snap.ID, snap.Volume, want.Volume)
	case snap.State == ebs.SnapshotFailed:
		if err := c.DeleteSnapshot(ctx, snap.ID); err != nil {
			return ebs.Snapshot{}, accepted(fmt.Errorf("delete snapshot %s, which EC2 could not complete: %w", snap.ID, err))
		}
		return ebs.Snapshot{}, fmt.Errorf("%w: EC2 could not complete snapshot %s: it is deleted, the next try takes another", ebs.ErrNotReady, snap.ID)
	}
	return snap, nil
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
	err = c.poll(ctx, lagPolls, func(ctx context.Context) (bool, error) {
		var err error
		snap, err = c.snapshotByName(ctx, name)
		return snap != nil || !c.clock.Now().Before(until), err
	})
	return snap, err
}

// snapshotByName looks for the snapshot that carries a name; the oldest where
// several do, so that every caller gets the same.
func (c *Client) snapshotByName(ctx context.Context, name string) (*ebs.Snapshot, error) {
	var found []ebs.Snapshot
	pages := sdk.NewDescribeSnapshotsPaginator(c.api, &sdk.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: tagFilter(ebs.TagSnapshotName, name)})
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, s := range page.Snapshots {
			if snap := snapshotFrom(s); snap.Tags[ebs.TagSnapshotName] == name {
				found = append(found, snap)
			}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	sort.Slice(found, func(i, j int) bool {
		if !found[i].StartTime.Equal(found[j].StartTime) {
			return found[i].StartTime.Before(found[j].StartTime)
		}
		return found[i].ID < found[j].ID
	})
	return &found[0], nil
}

// createSnapshot sends CreateSnapshot exactly once: the SDK's own repeat after
// a lost answer would make a second snapshot.
func (c *Client) createSnapshot(ctx context.Context, want ebs.SnapshotRequest) (ebs.Snapshot, error) {
	in := &sdk.CreateSnapshotInput{
		VolumeId:          aws.String(string(want.Volume)),
		Description:       aws.String("Created by Holdfast for volume " + string(want.Volume)),
		TagSpecifications: tagSpecification(types.ResourceTypeSnapshot, want.Tags),
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.CreateSnapshotOutput, error) {
		return c.api.CreateSnapshot(ctx, in, func(o *sdk.Options) { o.Retryer = aws.NopRetryer{} })
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
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) {
		return c.api.DescribeSnapshots(ctx, &sdk.DescribeSnapshotsInput{SnapshotIds: []string{string(q.ID)}})
	})
	if errors.Is(err, ebs.ErrNotFound) {
		return ebs.SnapshotPage{}, nil
	}
	if err != nil {
		return ebs.SnapshotPage{}, err
	}
	var page ebs.SnapshotPage
	for _, s := range out.Snapshots {
		if snap := snapshotFrom(s); q.Volume == "" || snap.Volume == q.Volume {
			page.Snapshots = append(page.Snapshots, snap)
		}
	}
	return page, nil
}

func snapshotFrom(s types.Snapshot) ebs.Snapshot {
	return ebs.Snapshot{
		ID: ebs.SnapshotID(aws.ToString(s.SnapshotId)), Volume: ebs.VolumeID(aws.ToString(s.VolumeId)), Size: ebs.GiB(aws.ToInt32(s.VolumeSize)),
		State: ebs.SnapshotState(s.State), StartTime: aws.ToTime(s.StartTime), Tags: tagsFrom(s.Tags),
	}
}
