package ec2

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// lookups are the batched look-ups of a client, by what they look for. They ask
// EC2 by filter, not by list of ids: a filter finds what there is, where a list
// is refused as a whole for one id that EC2 does not know, or not any more. EC2
// promises no other consistency for the one than for the other; what either
// does not show is taken for absent only after it was missing for a while. The
// exceptions say why, see fetchSnapshots and fetchInitializations.
// https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
type lookups struct {
	volumes   *batcher[ebs.VolumeID, ebs.Volume]
	named     *batcher[string, []ebs.Volume] // by ebs.TagVolumeName
	instances *batcher[ebs.InstanceID, instance]
	changes   *batcher[ebs.VolumeID, []types.VolumeModification]

	initializations *batcher[ebs.VolumeID, initialization]

	snapshots      *batcher[ebs.SnapshotID, ebs.Snapshot]
	namedSnapshots *batcher[string, []ebs.Snapshot] // by ebs.TagSnapshotName
}

func (c *Client) newLookups() lookups {
	return lookups{
		volumes:   newBatcher(c.clock, c.fetchVolumes),
		named:     newBatcher(c.clock, c.fetchNamed),
		instances: newBatcher(c.clock, c.fetchInstances),
		changes:   newBatcher(c.clock, c.fetchChanges),

		initializations: newBatcher(c.clock, c.fetchInitializations),

		snapshots:      newBatcher(c.clock, c.fetchSnapshots),
		namedSnapshots: newBatcher(c.clock, c.fetchNamedSnapshots),
	}
}

func (c *Client) fetchVolumes(ctx context.Context, ids []ebs.VolumeID) (map[ebs.VolumeID]ebs.Volume, error) {
	volumes, err := c.describeVolumes(ctx, filter("volume-id", ids...))
	found := map[ebs.VolumeID]ebs.Volume{}
	for _, v := range volumes {
		found[v.ID] = v
	}
	return found, err
}

func (c *Client) fetchNamed(ctx context.Context, names []string) (map[string][]ebs.Volume, error) {
	volumes, err := c.describeVolumes(ctx, filter("tag:"+ebs.TagVolumeName, names...))
	found := map[string][]ebs.Volume{}
	for _, v := range volumes {
		name := v.Tags[ebs.TagVolumeName]
		found[name] = append(found[name], v)
	}
	return found, err
}

func (c *Client) fetchChanges(ctx context.Context, ids []ebs.VolumeID) (map[ebs.VolumeID][]types.VolumeModification, error) {
	found := map[ebs.VolumeID][]types.VolumeModification{}
	pages := sdk.NewDescribeVolumesModificationsPaginator(c.api, &sdk.DescribeVolumesModificationsInput{Filters: filter("volume-id", ids...), MaxResults: aws.Int32(maxChangesPage)})
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumesModificationsOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, m := range page.VolumesModifications {
			id := ebs.VolumeID(aws.ToString(m.VolumeId))
			found[id] = append(found[id], m)
		}
	}
	return found, nil
}

// fetchSnapshots asks by a list of ids: a snapshot may be another account's,
// and a filter would have EC2 search all that anybody has made public. What EC2
// does not know it names, and is asked for the rest.
func (c *Client) fetchSnapshots(ctx context.Context, ids []ebs.SnapshotID) (map[ebs.SnapshotID]ebs.Snapshot, error) {
	found := map[ebs.SnapshotID]ebs.Snapshot{}
	err := eachKnown(ids, func(some []ebs.SnapshotID) error {
		in := &sdk.DescribeSnapshotsInput{}
		for _, id := range some {
			in.SnapshotIds = append(in.SnapshotIds, string(id))
		}
		snapshots, err := c.describeSnapshots(ctx, in)
		for _, s := range snapshots {
			found[s.ID] = s
		}
		return err
	})
	return found, err
}

