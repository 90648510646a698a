package ec2

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// maxTypes is how many instance types are asked about in one call: as many as
// one page of the answer holds.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypes.html
const maxTypes = 100

// InstanceLimits asks how many volumes instances of these types take. The types
// are given as a filter, since EC2 refuses a request that names one it does not
// know: such a type, and one of whose limit EC2 does not tell, is not in the answer.
func (c *Client) InstanceLimits(ctx context.Context, instanceTypes []string) (map[string]ebs.InstanceLimit, error) {
	limits := map[string]ebs.InstanceLimit{}
	for some := range slices.Chunk(instanceTypes, maxTypes) {
		out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeInstanceTypesOutput, error) {
			return c.api.DescribeInstanceTypes(ctx, &sdk.DescribeInstanceTypesInput{
				Filters:    []types.Filter{{Name: aws.String("instance-type"), Values: some}},
				MaxResults: aws.Int32(maxTypes),
			})
		})
		if err != nil {
			return nil, fmt.Errorf("look up attachment limits of %d instance types: %w", len(some), err)
		}
		for _, t := range out.InstanceTypes {
			if limit, told := limitFrom(t); told {
				limits[string(t.InstanceType)] = limit
			}
		}
	}
	return limits, nil
}

// limitFrom reads EbsInfo; Hypervisor is empty for bare metal.
func limitFrom(t types.InstanceTypeInfo) (limit ebs.InstanceLimit, told bool) {
	if t.EbsInfo == nil || t.EbsInfo.MaximumEbsAttachments == nil {
		return ebs.InstanceLimit{}, false
	}
	kind := ebs.Dedicated
	if t.EbsInfo.AttachmentLimitType == types.AttachmentLimitTypeShared {
		kind = ebs.Shared
	}
	return ebs.InstanceLimit{
		Volumes: int(*t.EbsInfo.MaximumEbsAttachments), Kind: kind, Hypervisor: ebs.Hypervisor(t.Hypervisor),
	}, true
}
