package ec2sim

import (
	"time"
)

// bucketSize is a token bucket: how many calls it holds and how many come back
// in a second.
type bucketSize struct{ size, perSecond float64 }

// The buckets of EC2 for these actions.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
var (
	bucketDescribe   = bucketSize{100, 20} // with filter, id or paging
	bucketUnfiltered = bucketSize{50, 10}  // DescribeVolumes, -Instances, -Snapshots of everything
	bucketCreate     = bucketSize{100, 5}
	bucketTags       = bucketSize{100, 10}
	bucketMutate     = bucketSize{50, 5}
)

// throttle is the state of the buckets.
type throttle struct {
	on      bool
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	filled time.Time
}

// take takes a token from an action's bucket, false if it is empty.
func (t *throttle) take(key string, size bucketSize, now time.Time) bool {
	if !t.on {
		return true
	}
	b := t.buckets[key]
	if b == nil {
		if t.buckets == nil {
			t.buckets = map[string]*bucket{}
		}
		b = &bucket{tokens: size.size, filled: now}
		t.buckets[key] = b
	}
	b.tokens = min(size.size, b.tokens+now.Sub(b.filled).Seconds()*size.perSecond)
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// SetThrottle switches throttling on, with full buckets, or off.
func (s *Sim) SetThrottle(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.throttle = throttle{on: on}
}

// Throttled tells whether throttling is on.
func (s *Sim) Throttled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.throttle.on
}

// Bucket is the token bucket of an action: how many calls it holds, and how
// many come back in a second; false if the action is not modelled.
func (s *Sim) Bucket(action string) (size, perSecond float64, ok bool) {
	a := s.actions[action]
	if a == nil {
		return 0, 0, false
	}
	return a.bucket.size, a.bucket.perSecond, true
}

// throttled refuses a call for which there is no token. The three big
// describes have a smaller bucket for calls without filter and paging; an id
// list counts as a filter here, which AWS's page leaves open.
func (s *Sim) throttled(r *request) *APIError {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, size := r.action.name, r.action.bucket
	if r.action.plainBucket && len(r.values) <= 2 { // Action and Version
		key, size = key+" of everything", bucketUnfiltered
	}
	if s.throttle.take(key, size, s.clock.Now()) {
		return nil
	}
	return refuse("RequestLimitExceeded", "Request limit exceeded.")
}
