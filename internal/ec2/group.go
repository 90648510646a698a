package ec2

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// looksPerGroup is how often an instance's volumes are looked at before one
// CreateSnapshots: EC2 refuses to leave out a volume that was detached meanwhile.
const looksPerGroup = 3

// EnsureGroup takes snapshots of volumes at one instant, or finds those that an
// earlier call took. It does not wait until they are completed.
//
// EC2 takes the snapshots of the volumes of one instance, but for those that
// the call leaves out, all or none (CreateSnapshots). What was attached between
// look and call is taken too: such strays carry the group's tags and are deleted.
//
//	snapshots of the name  of these volumes           they, without strays
//	                       of other volumes           ErrAlreadyExists
//	                       one failed                 ErrSnapshotFailed
//	                       one is missing, or double  ErrNotReady: nothing is deleted on doubt
//	none                   all of one instance        taken
//	                       of several, or of none     ErrNotTogether
func (c *Client) EnsureGroup(ctx context.Context, want ebs.GroupRequest) (ebs.SnapshotGroup, error) {
	for {
		found, err := c.groupSentBefore(ctx, want.Name)
		if err != nil {
			return ebs.SnapshotGroup{}, accepted(fmt.Errorf("look for snapshots of that name: %w", err))
		}
		if len(found) > 0 {
			return c.foundGroup(ctx, found, want)
		}
		if err := c.checkExtras(ctx, want.FastRestoreZones, want.Lock); err != nil {
			return ebs.SnapshotGroup{}, err
		}
		made, err := c.takeGroup(ctx, want)
		switch {
		case err == nil:
			// The answer may not reach the caller, whose repeat may come before EC2 shows the snapshots.
			c.noteUnsure("group "+want.Name, ebs.Zone{})
			return c.madeGroup(ctx, made, want)
		case errors.Is(err, ebs.ErrMaybeAccepted):
			c.noteUnsure("group "+want.Name, ebs.Zone{})
			if ctx.Err() != nil {
				return ebs.SnapshotGroup{}, err
			}
			if found, lookErr := c.groupSentBefore(ctx, want.Name); lookErr == nil && len(found) > 0 {
				return c.foundGroup(ctx, found, want)
			}
			return ebs.SnapshotGroup{}, err
		case hasCode(err, "SnapshotCreationPerVolumeRateExceeded") && c.timeFor(ctx, snapshotSpacing):
			if err := sleep(ctx, c.clock, snapshotSpacing); err != nil {
				return ebs.SnapshotGroup{}, err
			}
		default:
			return ebs.SnapshotGroup{}, c.maybeTaken(err)
		}
	}
}

// groupSentBefore looks for the snapshots of a name, for as long as some may be
// there that cannot be seen yet, as sentBefore does.
func (c *Client) groupSentBefore(ctx context.Context, name string) ([]ebs.Snapshot, error) {
	found, err := c.groupByName(ctx, name)
	if err != nil || len(found) > 0 {
		return found, err
	}
	until, _ := c.unsureUntil("group " + name)
	if !c.clock.Now().Before(until) {
		return nil, nil
	}
	err = c.poll(ctx, lagPolls, func(ctx context.Context) (bool, error) {
		var err error
		found, err = c.groupByName(ctx, name)
		return len(found) > 0 || !c.clock.Now().Before(until), err
	})
	return found, err
}

