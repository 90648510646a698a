package ec2

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
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

// Pages of DescribeSnapshots: EC2 refuses fewer than 5 and gives 1000 at most.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSnapshots.html
const (
	minPage = 5
	maxPage = 1000
)

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
	if at.size == 0 {
		at.size = maxPage
		if q.MaxEntries > 0 {
			at.size = min(max(q.MaxEntries, minPage), maxPage)
		}
	}
	in := &sdk.DescribeSnapshotsInput{OwnerIds: []string{"self"}, MaxResults: aws.Int32(at.size)}
	if at.token != "" {
		in.NextToken = aws.String(at.token)
	}
	if q.Volume != "" {
		in.Filters = []types.Filter{{Name: aws.String("volume-id"), Values: []string{string(q.Volume)}}}
	}
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) {
		return c.api.DescribeSnapshots(ctx, in)
	})
	if err != nil {
		return ebs.SnapshotPage{}, err
	}
	return cutPage(out, at, q.MaxEntries), nil
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

// pagePosition says where a page begins: in EC2's page of a size behind a
// token, after some entries. CSI may ask for fewer entries than EC2 gives.
type pagePosition struct {
	size, skip int32
	token      string
}

// cutPage answers at most limit entries of EC2's page, 0 for all, and where the rest begins.
func cutPage(out *sdk.DescribeSnapshotsOutput, at pagePosition, limit int32) ebs.SnapshotPage {
	var page ebs.SnapshotPage
	rest := out.Snapshots[min(int(at.skip), len(out.Snapshots)):]
	if limit > 0 && int(limit) < len(rest) {
		rest = rest[:limit]
		next := at
		next.skip += limit
		page.NextToken = next.String()
	} else if token := aws.ToString(out.NextToken); token != "" {
		page.NextToken = pagePosition{size: at.size, token: token}.String()
	}
	for _, s := range rest {
		page.Snapshots = append(page.Snapshots, snapshotFrom(s))
	}
	return page
}

// String is the token that a caller gets.
func (p pagePosition) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%s", p.size, p.skip, p.token))
}

func parsePageToken(token string) (pagePosition, error) {
	if token == "" {
		return pagePosition{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(text), ".", 3)
	if err != nil || len(parts) != 3 {
		return pagePosition{}, fmt.Errorf("%w: %q", ebs.ErrInvalidToken, token)
	}
	size, sizeErr := strconv.ParseInt(parts[0], 10, 32)
	skip, skipErr := strconv.ParseInt(parts[1], 10, 32)
	if errors.Join(sizeErr, skipErr) != nil || size < minPage || size > maxPage || skip < 0 {
		return pagePosition{}, fmt.Errorf("%w: %q", ebs.ErrInvalidToken, token)
	}
	return pagePosition{size: int32(size), skip: int32(skip), token: parts[2]}, nil
}

func snapshotFrom(s types.Snapshot) ebs.Snapshot {
	return ebs.Snapshot{
		ID: ebs.SnapshotID(aws.ToString(s.SnapshotId)), Volume: ebs.VolumeID(aws.ToString(s.VolumeId)), Size: ebs.GiB(aws.ToInt32(s.VolumeSize)),
		State: ebs.SnapshotState(s.State), StartTime: aws.ToTime(s.StartTime), Tags: tagsFrom(s.Tags),
	}
}
