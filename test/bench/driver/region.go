package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// instanceType has more places for volumes than any run attaches to one instance.
const instanceType = "m7i.48xlarge"

// zones are where volumes and instances are, in turn.
var zones = []string{"us-east-1a", "us-east-1b"}

// ec2Delays are EC2's times: medians as published for small volumes, with a
// tail that takes one creation in a hundred to 4 s.
func ec2Delays() ec2sim.Delays {
	return ec2sim.Delays{
		Spread:   0.42,
		Create:   ec2sim.Duration(1500 * time.Millisecond),
		Attach:   ec2sim.Duration(2 * time.Second),
		Detach:   ec2sim.Duration(3 * time.Second),
		Modify:   ec2sim.Duration(5 * time.Second),
		Optimize: ec2sim.Duration(5 * time.Second),
		Snapshot: ec2sim.Duration(2 * time.Second),
		Delete:   ec2sim.Duration(500 * time.Millisecond),
	}
}

// region is a simulated EC2 region that counts and remembers what it drew.
type region struct {
	*ec2sim.Sim
	url       string
	instances []string

	stop func()

	mu    sync.Mutex
	drawn map[string]map[string]time.Duration // by action and resource
}

// newRegion serves a region with instances on an address.
func newRegion(o options) (*region, error) {
	r := &region{drawn: map[string]map[string]time.Duration{}}
	sim, err := ec2sim.New(ec2sim.Config{Zones: zones, Delays: &o.delays, Seed: o.seed, Drew: r.note})
	if err != nil {
		return nil, err
	}
	r.Sim = sim
	for i := range o.instances {
		id := instanceID(i)
		if err := sim.AddInstance(ec2sim.Instance{ID: id, Zone: zoneOf(i), Type: instanceType}); err != nil {
			return nil, err
		}
		r.instances = append(r.instances, id)
	}
	listener, err := net.Listen("tcp", o.ec2Listen)
	if err != nil {
		return nil, fmt.Errorf("--ec2-listen: %w", err)
	}
	r.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends when it is closed
	ctx, cancel := context.WithCancel(context.Background())
	go sim.Run(ctx)
	r.stop = func() {
		cancel()
		server.Close()
	}
	return r, nil
}

func instanceID(i int) string { return fmt.Sprintf("i-%017x", 0xb0000+i) }

// zoneOf is where the i-th volume or instance is.
func zoneOf(i int) string { return zones[i%len(zones)] }

// note keeps what was drawn for the first call of an action for a resource: who
// calls again is not forgiven the time of the first.
func (r *region) note(action, resource string, lasts time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drawn[action] == nil {
		r.drawn[action] = map[string]time.Duration{}
	}
	if _, again := r.drawn[action][resource]; !again {
		r.drawn[action][resource] = lasts
	}
}

// reset begins counting anew.
func (r *region) reset() {
	r.ResetCalls()
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.drawn)
}

// drew is what was drawn for the first call of an action for a resource.
func (r *region) drew(action, resource string) (lasts time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lasts, ok = r.drawn[action][resource]
	return lasts, ok
}

// actionCount is how often an action was called.
type actionCount struct {
	action string
	count  int
}

// traffic is what a phase asked of EC2.
type traffic struct {
	calls     []actionCount // all that were sent, in order of the action
	mutating  int           // changes that EC2 accepted
	describes int
	throttled int
	refused   int            // by other reasons than throttling
	accepted  map[string]int // changes, by action
}

// traffic reads the counters.
func (r *region) traffic() traffic {
	t := traffic{accepted: map[string]int{}}
	byAction := map[string]int{}
	for _, c := range r.Calls() {
		byAction[c.Action] += c.Count
		reads := strings.HasPrefix(c.Action, "Describe")
		switch {
		case c.Code == "RequestLimitExceeded":
			t.throttled += c.Count
		case c.Code != "OK":
			t.refused += c.Count
		case !reads:
			t.mutating += c.Count
			t.accepted[c.Action] += c.Count
		}
		if reads {
			t.describes += c.Count
		}
	}
	for action, n := range byAction {
		t.calls = append(t.calls, actionCount{action, n})
	}
	slices.SortFunc(t.calls, func(a, b actionCount) int { return cmp.Compare(a.action, b.action) })
	return t
}

// total is how many calls were sent.
func (t traffic) total() int {
	n := 0
	for _, c := range t.calls {
		n += c.count
	}
	return n
}

// bucketTime is how long EC2's token buckets need to let the accepted changes
// pass, from full ones.
func (r *region) bucketTime(t traffic) time.Duration {
	longest := 0.0
	for action, n := range t.accepted {
		if size, perSecond, ok := r.Bucket(action); ok && perSecond > 0 {
			longest = max(longest, (float64(n)-size)/perSecond)
		}
	}
	return time.Duration(longest * float64(time.Second))
}

// quantile sorts a sample and takes its quantile, 0 of an empty one.
func quantile(sample []time.Duration, q float64) time.Duration {
	if len(sample) == 0 {
		return 0
	}
	slices.Sort(sample)
	return sample[min(len(sample)-1, int(q*float64(len(sample))))]
}