// eachKnown has a call that is refused for a single id succeed for all others:
// without those that the refusal names, else for each half.
func eachKnown[K ~string](ids []K, call func(ids []K) error) error {
	if len(ids) == 0 {
		return nil
	}
	err := call(ids)
	if !errors.Is(err, ebs.ErrNotFound) {
		return err
	}
	named := messageWords(err)
	rest := slices.DeleteFunc(slices.Clone(ids), func(id K) bool { return named[string(id)] })
	switch {
	case len(rest) < len(ids):
		return eachKnown(rest, call)
	case len(ids) == 1:
		return nil
	}
	half := len(ids) / 2
	if err := eachKnown(ids[:half], call); err != nil {
		return err
	}
	return eachKnown(ids[half:], call)
}

func (c *Client) fetchNamedSnapshots(ctx context.Context, names []string) (map[string][]ebs.Snapshot, error) {
	snapshots, err := c.describeSnapshots(ctx, &sdk.DescribeSnapshotsInput{
		OwnerIds: []string{"self"}, Filters: filter("tag:"+ebs.TagSnapshotName, names...), MaxResults: aws.Int32(maxPage),
	})
	found := map[string][]ebs.Snapshot{}
	for _, s := range snapshots {
		name := s.Tags[ebs.TagSnapshotName]
		found[name] = append(found[name], s)
	}
	return found, err
}

func (c *Client) describeSnapshots(ctx context.Context, in *sdk.DescribeSnapshotsInput) ([]ebs.Snapshot, error) {
	var snapshots []ebs.Snapshot
	pages := sdk.NewDescribeSnapshotsPaginator(c.api, in)
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeSnapshotsOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, s := range page.Snapshots {
			snapshots = append(snapshots, snapshotFrom(s))
		}
	}
	return snapshots, nil
}

func (c *Client) describeVolumes(ctx context.Context, filters []types.Filter) ([]ebs.Volume, error) {
	var volumes []ebs.Volume
	pages := sdk.NewDescribeVolumesPaginator(c.api, &sdk.DescribeVolumesInput{Filters: filters, MaxResults: aws.Int32(maxPage)})
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumesOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, v := range page.Volumes {
			volumes = append(volumes, volumeFrom(v))
		}
	}
	return volumes, nil
}

// volumeWithin looks a volume up within a time; ErrNotFound where there is none.
func (c *Client) volumeWithin(ctx context.Context, id ebs.VolumeID, within time.Duration) (ebs.Volume, error) {
	if !id.WellFormed() {
		return ebs.Volume{}, fmt.Errorf("%w: %q is no volume id", ebs.ErrNotFound, id)
	}
	vol, found, err := c.lookups.volumes.get(ctx, id, within)
	if err == nil && !found {
		err = fmt.Errorf("%w: volume %s", ebs.ErrNotFound, id)
	}
	return vol, err
}

// namedWithin looks within a time for the volume that carries a name; nil where
// EC2 shows none that is there to stay.
func (c *Client) namedWithin(ctx context.Context, name string, within time.Duration) (*ebs.Volume, error) {
	volumes, _, err := c.lookups.named.get(ctx, name, within)
	if err != nil {
		return nil, err
	}
	var found []ebs.Volume
	for _, v := range volumes {
		if v.Exists() {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	return nil, fmt.Errorf("%w: %d volumes carry the tag %s=%s, among them %s and %s: delete or rename all but one", ebs.ErrNotReady, len(found), ebs.TagVolumeName, name, found[0].ID, found[1].ID)
}

// filter finds what has one of the values. EC2 takes * and ? in them for
// wildcards unless they are escaped.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
func filter[T ~string](name string, values ...T) []types.Filter {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)
	f := types.Filter{Name: aws.String(name)}
	for _, v := range values {
		f.Values = append(f.Values, escape.Replace(string(v)))
	}
	return []types.Filter{f}
}

// tagFilter finds what carries a tag.
func tagFilter(key, value string) []types.Filter { return filter("tag:"+key, value) }
