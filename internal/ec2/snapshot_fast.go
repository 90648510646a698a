package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// maxFastSources is how many snapshots one call turns fast restore on or off
// for, as EC2 was seen to refuse more: https://github.com/pingcap/tidb/issues/48505
const maxFastSources = 10

// Turning fast restore off takes seconds to a minute.
var fastRestorePolls = interval{first: time.Second, least: time.Second, most: 5 * time.Second, share: 0.25}

// fastStates are the states of fast restore by snapshot and zone; what was
// never on has none.
type fastStates map[ebs.SnapshotID]map[string]types.FastSnapshotRestoreStateCode

// on are the zones in which a snapshot's fast restore is on, on its way there,
// or not yet off.
func (f fastStates) on(id ebs.SnapshotID) []string {
	var zones []string
	for zone, state := range f[id] {
		if state != types.FastSnapshotRestoreStateCodeDisabled {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// notLeaving are those of them in which nobody is turning it off.
func (f fastStates) notLeaving(id ebs.SnapshotID) []string {
	return slices.DeleteFunc(f.on(id), func(zone string) bool { return f[id][zone] == types.FastSnapshotRestoreStateCodeDisabling })
}

// fastRestores asks EC2 where fast restore of the snapshots is on.
func (c *Client) fastRestores(ctx context.Context, ids []ebs.SnapshotID) (fastStates, error) {
	found := fastStates{}
	for part := range slices.Chunk(ids, maxKeys) {
		pages := sdk.NewDescribeFastSnapshotRestoresPaginator(c.api, &sdk.DescribeFastSnapshotRestoresInput{
			Filters: []types.Filter{{Name: aws.String("snapshot-id"), Values: texts(part)}},
		})
		for pages.HasMorePages() {
			page, err := read(ctx, func(ctx context.Context) (*sdk.DescribeFastSnapshotRestoresOutput, error) { return pages.NextPage(ctx) })
			if err != nil {
				return nil, fmt.Errorf("look where fast restore is on: %w", err)
			}
			for _, f := range page.FastSnapshotRestores {
				id := ebs.SnapshotID(aws.ToString(f.SnapshotId))
				if found[id] == nil {
					found[id] = map[string]types.FastSnapshotRestoreStateCode{}
				}
				found[id][aws.ToString(f.AvailabilityZone)] = f.State
			}
		}
	}
	return found, nil
}

// fastChange is one change for some snapshots in some zones.
type fastChange struct {
	snapshots []ebs.SnapshotID
	zones     []string
}

// fastChanges are the fewest changes that do to each snapshot in each zone what
// zonesOf asks for: snapshots with the same zones go together, as many as EC2 takes.
func fastChanges(ids []ebs.SnapshotID, zonesOf func(ebs.SnapshotID) []string) []fastChange {
	byZones := map[string][]ebs.SnapshotID{}
	for _, id := range ids {
		if key := strings.Join(zonesOf(id), ","); key != "" {
			byZones[key] = append(byZones[key], id)
		}
	}
	var changes []fastChange
	for _, key := range slices.Sorted(maps.Keys(byZones)) {
		for part := range slices.Chunk(byZones[key], maxFastSources) {
			changes = append(changes, fastChange{snapshots: part, zones: strings.Split(key, ",")})
		}
	}
	return changes
}

// enableFastRestores turns fast restore of the snapshots on in the zones where
// it is not. Of snapshots that were just made nothing needs to be asked.
func (c *Client) enableFastRestores(ctx context.Context, ids []ebs.SnapshotID, zones []string, fresh bool) error {
	if len(zones) == 0 {
		return nil
	}
	have := fastStates{}
	if !fresh {
		var err error
		if have, err = c.fastRestores(ctx, ids); err != nil {
			return err
		}
	}
	lacking := func(id ebs.SnapshotID) []string {
		on := have.on(id)
		return slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return slices.Contains(on, zone) })
	}
	for _, change := range fastChanges(ids, lacking) {
		if err := c.enableFast(ctx, change); err != nil {
			return fmt.Errorf("turn on fast restore of %s in %s: %w", list(change.snapshots), strings.Join(change.zones, ", "), err)
		}
	}
	return nil
}

func (c *Client) enableFast(ctx context.Context, change fastChange) error {
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.EnableFastSnapshotRestoresOutput, error) {
		return c.api.EnableFastSnapshotRestores(ctx, &sdk.EnableFastSnapshotRestoresInput{SourceSnapshotIds: texts(change.snapshots), AvailabilityZones: change.zones})
	})
	if err != nil {
		return err
	}
	// What EC2 refuses for one snapshot in one zone it tells in a success.
	var refused []error
	for _, u := range out.Unsuccessful {
		for _, e := range u.FastSnapshotRestoreStateErrors {
			if e.Error != nil {
				refused = append(refused, fastRefusal(u.SnapshotId, e.AvailabilityZone, e.Error.Code, e.Error.Message))
			}
		}
	}
	return errors.Join(refused...)
}

