package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

// Volume is what EC2 says of a volume; it stops the test if there is none.
func (s *Stage) Volume(id string) types.Volume {
	s.T.Helper()
	v, err := s.lookUp(s.T.Context(), id)
	s.Must(err)
	if v == nil {
		s.T.Fatalf("EC2 has no volume %s", id)
	}
	return *v
}

// lookUp asks EC2 for a volume; nil where EC2 does not know it.
func (s *Stage) lookUp(ctx context.Context, id string) (*types.Volume, error) {
	out, err := s.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "InvalidVolume.NotFound" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &out.Volumes[0], nil
}

// VolumeGone waits until EC2 does not know the volume.
func (s *Stage) VolumeGone(id string) {
	s.T.Helper()
	s.Eventually("volume "+id+" gone from EC2", func(ctx context.Context) (string, error) {
		v, err := s.lookUp(ctx, id)
		if err != nil || v == nil {
			return "", err
		}
		return "state " + string(v.State), nil
	})
}

// Detached waits until the volume is available.
func (s *Stage) Detached(id string) {
	s.T.Helper()
	s.Eventually("volume "+id+" detached", func(ctx context.Context) (string, error) {
		v, err := s.lookUp(ctx, id)
		if err != nil {
			return "", err
		}
		if v == nil {
			return "", fmt.Errorf("EC2 has no volume %s", id)
		}
		if v.State != types.VolumeStateAvailable {
			return "state " + string(v.State), nil
		}
		return "", nil
	})
}

// Named are the volumes that carry the tag CSIVolumeName with that value: a
// claim's volume is named after its PersistentVolume.
func (s *Stage) Named(pv string) []types.Volume {
	s.T.Helper()
	volumes, err := s.volumesTagged(s.T.Context(), "CSIVolumeName", pv)
	s.Must(err)
	return volumes
}

func (s *Stage) volumesOfNamespace(ctx context.Context) ([]types.Volume, error) {
	return s.volumesTagged(ctx, "kubernetes.io/created-for/pvc/namespace", s.Namespace)
}

func (s *Stage) volumesTagged(ctx context.Context, key, value string) ([]types.Volume, error) {
	out, err := s.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("tag:" + key), Values: []string{value}}},
	})
	if err != nil {
		return nil, err
	}
	return out.Volumes, nil
}

func idsOf(volumes []types.Volume) []string {
	var ids []string
	for _, v := range volumes {
		ids = append(ids, aws.ToString(v.VolumeId))
	}
	slices.Sort(ids)
	return ids
}

// Tags are a resource's tags.
func Tags(tags []types.Tag) map[string]string {
	m := map[string]string{}
	for _, t := range tags {
		m[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return m
}

// HasTags reports every tag of want that is absent or differs.
func (s *Stage) HasTags(what string, tags []types.Tag, want map[string]string) {
	s.T.Helper()
	have := Tags(tags)
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			s.T.Errorf("%s: tag %s is %q (set: %v), want %q; all tags: %v", what, k, got, ok, v, have)
		}
	}
}
