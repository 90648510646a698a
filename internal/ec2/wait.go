package ec2

import (
	"context"
	"time"
)

// appearWithin is how long a read may lag behind a write before we believe that
// something is not there. AWS says "a few seconds", and up to minutes in rare
// cases; a create that is given up too early is found again by its next call.
const appearWithin = 10 * time.Second

// interval says how long to wait before each look: first, then next, growing by
// factor up to most.
type interval struct {
	first, next, most time.Duration
	factor            float64
}

// Tuned so that what EC2 usually does is seen soon after it is done, at few
// calls: creation takes 1.5 s in the median and 4 s at the 99th percentile,
// attaching and detaching 1 to 4 s, a modification seconds until its size can
// be used. An operation that takes d is seen at d × 1.5 at the latest.
var (
	creationPolls     = interval{first: 750 * time.Millisecond, next: 500 * time.Millisecond, most: 5 * time.Second, factor: 1.5}
	attachmentPolls   = interval{first: 500 * time.Millisecond, next: 500 * time.Millisecond, most: 5 * time.Second, factor: 1.5}
	modificationPolls = interval{first: 500 * time.Millisecond, next: time.Second, most: 10 * time.Second, factor: 1.5}
	lagPolls          = interval{first: time.Second, next: time.Second, most: 3 * time.Second, factor: 1.5}
)

// poll looks again and again until look says done, fails, or ctx ends.
func (c *Client) poll(ctx context.Context, every interval, look func(ctx context.Context) (done bool, err error)) error {
	pause := every.first
	next := every.next
	for {
		if err := c.sleep(ctx, pause); err != nil {
			return err
		}
		if done, err := look(ctx); done || err != nil {
			return err
		}
		pause = next
		next = min(time.Duration(float64(next)*every.factor), every.most)
	}
}

// sleep waits for d or for the end of ctx.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