// fastRefusal is what EC2 says against a change, with our word for it.
func fastRefusal(snapshot, zone, code, message *string) error {
	err := fmt.Errorf("%s in %s: %s: %s", aws.ToString(snapshot), aws.ToString(zone), aws.ToString(code), aws.ToString(message))
	if word := meaning(aws.ToString(code)); word != nil {
		return fmt.Errorf("%w: %w", word, err)
	}
	return err
}

// disableFastRestores turns fast restore of the snapshots off wherever it is on
// and waits until it is: before that EC2 does not delete them.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-fast-snapshot-restore.html
func (c *Client) disableFastRestores(ctx context.Context, ids []ebs.SnapshotID) error {
	states, err := c.fastRestores(ctx, ids)
	if err != nil {
		return err
	}
	var refused []error
	for _, change := range fastChanges(ids, states.notLeaving) {
		refusal, err := c.disableFast(ctx, change)
		if err != nil {
			return fmt.Errorf("turn off fast restore of %s in %s: %w", list(change.snapshots), strings.Join(change.zones, ", "), err)
		}
		refused = append(refused, refusal)
	}
	return c.poll(ctx, fastRestorePolls, func(ctx context.Context) (bool, error) {
		if states, err = c.fastRestores(ctx, ids); err != nil {
			return false, err
		}
		// What EC2 refused counts where nobody else has turned it off meanwhile.
		refusal := errors.Join(refused...)
		if refusal != nil && slices.ContainsFunc(ids, func(id ebs.SnapshotID) bool { return len(states.notLeaving(id)) > 0 }) {
			return false, fmt.Errorf("turn off fast restore: %w", refusal)
		}
		return !slices.ContainsFunc(ids, func(id ebs.SnapshotID) bool { return len(states.on(id)) > 0 }), nil
	})
}

// disableFast answers what EC2 refused for single snapshots apart from an error
// of the whole call.
func (c *Client) disableFast(ctx context.Context, change fastChange) (refusal, err error) {
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.DisableFastSnapshotRestoresOutput, error) {
		return c.api.DisableFastSnapshotRestores(ctx, &sdk.DisableFastSnapshotRestoresInput{SourceSnapshotIds: texts(change.snapshots), AvailabilityZones: change.zones})
	})
	if err != nil {
		return nil, err
	}
	var refused []error
	for _, u := range out.Unsuccessful {
		for _, e := range u.FastSnapshotRestoreStateErrors {
			if e.Error != nil {
				refused = append(refused, fastRefusal(u.SnapshotId, e.AvailabilityZone, e.Error.Code, e.Error.Message))
			}
		}
	}
	return errors.Join(refused...), nil
}

// texts are ids as EC2's requests have them.
func texts[T ~string](ids []T) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// list names ids in a sentence.
func list[T ~string](ids []T) string { return strings.Join(texts(ids), ", ") }
