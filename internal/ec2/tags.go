package ec2

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// maxTags is how many tags a resource may have, not counting those of AWS itself.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
const maxTags = 50

// tagChanges are the tags to set and the keys to delete so that a volume has the
// wanted tags; both empty where it has them.
func tagChanges(has map[string]string, want ebs.Modification) (set, remove []types.Tag) {
	for k, v := range want.SetTags {
		if is, ok := has[k]; !ok || is != v {
			set = append(set, types.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
	}
	for _, k := range want.DeleteTags {
		if _, ok := has[k]; ok {
			remove = append(remove, types.Tag{Key: aws.String(k)}) // without a value: whatever it is
		}
	}
	sort.Slice(set, func(i, j int) bool { return *set[i].Key < *set[j].Key })
	return set, remove
}

// checkTagCount says whether a volume can have all wanted tags.
func checkTagCount(vol ebs.Volume, want ebs.Modification) error {
	keys := map[string]bool{}
	for k := range vol.Tags {
		keys[k] = !strings.HasPrefix(k, "aws:")
	}
	for k := range want.SetTags {
		keys[k] = true
	}
	for _, k := range want.DeleteTags {
		delete(keys, k)
	}
	n := 0
	for _, counts := range keys {
		if counts {
			n++
		}
	}
	if set, _ := tagChanges(vol.Tags, want); n > maxTags && set != nil {
		return fmt.Errorf("%w: volume %s would have %d tags: EC2 allows %d", ebs.ErrInvalid, vol.ID, n, maxTags)
	}
	return nil
}

// retag gives a volume the wanted tags. What goes goes first, to make room.
func (c *Client) retag(ctx context.Context, vol ebs.Volume, want ebs.Modification) (ebs.Volume, error) {
	set, remove := tagChanges(vol.Tags, want)
	ids := []string{string(vol.ID)}
	if remove != nil {
		_, err := mutate(ctx, func(ctx context.Context) (*sdk.DeleteTagsOutput, error) {
			return c.api.DeleteTags(ctx, &sdk.DeleteTagsInput{Resources: ids, Tags: remove})
		})
		if err != nil {
			return vol, fmt.Errorf("delete tags: %w", justSeen(vol.ID, err))
		}
	}
	if set != nil {
		_, err := mutate(ctx, func(ctx context.Context) (*sdk.CreateTagsOutput, error) {
			return c.api.CreateTags(ctx, &sdk.CreateTagsInput{Resources: ids, Tags: set})
		})
		if err != nil && remove != nil {
			err = accepted(err)
		}
		if err != nil {
			return vol, fmt.Errorf("set tags: %w", justSeen(vol.ID, err))
		}
	}
	vol.Tags = maps.Clone(vol.Tags)
	maps.Copy(vol.Tags, want.SetTags)
	for _, t := range remove {
		delete(vol.Tags, *t.Key)
	}
	return vol, nil
}
