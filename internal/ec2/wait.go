package ec2

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// appearWithin is how long a read may lag behind a write before we believe that
// something is not there. AWS says "a few seconds", and up to minutes in rare
// cases; a create that is given up too early is found again by its next call.
const appearWithin = 10 * time.Second

// interval says how often a wait looks: within first at the beginning, later
// within a share of the time waited so far, and never less than least, nor more
// than most, after the look before.
type interval struct {
	first, least, most time.Duration
	share              float64
}

// Tuned so that what EC2 usually does is seen soon after it is done, at few
// calls: creation takes 1.5 s in the median and 4 s at the 99th percentile,
// attaching 2 s, detaching 3 s, a modification seconds until its size can be
// used. Least is about an eighth of that: what is done is then seen a sixteenth
// of its time later on average, be it one volume or a hundred, which share their
// looks. A modification, for which nobody's Pod waits, is looked at less often.
// docs/design/002-calls-to-ec2.md has the arithmetic, TestCallsOfAThousand the figures.
var (
	creationPolls     = interval{first: 750 * time.Millisecond, least: 200 * time.Millisecond, most: 5 * time.Second, share: 0.125}
	attachPolls       = interval{first: 750 * time.Millisecond, least: 265 * time.Millisecond, most: 5 * time.Second, share: 0.125}
	detachPolls       = interval{first: 750 * time.Millisecond, least: 400 * time.Millisecond, most: 5 * time.Second, share: 0.125}
	modificationPolls = interval{first: 1400 * time.Millisecond, least: 1400 * time.Millisecond, most: 10 * time.Second, share: 0.125}
	lagPolls          = interval{first: time.Second, least: time.Second, most: 3 * time.Second, share: 0.25}
)

// next is how long the next look may take to come, after a time waited.
func (i interval) next(waited time.Duration) time.Duration {
	return min(max(i.least, i.first-waited, time.Duration(i.share*float64(waited))), i.most)
}

// watch looks again and again until look says done, fails, or ctx ends. It is
// the look that takes its time: at most the time that it is given, less where
// others look for something of the same kind before.
func (c *Client) watch(ctx context.Context, every interval, look func(ctx context.Context, within time.Duration) (done bool, err error)) error {
	start := c.clock.Now()
	for {
		if done, err := look(ctx, every.next(c.clock.Since(start))); done || err != nil {
			return err
		}
	}
}

// poll is watch for looks that take no time: it waits before each.
func (c *Client) poll(ctx context.Context, every interval, look func(ctx context.Context) (done bool, err error)) error {
	return c.watch(ctx, every, func(ctx context.Context, within time.Duration) (bool, error) {
		if err := sleep(ctx, c.clock, within); err != nil {
			return false, err
		}
		return look(ctx)
	})
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
