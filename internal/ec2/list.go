package ec2

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// volumeList is one of EC2's lists of volumes, and which of its entries count.
type volumeList struct {
	filters []types.Filter
	counts  func(ebs.Volume) bool
}

// volumeLists are the volumes that matter to a cluster: those that carry the
// driver's tag, attached or not, and then all that are attached to anything,
// since static volumes and those of the in-tree plugin carry no tag of ours. The
// EC2 API joins filters by "and" only, so these are two lists. What is in both
// counts in the first, whatever its attachments do meanwhile: no volume is
// missed, or answered twice, because it was attached between two pages.
//
// Which instances are the cluster's is not known here: volumes on others are
// listed too, which callers must stand (CSI, ListVolumes: published_node_ids).
var volumeLists = []volumeList{{
	filters: tagFilter(ebs.TagManaged, ebs.TagManagedValue),
	counts:  managed,
}, {
	filters: []types.Filter{{Name: aws.String("status"), Values: []string{string(ebs.VolumeInUse)}}},
	counts:  func(v ebs.Volume) bool { return !managed(v) },
}}

func managed(v ebs.Volume) bool { return v.Tags[ebs.TagManaged] == ebs.TagManagedValue }

// ListVolumes answers one page of the volumes that the driver made and of all
// others that are attached, each once. Where no number of entries is asked for, a
// page goes on until it has as many as one page of EC2 may have: callers that
// read no further get all volumes of most clusters, and no answer outgrows gRPC.
func (c *Client) ListVolumes(ctx context.Context, q ebs.VolumeQuery) (ebs.VolumePage, error) {
	volumes, next, err := collect(q, len(volumeLists), func(at pagePosition, limit int) ([]ebs.Volume, *pagePosition, error) {
		return c.listVolumes(ctx, at, limit)
	})
	return ebs.VolumePage{Volumes: volumes, NextToken: next}, err
}

// listVolumes answers what counts of EC2's page at a position, at most limit,
// and where the rest begins; nil after the last page of the last list.
func (c *Client) listVolumes(ctx context.Context, at pagePosition, limit int) ([]ebs.Volume, *pagePosition, error) {
	list := volumeLists[at.list]
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumesOutput, error) {
		return c.api.DescribeVolumes(ctx, &sdk.DescribeVolumesInput{
			Filters: list.filters, MaxResults: aws.Int32(at.size), NextToken: at.nextToken(),
		})
	})
	if err != nil {
		return nil, nil, err
	}
	var volumes []ebs.Volume
	for i := int(at.skip); i < len(out.Volumes); i++ {
		vol := volumeFrom(out.Volumes[i])
		if !list.counts(vol) || !vol.Exists() {
			continue
		}
		if len(volumes) == limit {
			return volumes, at.after(i), nil
		}
		volumes = append(volumes, vol)
	}
	next := at.nextPage(out.NextToken)
	if next == nil && int(at.list) < len(volumeLists)-1 {
		next = &pagePosition{list: at.list + 1, size: at.size}
	}
	return volumes, next, nil
}
