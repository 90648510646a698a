package ec2

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// checkSource says that a source whose id cannot be one does not exist; EC2
// would only call it malformed.
func checkSource(want ebs.VolumeRequest) error {
	switch {
	case want.Snapshot != "" && !want.Snapshot.WellFormed():
		return fmt.Errorf("%w: %q is no snapshot id", ebs.ErrNotFound, want.Snapshot)
	case want.Source != "" && !want.Source.WellFormed():
		return fmt.Errorf("%w: source volume: %q is no volume id", ebs.ErrNotFound, want.Source)
	}
	return nil
}

// zoneOfSource is the zone of a copy. Where there can be none, an earlier call
// may have made it all the same, for other zones or while the source was there,
// and it is not shown yet: the refusal would end the caller's interest in it.
func (c *Client) zoneOfSource(ctx context.Context, want ebs.VolumeRequest) (ebs.Zone, error) {
	zone, refusal := c.judgeSource(ctx, want)
	if refusal == nil {
		return zone, nil
	}
	found, err := c.sentElsewhere(ctx, want.Name, ebs.Zone{})
	switch {
	case err != nil:
		return ebs.Zone{}, accepted(err)
	case found != nil:
		return ebs.Zone{}, accepted(fmt.Errorf("%w: volume %s has the name and is shown only now", ebs.ErrNotReady, found.ID))
	}
	return ebs.Zone{}, refusal
}

// judgeSource looks the source of a copy up and judges what is wanted by it:
// CopyVolumes copies within a zone, and into no smaller volume.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-copying-volume.html
func (c *Client) judgeSource(ctx context.Context, want ebs.VolumeRequest) (ebs.Zone, error) {
	source, err := c.Volume(ctx, want.Source)
	switch {
	case err != nil:
		return ebs.Zone{}, fmt.Errorf("look at source volume %s: %w", want.Source, err)
	case !source.Exists():
		return ebs.Zone{}, fmt.Errorf("%w: source volume %s is in state %s", ebs.ErrNotFound, want.Source, source.State)
	case want.Size != 0 && want.Size < source.Size:
		return ebs.Zone{}, fmt.Errorf("%w: a copy of volume %s has at least its %d GiB, wanted are %d", ebs.ErrOutOfRange, want.Source, source.Size, want.Size)
	case !zoneAllowed(source.Zone, want.AllowedZones):
		return ebs.Zone{}, fmt.Errorf("%w: volume %s is in zone %s, where its copies are made too, allowed is %s: use the claim on a node of the source's zone",
			ebs.ErrNoZone, want.Source, source.Zone.Name, zoneNames(want.AllowedZones))
	}
	return source.Zone, nil
}

// copyVolume sends CopyVolumes once, as createVolume does with CreateVolume.
// The type has to be said, EC2 would not take the source's; a copy of an
// encrypted volume is encrypted by itself.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopyVolumes.html
func (c *Client) copyVolume(ctx context.Context, want ebs.VolumeRequest, token string) (ebs.Volume, error) {
	in := &sdk.CopyVolumesInput{
		SourceVolumeId:    aws.String(string(want.Source)),
		ClientToken:       aws.String(token),
		VolumeType:        types.VolumeType(want.Type),
		TagSpecifications: tagSpecification(types.ResourceTypeVolume, want.Tags),
	}
	if want.Size != 0 {
		in.Size = aws.Int32(int32(want.Size))
	}
	if want.IOPS != 0 {
		in.Iops = aws.Int32(want.IOPS)
	}
	if want.ThroughputMiBps != 0 {
		in.Throughput = aws.Int32(want.ThroughputMiBps)
	}
	if want.Encrypted {
		in.Encrypted = aws.Bool(true)
	}
	if want.KMSKeyID != "" {
		in.KmsKeyId = aws.String(want.KMSKeyID)
	}
	if want.MultiAttach {
		in.MultiAttachEnabled = aws.Bool(true)
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.CopyVolumesOutput, error) { return c.api.CopyVolumes(ctx, in) })
	if err != nil {
		return ebs.Volume{}, err
	}
	if len(out.Volumes) != 1 {
		return ebs.Volume{}, fmt.Errorf("%w: CopyVolumes of %s answered %d volumes, want 1", ebs.ErrMaybeAccepted, want.Source, len(out.Volumes))
	}
	return volumeFrom(out.Volumes[0]), nil
}
