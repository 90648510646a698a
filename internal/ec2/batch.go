package ec2

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

const (
	// linger is how long a look-up that is wanted at once waits for others to
	// share its call: short beside EC2's own time to answer, long enough for the
	// requests that a sidecar sends when several of its workers come free together.
	linger = 10 * time.Millisecond
	// urgentGap is how far apart the calls for such look-ups are, so that many of
	// them stay well below the 20 calls a second that EC2 gives each Describe.
	// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
	urgentGap = 80 * time.Millisecond
	// maxKeys is how many values the filters of one call may have.
	// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
	maxKeys = 200
)

// batcher answers look-ups of single things with calls that ask for many. A
// look-up says how long it can wait; the call is made when the first of those
// that gather cannot wait any longer, and answers all of them. So waits that
// look again and again share their calls, and a look-up that is wanted at once
// takes along what would have been asked soon.
//
// Each look-up ends with its own context. A call goes on for as long as one of
// its look-ups waits, and is cancelled with the last. There is no goroutine
// where nobody waits.
type batcher[K cmp.Ordered, V any] struct {
	clock clock.Clock
	// fetch answers what there is of the keys, at most maxKeys of them. One that
	// EC2 does not know is absent from the answer, and no error.
	fetch func(ctx context.Context, keys []K) (map[K]V, error)

	mu     sync.Mutex
	open   *batch[K, V] // gathers look-ups; nil where none has begun
	urgent time.Time    // when the latest call for look-ups that do not wait is due, or was
}

// batch is the look-ups of one call. All but found and err, which are written
// before done is closed, belong to the batcher's lock.
type batch[K cmp.Ordered, V any] struct {
	waiting map[K]int // how many look-ups wait for each key
	cancel  context.CancelFunc
	done    chan struct{}
	found   map[K]V
	err     error
}

func newBatcher[K cmp.Ordered, V any](clk clock.Clock, fetch func(context.Context, []K) (map[K]V, error)) *batcher[K, V] {
	return &batcher[K, V]{clock: clk, fetch: fetch}
}

// get looks a key up by a call that begins after get does: within a time, where
// that is above 0, else as soon as others had the chance to join. Several
// callers may share the value: it must not be changed.
func (b *batcher[K, V]) get(ctx context.Context, key K, within time.Duration) (value V, found bool, err error) {
	if ctx.Err() != nil {
		return value, false, gaveUp(ctx)
	}
	mine, wait := b.join(key, within)
	timer := b.clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-mine.done:
			value, found = mine.found[key]
			return value, found, mine.err
		case <-ctx.Done():
			b.leave(mine, key)
			return value, false, gaveUp(ctx)
		case <-timer.C():
			b.send(mine)
		}
	}
}

// gaveUp is the error of a look-up whose context has ended.
func gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ebs.ErrUnavailable, ctx.Err())
}

// join adds a look-up to the batch that gathers, and says after how long it has to be sent.
func (b *batcher[K, V]) join(key K, within time.Duration) (*batch[K, V], time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil || len(b.open.waiting) >= maxKeys && b.open.waiting[key] == 0 {
		// A full batch is left to its look-ups: each of them sends it when it has waited long enough.
		b.open = &batch[K, V]{waiting: map[K]int{}, done: make(chan struct{})}
	}
	b.open.waiting[key]++
	if within > 0 {
		return b.open, within
	}
	now := b.clock.Now()
	if !b.urgent.After(now) {
		b.urgent = later(now.Add(linger), b.urgent.Add(urgentGap))
	}
	return b.open, b.urgent.Sub(now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// leave takes a look-up away whose caller has given up.
func (b *batcher[K, V]) leave(from *batch[K, V], key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from.waiting[key]--; from.waiting[key] == 0 {
		delete(from.waiting, key)
	}
	switch {
	case len(from.waiting) > 0:
	case from.cancel != nil:
		from.cancel()
	case b.open == from:
		b.open = nil
	}
}

// send makes the call of a batch, once.
func (b *batcher[K, V]) send(full *batch[K, V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if full.cancel != nil {
		return
	}
	if b.open == full {
		b.open = nil
	}
	ctx, cancel := context.WithCancel(context.Background()) // it is many callers' call
	full.cancel = cancel
	keys := slices.Sorted(maps.Keys(full.waiting))
	go func() {
		defer cancel()
		full.found, full.err = b.fetch(ctx, keys)
		close(full.done)
	}()
}