// groupByName are the snapshots that carry the name of a group, the oldest first.
func (c *Client) groupByName(ctx context.Context, name string) ([]ebs.Snapshot, error) {
	var found []ebs.Snapshot
	pages := sdk.NewDescribeSnapshotsPaginator(c.api, &sdk.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: tagFilter(ebs.TagGroupName, name)})
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, s := range page.Snapshots {
			if snap := snapshotFrom(s); snap.Tags[ebs.TagGroupName] == name {
				found = append(found, snap)
			}
		}
	}
	slices.SortFunc(found, func(a, b ebs.Snapshot) int {
		if byTime := a.StartTime.Compare(b.StartTime); byTime != 0 {
			return byTime
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return found, nil
}

// takeGroup finds the instance that has the volumes and takes its snapshots.
func (c *Client) takeGroup(ctx context.Context, want ebs.GroupRequest) ([]ebs.Snapshot, error) {
	on, err := c.instanceOfAll(ctx, want.Volumes)
	if err != nil {
		return nil, err
	}
	var before []ebs.VolumeID
	for look := 1; ; look++ {
		i, err := c.instance(ctx, on)
		if err != nil {
			return nil, err
		}
		leaveOut, withRoot := besides(i, want.Volumes)
		if len(leaveOut) > maxExcluded {
			return nil, fmt.Errorf("%w: %d other volumes are attached to %s, and EC2 can leave out %d at most", ebs.ErrNotTogether, len(leaveOut), on, maxExcluded)
		}
		made, err := c.createSnapshots(ctx, on, leaveOut, withRoot, want)
		if !errors.Is(err, ebs.ErrInvalid) || look == looksPerGroup || look > 1 && slices.Equal(before, leaveOut) {
			return made, err
		}
		before = leaveOut
	}
}

// instanceOfAll is the instance that all volumes are attached to.
func (c *Client) instanceOfAll(ctx context.Context, ids []ebs.VolumeID) (ebs.InstanceID, error) {
	var volumes []ebs.Volume
	for part := range slices.Chunk(ids, maxKeys) {
		found, err := c.describeVolumes(ctx, filter("volume-id", part...))
		if err != nil {
			return "", fmt.Errorf("look up the volumes: %w", err)
		}
		volumes = append(volumes, found...)
	}
	return commonInstance(ids, volumes)
}

// createSnapshots sends CreateSnapshots until EC2 may have accepted it, and no
// more: EC2 has no client token for it, and the SDK's own repeat after a lost
// answer would take a second set.
func (c *Client) createSnapshots(ctx context.Context, on ebs.InstanceID, leaveOut []ebs.VolumeID, withRoot bool, want ebs.GroupRequest) ([]ebs.Snapshot, error) {
	in := &sdk.CreateSnapshotsInput{
		InstanceSpecification: &types.InstanceSpecification{
			InstanceId: aws.String(string(on)), ExcludeBootVolume: aws.Bool(!withRoot), ExcludeDataVolumeIds: texts(leaveOut),
		},
		Description:       aws.String("Created by Holdfast for the volume group snapshot " + want.Name),
		TagSpecifications: tagSpecification(types.ResourceTypeSnapshot, want.Tags),
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.CreateSnapshotsOutput, error) {
		return c.api.CreateSnapshots(ctx, in, c.onlyThrottled)
	})
	if err != nil {
		return nil, err
	}
	var made []ebs.Snapshot
	for _, s := range out.Snapshots {
		made = append(made, snapshotFrom(types.Snapshot{
			SnapshotId: s.SnapshotId, VolumeId: s.VolumeId, VolumeSize: s.VolumeSize, State: s.State, StartTime: s.StartTime, Tags: s.Tags,
		}))
	}
	return made, nil
}

// madeGroup is the group that a call has just taken. A volume that was detached
// between look and call has no snapshot: nobody knows of the others yet, and
// they are deleted, since the next call must take all anew.
func (c *Client) madeGroup(ctx context.Context, made []ebs.Snapshot, want ebs.GroupRequest) (ebs.SnapshotGroup, error) {
	g := sortGroup(made, want.Volumes)
	if len(g.missing) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Volumes were detached while their group was taken: what was taken is deleted", "volumeIDs", g.missing, "snapshotIDs", snapshotIDs(made))
		if err := c.deleteSnapshots(ctx, snapshotIDs(made)); err != nil {
			return ebs.SnapshotGroup{}, accepted(fmt.Errorf("delete snapshots of a group in which %s is missing: %w", list(g.missing), err))
		}
		return ebs.SnapshotGroup{}, fmt.Errorf("%w: %s was detached while the snapshots were taken: those of the other volumes are deleted, the next try takes all anew", ebs.ErrNotReady, list(g.missing))
	}
	return c.completeGroup(ctx, g, want, true)
}

