package ec2

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// A region gets a new zone every few years, so that its list is good for an
// hour; a zone that is not in it is asked for anew, though once a minute only,
// since a class that names a wrong zone is tried again and again.
const (
	zonesGoodFor    = time.Hour
	zonesAskedEvery = time.Minute
)

// zoneList is what was last heard of the region's zones.
type zoneList struct {
	mu    sync.Mutex
	names map[string]bool // of the zones in state available
	asked time.Time
}

// checkZones says whether the region has all zones of these names.
func (c *Client) checkZones(ctx context.Context, wanted []string) error {
	if len(wanted) == 0 {
		return nil
	}
	have, asked := c.zones.get()
	unknown := notAmong(wanted, have)
	if age := c.clock.Since(asked); age > zonesGoodFor || len(unknown) > 0 && age > zonesAskedEvery {
		var err error
		if have, err = c.askZones(ctx); err != nil {
			return fmt.Errorf("list availability zones: %w", err)
		}
		unknown = notAmong(wanted, have)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%w: availability zones %s: the region has %s", ebs.ErrInvalid,
			strings.Join(unknown, ", "), strings.Join(slices.Sorted(maps.Keys(have)), ", "))
	}
	return nil
}

// askZones asks EC2 for the zones and remembers the answer.
func (c *Client) askZones(ctx context.Context) (map[string]bool, error) {
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeAvailabilityZonesOutput, error) {
		return c.api.DescribeAvailabilityZones(ctx, &sdk.DescribeAvailabilityZonesInput{})
	})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, z := range out.AvailabilityZones {
		if z.State == types.AvailabilityZoneStateAvailable {
			names[aws.ToString(z.ZoneName)] = true
		}
	}
	c.zones.set(names, c.clock.Now())
	return names, nil
}

func (z *zoneList) get() (map[string]bool, time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.names, z.asked
}

func (z *zoneList) set(names map[string]bool, at time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names, z.asked = names, at
}

func notAmong(wanted []string, have map[string]bool) []string {
	var unknown []string
	for _, zone := range wanted {
		if !have[zone] {
			unknown = append(unknown, zone)
		}
	}
	return unknown
}
