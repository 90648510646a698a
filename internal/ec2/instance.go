package ec2

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// instance is what attaching needs to know of an instance.
type instance struct {
	zone       ebs.Zone
	terminated bool
	root       string                  // device name of the root volume
	devices    map[string]ebs.VolumeID // by device name; may lag behind
}

// has says whether the instance's list of devices shows the volume.
func (i instance) has(id ebs.VolumeID) bool {
	for _, v := range i.devices {
		if v == id {
			return true
		}
	}
	return false
}

// instance looks an instance up; ErrInstanceNotFound where there is none or it is terminated.
func (c *Client) instance(ctx context.Context, id ebs.InstanceID) (instance, error) {
	if !id.WellFormed() {
		return instance{}, fmt.Errorf("%w: %q is no instance id", ebs.ErrInstanceNotFound, id)
	}
	found, there, err := c.lookups.instances.get(ctx, id, 0)
	switch {
	case err != nil:
		return instance{}, fmt.Errorf("look up instance %s: %w", id, err)
	case !there:
		return instance{}, fmt.Errorf("%w: instance %s", ebs.ErrInstanceNotFound, id)
	case found.terminated:
		return instance{}, fmt.Errorf("%w: instance %s is terminated", ebs.ErrInstanceNotFound, id)
	}
	c.seen.keep(id, found)
	return found, nil
}

// seenInstance is an instance as it was seen a moment ago, else as it is now.
// What it does not show any more, or not yet, EC2 tells by refusing what is
// asked by it, and then one has to look anew.
func (c *Client) seenInstance(ctx context.Context, id ebs.InstanceID) (inst instance, remembered bool, err error) {
	if inst, remembered = c.seen.recall(id); remembered {
		return inst, true, nil
	}
	inst, err = c.instance(ctx, id)
	return inst, false, err
}

// seenFor is how long an instance is remembered: EC2 tells by a refusal what has
// changed meanwhile. The names that this process gave stay taken for longer, see
// nameLag.
const seenFor = time.Minute

// seenInstances remembers instances, so that many attachments to one need no
// look at it each.
type seenInstances struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	byID map[ebs.InstanceID]seenInstance
}

type seenInstance struct {
	instance
	at time.Time
}

func newSeenInstances(clk clock.PassiveClock) *seenInstances {
	return &seenInstances{clock: clk, byID: map[ebs.InstanceID]seenInstance{}}
}

// keep remembers an instance, and forgets others that are too old.
func (s *seenInstances) keep(id ebs.InstanceID, inst instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.byID, func(_ ebs.InstanceID, old seenInstance) bool { return now.Sub(old.at) >= seenFor })
	s.byID[id] = seenInstance{inst, now}
}

func (s *seenInstances) recall(id ebs.InstanceID) (instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID[id]
	return found.instance, ok && s.clock.Since(found.at) < seenFor
}

func (c *Client) fetchInstances(ctx context.Context, ids []ebs.InstanceID) (map[ebs.InstanceID]instance, error) {
	found := map[ebs.InstanceID]instance{}
	pages := sdk.NewDescribeInstancesPaginator(c.api, &sdk.DescribeInstancesInput{Filters: filter("instance-id", ids...), MaxResults: aws.Int32(maxPage)})
	for pages.HasMorePages() {
		page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeInstancesOutput, error) { return pages.NextPage(ctx) })
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				found[ebs.InstanceID(aws.ToString(i.InstanceId))] = instanceFrom(i)
			}
		}
	}
	return found, nil
}

func instanceFrom(i types.Instance) instance {
	found := instance{root: aws.ToString(i.RootDeviceName), devices: map[string]ebs.VolumeID{}}
	found.terminated = i.State != nil && i.State.Name == types.InstanceStateNameTerminated
	if i.Placement != nil {
		found.zone = ebs.Zone{Name: aws.ToString(i.Placement.AvailabilityZone), ID: aws.ToString(i.Placement.AvailabilityZoneId)}
	}
	for _, m := range i.BlockDeviceMappings {
		var id ebs.VolumeID
		if m.Ebs != nil {
			id = ebs.VolumeID(aws.ToString(m.Ebs.VolumeId))
		}
		found.devices[aws.ToString(m.DeviceName)] = id
	}
	return found
}