// foundGroup compares snapshots that carry the name with what is wanted.
func (c *Client) foundGroup(ctx context.Context, found []ebs.Snapshot, want ebs.GroupRequest) (ebs.SnapshotGroup, error) {
	for _, snap := range found {
		if snap.Tags[ebs.TagGroupVolumes] != want.Tags[ebs.TagGroupVolumes] {
			return ebs.SnapshotGroup{}, fmt.Errorf("%w: the name belongs to snapshots of other volumes, among them %s of %s", ebs.ErrAlreadyExists, snap.ID, snap.Volume)
		}
	}
	g := sortGroup(found, want.Volumes)
	switch {
	case len(g.missing) > 0:
		return ebs.SnapshotGroup{}, fmt.Errorf("%w: of the volumes %s EC2 shows no snapshot of the name, of the others it does: if that lasts, delete %s and all are taken anew",
			ebs.ErrNotReady, list(g.missing), list(snapshotIDs(found)))
	case len(g.double) > 0:
		return ebs.SnapshotGroup{}, fmt.Errorf("%w: several snapshots of one volume carry the tag %s=%s: keep those that were taken at one time and delete or rename the others, among them %s",
			ebs.ErrNotReady, ebs.TagGroupName, want.Name, list(snapshotIDs(g.double)))
	}
	for _, snap := range g.members {
		// As with a single snapshot, no other is taken in its place.
		if snap.State == ebs.SnapshotFailed {
			return ebs.SnapshotGroup{}, fmt.Errorf("%w: snapshot %s of volume %s: delete the group and take another", ebs.ErrSnapshotFailed, snap.ID, snap.Volume)
		}
	}
	return c.completeGroup(ctx, g, want, false)
}

// completeGroup deletes strays and adds what the snapshots lack.
func (c *Client) completeGroup(ctx context.Context, g sortedGroup, want ebs.GroupRequest, fresh bool) (ebs.SnapshotGroup, error) {
	if len(g.strays) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Snapshots of volumes that are not of the group were taken too: they are deleted", "snapshotIDs", snapshotIDs(g.strays))
		if err := c.deleteSnapshots(ctx, snapshotIDs(g.strays)); err != nil {
			return ebs.SnapshotGroup{}, accepted(fmt.Errorf("delete snapshots that were taken besides: %w", err))
		}
	}
	return ebs.SnapshotGroup{ID: ebs.GroupID(want.Name), Snapshots: g.members},
		c.addExtras(ctx, snapshotIDs(g.members), want.FastRestoreZones, want.Lock, fresh)
}

// Group looks a group up; ErrNotFound where no snapshot carries its name.
func (c *Client) Group(ctx context.Context, id ebs.GroupID) (ebs.SnapshotGroup, error) {
	found, err := c.groupByName(ctx, string(id))
	if err != nil {
		return ebs.SnapshotGroup{}, err
	}
	if len(found) == 0 {
		return ebs.SnapshotGroup{}, fmt.Errorf("%w: no snapshot carries the tag %s=%s", ebs.ErrNotFound, ebs.TagGroupName, id)
	}
	slices.SortFunc(found, func(a, b ebs.Snapshot) int { return strings.Compare(string(a.Volume), string(b.Volume)) })
	return ebs.SnapshotGroup{ID: id, Snapshots: found}, nil
}

// DeleteGroup deletes the snapshots of a group, one after the other: a call that
// is cut short is gone on with by the next. Those that are gone already are no
// error. members are the snapshots that the caller takes for the group's, if it
// tells: one that is not, on either side, is ErrInvalid, and nothing is deleted.
func (c *Client) DeleteGroup(ctx context.Context, id ebs.GroupID, members []ebs.SnapshotID) error {
	found, err := c.groupByName(ctx, string(id))
	if err != nil {
		return fmt.Errorf("look for the group's snapshots: %w", err)
	}
	all := snapshotIDs(found)
	for _, snap := range all {
		if len(members) > 0 && !slices.Contains(members, snap) {
			return fmt.Errorf("%w: snapshot %s is of the group and not among those that are to be deleted: %s", ebs.ErrInvalid, snap, list(members))
		}
	}
	for _, snap := range members {
		if slices.Contains(all, snap) {
			continue
		}
		// It is deleted already, or not shown yet, or somebody else's.
		page, err := c.snapshotByID(ctx, ebs.SnapshotQuery{ID: snap})
		switch {
		case err != nil:
			return fmt.Errorf("look for snapshot %s: %w", snap, err)
		case len(page.Snapshots) == 0:
			all = append(all, snap) // EC2 may not show it yet: its answer to the deletion is what says
		case page.Snapshots[0].Tags[ebs.TagGroupName] != string(id):
			return fmt.Errorf("%w: snapshot %s is not of the group", ebs.ErrInvalid, snap)
		default:
			all = append(all, snap)
		}
	}
	return c.deleteSnapshots(ctx, all)
}
