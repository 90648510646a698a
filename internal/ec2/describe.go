package ec2

import (
	"context"
	"fmt"
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
// does not show is taken for absent only after it was missing for a while.
// https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
type lookups struct {
	volumes   *batcher[ebs.VolumeID, ebs.Volume]
	named     *batcher[string, []ebs.Volume] // by ebs.TagVolumeName
	instances *batcher[ebs.InstanceID, instance]
	// initializations alone are asked by ids, see fetchInitializations.
	initializations *batcher[ebs.VolumeID, initialization]
}

func (c *Client) newLookups() lookups {
	return lookups{
		volumes:   newBatcher(c.clock, c.fetchVolumes),
		named:     newBatcher(c.clock, c.fetchNamed),
		instances: newBatcher(c.clock, c.fetchInstances),

		initializations: newBatcher(c.clock, c.fetchInitializations),
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
