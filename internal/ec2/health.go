package ec2

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// failed is what a volume in state error means:
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-describing-volumes.html
var failed = ebs.Condition{
	Severity: ebs.DataLoss, Reason: "VolumeFailed",
	Message: "the volume is in state error: its hardware has failed and EBS cannot recover the data; restore it from a snapshot",
}

// Health is what EC2 knows to be wrong with a volume; ErrNotFound where there is none.
func (c *Client) Health(ctx context.Context, id ebs.VolumeID) (ebs.Health, error) {
	vol, err := c.Volume(ctx, id)
	switch {
	case err != nil:
		return ebs.Health{}, err
	case !vol.Exists():
		return ebs.Health{}, fmt.Errorf("%w: volume %s is in state %s", ebs.ErrNotFound, id, vol.State)
	case vol.State == ebs.VolumeError:
		return ebs.Health{Volume: id, Conditions: []ebs.Condition{failed}}, nil
	}
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumeStatusOutput, error) {
		return c.api.DescribeVolumeStatus(ctx, &sdk.DescribeVolumeStatusInput{VolumeIds: []string{string(id)}})
	})
	if err != nil {
		return ebs.Health{}, fmt.Errorf("look at the status of volume %s: %w", id, err)
	}
	health := ebs.Health{Volume: id}
	for _, s := range out.VolumeStatuses {
		health.Conditions = append(health.Conditions, conditionsOf(s)...)
	}
	return health, nil
}

// ListUnhealthy answers one page of the volumes with which something is wrong:
// those whose status checks say so, and then those in state error, of which EC2
// tells in another list. As in ListVolumes, volumes that are no cluster's are
// among them.
func (c *Client) ListUnhealthy(ctx context.Context, q ebs.VolumeQuery) (ebs.HealthPage, error) {
	lists := []func(ctx context.Context, at pagePosition) ([]ebs.Health, *string, error){c.unwellPage, c.failedPage}
	volumes, next, err := collect(q, len(lists), func(at pagePosition, limit int) ([]ebs.Health, *pagePosition, error) {
		entries, token, err := lists[at.list](ctx, at)
		if err != nil {
			return nil, nil, err
		}
		part, next := at.cut(len(entries), token, int32(limit))
		if next == nil && int(at.list) < len(lists)-1 {
			next = &pagePosition{list: at.list + 1, size: at.size}
		}
		return entries[part.from:part.to], next, nil
	})
	return ebs.HealthPage{Volumes: volumes, NextToken: next}, err
}

// unwellPage is EC2's page of volumes whose status checks are not passed.
func (c *Client) unwellPage(ctx context.Context, at pagePosition) ([]ebs.Health, *string, error) {
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumeStatusOutput, error) {
		return c.api.DescribeVolumeStatus(ctx, &sdk.DescribeVolumeStatusInput{
			Filters:    filter("volume-status.status", types.VolumeStatusInfoStatusImpaired, types.VolumeStatusInfoStatusWarning),
			MaxResults: aws.Int32(at.size), NextToken: at.nextToken(),
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list volumes by status: %w", err)
	}
	var unwell []ebs.Health
	for _, s := range out.VolumeStatuses {
		unwell = append(unwell, ebs.Health{Volume: ebs.VolumeID(aws.ToString(s.VolumeId)), Conditions: conditionsOf(s)})
	}
	return unwell, out.NextToken, nil
}

// failedPage is EC2's page of volumes in state error.
func (c *Client) failedPage(ctx context.Context, at pagePosition) ([]ebs.Health, *string, error) {
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeVolumesOutput, error) {
		return c.api.DescribeVolumes(ctx, &sdk.DescribeVolumesInput{
			Filters: filter("status", ebs.VolumeError), MaxResults: aws.Int32(at.size), NextToken: at.nextToken(),
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list volumes in state error: %w", err)
	}
	var all []ebs.Health
	for _, v := range out.Volumes {
		all = append(all, ebs.Health{Volume: ebs.VolumeID(aws.ToString(v.VolumeId)), Conditions: []ebs.Condition{failed}})
	}
	return all, out.NextToken, nil
}

// conditionsOf reads the status checks of a volume. A volume of which EC2 has
// too little data is not called unwell.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-checks.html
func conditionsOf(s types.VolumeStatusItem) []ebs.Condition {
	if s.VolumeStatus == nil || s.VolumeStatus.Status != types.VolumeStatusInfoStatusImpaired && s.VolumeStatus.Status != types.VolumeStatusInfoStatusWarning {
		return nil
	}
	var found []ebs.Condition
	for _, d := range s.VolumeStatus.Details {
		switch status := aws.ToString(d.Status); {
		case d.Name == types.VolumeStatusNameIoEnabled && status == "failed":
			found = append(found, ebs.Condition{Severity: ebs.Inaccessible, Reason: "IODisabled",
				Message: "EBS has disabled the volume's input and output because its data may be inconsistent: check it, then enable them (EnableVolumeIO)"})
		case d.Name == types.VolumeStatusNameIoPerformance && status == "stalled":
			found = append(found, ebs.Condition{Severity: ebs.Inaccessible, Reason: "IOStalled", Message: "the volume's input and output stand still"})
		case d.Name == types.VolumeStatusNameIoPerformance && status == "severely-degraded":
			found = append(found, ebs.Condition{Severity: ebs.Degraded, Reason: "IOSeverelyDegraded", Message: "the volume gives well below its IOPS"})
		case d.Name == types.VolumeStatusNameIoPerformance && status == "degraded":
			found = append(found, ebs.Condition{Severity: ebs.Degraded, Reason: "IODegraded", Message: "the volume gives less than its IOPS"})
		}
	}
	if len(found) == 0 {
		found = append(found, ebs.Condition{Severity: ebs.Degraded, Reason: "StatusCheck", Message: fmt.Sprintf("EC2 calls the volume's status %s and names no check", s.VolumeStatus.Status)})
	}
	return found
}
