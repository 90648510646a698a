package ec2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

const (
	nodeA  ebs.InstanceID = "i-0000000000000a001"
	nodeA2 ebs.InstanceID = "i-0000000000000a002"
	nodeB  ebs.InstanceID = "i-0000000000000b001"
	zoneA                 = "us-east-1a"
	zoneB                 = "us-east-1b"
)

// region is a simulated region behind a wire that tests can disturb.
type region struct {
	*ec2sim.Sim
	*wire
	t      *testing.T
	url    string
	direct string // past the wire
	clock  clock.Clock
}

// newRegion starts a region whose clock runs as fast as somebody waits for it.
func newRegion(t *testing.T) *region {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { runClock(clk, stop) })
	t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
	return newRegionWith(t, clk)
}

// newRegionInRealTime is for tests in which a context ends.
func newRegionInRealTime(t *testing.T) *region {
	t.Helper()
	return newRegionWith(t, clock.RealClock{})
}

func newRegionWith(t *testing.T, clk clock.Clock) *region {
	t.Helper()
	sim, err := ec2sim.New(ec2sim.Config{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	for id, zone := range map[ebs.InstanceID]string{nodeA: zoneA, nodeA2: zoneA, nodeB: zoneB} {
		if err := sim.AddInstance(ec2sim.Instance{ID: string(id), Zone: zone}); err != nil {
			t.Fatal(err)
		}
	}
	w := &wire{sim: sim}
	srv, direct := httptest.NewServer(w), httptest.NewServer(sim)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		direct.Close()
		for _, u := range sim.Unmodelled() {
			t.Errorf("asked for what the simulator does not model: %+v", u)
		}
	})
	return &region{Sim: sim, wire: w, t: t, url: srv.URL, direct: direct.URL, clock: clk}
}

// runClock lets time pass while somebody waits for it.
func runClock(clk *clocktesting.FakeClock, stop <-chan struct{}) {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if clk.HasWaiters() {
				clk.Step(100 * time.Millisecond)
			}
		}
	}
}

// client is a client that remembers nothing: what a restarted process has.
func (r *region) client() *ec2.Client {
	cfg := ec2sim.ClientConfig(r.url)
	cfg.RetryMaxAttempts = 2
	return ec2.New(cfg, r.clock)
}

// pass lets time pass.
func (r *region) pass(d time.Duration) { r.clock.(*clocktesting.FakeClock).Step(d) }

// volume makes a volume in zone a that nothing holds up.
func (r *region) volume(name string) ebs.Volume {
	r.t.Helper()
	vol, err := r.client().EnsureVolume(r.t.Context(), request(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return vol
}

// request asks for a gp3 volume of 10 GiB in zone a.
func request(name string, change ...func(*ebs.VolumeRequest)) ebs.VolumeRequest {
	want := ebs.VolumeRequest{
		Name: name, Size: 10, Type: ebs.GP3, Zone: ebs.Zone{Name: zoneA}, AllowedZones: []ebs.Zone{{Name: zoneA}},
		Tags: map[string]string{ebs.TagVolumeName: name, "ebs.csi.aws.com/cluster": "true"},
	}
	for _, c := range change {
		c(&want)
	}
	return want
}

// call is one request that arrived.
type call struct {
	action string
	form   url.Values
}

// by says whether the call looks for something by that filter.
func (c call) by(filter string) bool { return c.form.Get("Filter.1.Name") == filter }

// wire stands between client and simulator.
type wire struct {
	sim http.Handler

	mu     sync.Mutex
	calls  []call
	before func(call) *reply                       // answers in the simulator's place; nil: it does
	after  func(call, *http.Header, []byte) []byte // changes the simulator's answer
}

// reply is an answer of EC2's shape.
type reply struct {
	status int
	body   string
}

func refusal(status int, code, message string) *reply {
	return &reply{status, fmt.Sprintf("<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>r</RequestID></Response>", code, message)}
}

// noVolumes is the answer to a look-up that finds nothing.
func noVolumes() *reply {
	return &reply{200, "<DescribeVolumesResponse><volumeSet/></DescribeVolumesResponse>"}
}

// intercept sets what happens to calls from now on.
func (w *wire) intercept(before func(call) *reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// rewrite sets what happens to answers from now on.
func (w *wire) rewrite(after func(call, *http.Header, []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = after
}

// callsOf are the calls of an action so far.
func (w *wire) callsOf(action string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []call
	for _, c := range w.calls {
		if c.action == action {
			found = append(found, c)
		}
	}
	return found
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	form, _ := url.ParseQuery(string(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	c := call{form.Get("Action"), form}
	w.mu.Lock()
	w.calls = append(w.calls, c)
	before, after := w.before, w.after
	w.mu.Unlock()
	if before != nil {
		if r := before(c); r != nil {
			rw.WriteHeader(r.status)
			io.WriteString(rw, r.body)
			return
		}
	}
	if after == nil {
		w.sim.ServeHTTP(rw, req)
		return
	}
	rec := httptest.NewRecorder()
	w.sim.ServeHTTP(rec, req)
	header := rec.Header()
	answer := after(c, &header, rec.Body.Bytes())
	rw.WriteHeader(rec.Code)
	rw.Write(answer)
}

// first says yes n times, for "the first n calls".
func first(n int) func() bool {
	var mu sync.Mutex
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		n--
		return n >= 0
	}
}

// soon is a context that ends after d of real time.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
