package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// retryer is the SDK's retryer with a state for each action, as EC2 has a token
// bucket for each: where one is throttled, or out of retries, no other is. The
// SDK's settings keep their meaning (AWS_MAX_ATTEMPTS, AWS_RETRY_MODE and their
// like in files); in mode "standard", the default, actions that change EC2 are
// also paced once they were throttled. The SDK's own mode "adaptive" is another
// way to do that, and then stays alone.
type retryer struct {
	aws.RetryerV2 // judges errors and counts tries, which needs no state
	each          func() aws.RetryerV2
	clock         clock.Clock // nil: nothing is paced

	mu      sync.Mutex
	actions map[string]*actionRetryer
}

type actionRetryer struct {
	aws.RetryerV2
	pace *pacer // nil: as fast as it comes
}

// newRetryer makes a retryer of a mode, of at most so many tries; 0 for the SDK's number.
func newRetryer(mode aws.RetryMode, maxAttempts int, clk clock.Clock) *retryer {
	standard := func(o *retry.StandardOptions) {
		if maxAttempts != 0 {
			o.MaxAttempts = maxAttempts
		}
	}
	r := &retryer{clock: clk, actions: map[string]*actionRetryer{}}
	r.each = func() aws.RetryerV2 { return retry.NewStandard(standard) }
	if mode == aws.RetryModeAdaptive {
		r.clock = nil
		r.each = func() aws.RetryerV2 {
			return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) { o.StandardOptions = append(o.StandardOptions, standard) })
		}
	}
	r.RetryerV2 = r.each()
	return r
}

// of is the state of the action that a call does.
func (r *retryer) of(ctx context.Context) *actionRetryer {
	action := middleware.GetOperationName(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.actions[action]
	if a == nil {
		a = &actionRetryer{RetryerV2: r.each()}
		if r.clock != nil && !strings.HasPrefix(action, "Describe") { // those are spaced by being batched
			a.pace = &pacer{clock: r.clock}
		}
		r.actions[action] = a
	}
	return a
}

// GetAttemptToken is called before each try.
func (r *retryer) GetAttemptToken(ctx context.Context) (release func(error) error, err error) {
	a := r.of(ctx)
	if a.pace == nil {
		return a.GetAttemptToken(ctx)
	}
	if err := a.pace.wait(ctx); err != nil {
		return nil, err
	}
	inner, err := a.GetAttemptToken(ctx)
	if err != nil {
		return nil, err
	}
	return func(outcome error) error {
		if isThrottle(outcome) {
			a.pace.throttled()
		}
		return inner(outcome)
	}, nil
}

// GetRetryToken is called before each try but the first.
func (r *retryer) GetRetryToken(ctx context.Context, outcome error) (release func(error) error, err error) {
	return r.of(ctx).GetRetryToken(ctx, outcome)
}

// isThrottle says whether EC2 refused a call for being too fast.
func isThrottle(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && errors.Is(meaning(answer.ErrorCode()), ebs.ErrThrottled)
}

// onlyThrottled has the SDK repeat a call only where EC2 certainly did not
// accept it. It is for the actions that have no client token: the repeat of one
// whose answer was lost would do it twice.
func (c *Client) onlyThrottled(o *sdk.Options) {
	if inner, ok := o.Retryer.(aws.RetryerV2); ok {
		o.Retryer = throttledRetryer{inner}
		return
	}
	o.Retryer = aws.NopRetryer{}
}

type throttledRetryer struct{ aws.RetryerV2 }

// IsErrorRetryable implements aws.Retryer.
func (throttledRetryer) IsErrorRetryable(err error) bool { return isThrottle(err) }

// How an action is paced, in calls a second. It begins at what EC2's default
// buckets of the actions that change volumes and snapshots get back, becomes
// faster as long as EC2 does not object, and slower when it does. After a rest
// the bucket has refilled and nothing is paced.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
const (
	paceBegin  = 5.0
	paceLeast  = 1.0
	paceGrowth = 0.2 // a second
	paceDrop   = 0.7
	// paceDropGap is how far apart drops are: calls that were under way together
	// are refused together, for one reason.
	paceDropGap = time.Second
	paceRest    = 10 * time.Second
)

// pacer spaces the calls of one action after EC2 has throttled it.
type pacer struct {
	clock clock.Clock

	mu    sync.Mutex
	rate  float64   // at the time since; 0: nothing is paced
	since time.Time // of the latest drop
	next  time.Time // when the next call may be made
}

// wait waits for the turn of a call. One whose context ends before its turn is
// refused at once: it would wait for nothing.
func (p *pacer) wait(ctx context.Context) error {
	turn, err := p.turn(ctx)
	if err != nil || turn <= 0 {
		return err
	}
	timer := p.clock.NewTimer(turn)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turn takes the next turn and says how long it is until then.
func (p *pacer) turn(ctx context.Context) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if p.rate != 0 && now.Sub(p.next) >= paceRest {
		p.rate = 0
	}
	if p.rate == 0 {
		return 0, nil
	}
	at := later(now, p.next)
	wait := at.Sub(now)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return 0, fmt.Errorf("%w: EC2 has throttled this action, and there is no turn for %v", ebs.ErrThrottled, wait.Round(time.Millisecond))
	}
	p.next = at.Add(time.Duration(float64(time.Second) / p.rateAt(at)))
	return wait, nil
}

// rateAt is the rate at a time, where something is paced.
func (p *pacer) rateAt(t time.Time) float64 { return p.rate + paceGrowth*t.Sub(p.since).Seconds() }

// throttled notes that EC2 refused a call.
func (p *pacer) throttled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	switch {
	case p.rate == 0:
		p.rate, p.next = paceBegin, now
	case now.Sub(p.since) < paceDropGap:
		return
	default:
		p.rate = max(p.rateAt(now)*paceDrop, paceLeast)
	}
	p.since = now
	p.next = later(p.next, now.Add(time.Duration(float64(time.Second)/p.rate)))
}
