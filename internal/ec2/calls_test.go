package ec2_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// These tests count calls and measure times in a bubble, whose clock stands
// still while anybody works: the figures are the same on every machine.

// ec2Answers is how long EC2 takes to answer a call.
const ec2Answers = 5 * time.Millisecond

// inMemory hands calls to a simulator without a network.
type inMemory struct{ sim http.Handler }

// Do answers a call.
func (m inMemory) Do(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case <-time.After(ec2Answers):
	}
	rec := httptest.NewRecorder()
	m.sim.ServeHTTP(rec, req)
	return rec.Result(), nil
}

// fleet is a region in a bubble, with a client and what was drawn.
type fleet struct {
	*ec2sim.Sim
	*ec2.Client
	t *testing.T

	mu    sync.Mutex
	drawn map[string]time.Duration // by action and resource
}

// fleetTest runs a test in a bubble, with EC2's times spread by a sigma.
func fleetTest(t *testing.T, spread float64, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, drawn: map[string]time.Duration{}}
		// EC2's times as published, see test/bench/driver.
		delays := ec2sim.Delays{
			Spread: spread, Create: ec2sim.Duration(1500 * time.Millisecond), Attach: ec2sim.Duration(2 * time.Second),
			Detach: ec2sim.Duration(3 * time.Second), Modify: ec2sim.Duration(5 * time.Second), Optimize: ec2sim.Duration(5 * time.Second),
		}
		var err error
		f.Sim, err = ec2sim.New(ec2sim.Config{Delays: &delays, Drew: f.note})
		if err != nil {
			t.Fatal(err)
		}
		cfg := ec2sim.ClientConfig("http://ec2.test")
		cfg.HTTPClient = inMemory{f.Sim}
		f.Client = ec2.New(cfg, clock.RealClock{})
		test(t, f)
	})
}

func (f *fleet) note(action, resource string, lasts time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.drawn[action+resource]; !again {
		f.drawn[action+resource] = lasts
	}
}

// of counts the calls of actions so far.
func (f *fleet) of(actions ...string) int {
	n := 0
	for _, c := range f.Calls() {
		if slices.Contains(actions, c.Action) {
			n += c.Count
		}
	}
	return n
}

// describes counts all looks so far.
func (f *fleet) describes() int {
	n := 0
	for _, c := range f.Calls() {
		if strings.HasPrefix(c.Action, "Describe") {
			n += c.Count
		}
	}
	return n
}

// make makes n volumes of 10 GiB, and counts calls from then on.
func (f *fleet) make(n int) []ebs.VolumeID {
	f.t.Helper()
	var ids []ebs.VolumeID
	for i := range n {
		vol, err := f.EnsureVolume(f.t.Context(), request(fmt.Sprint("pvc-", i)))
		if err != nil {
			f.t.Fatal(err)
		}
		ids = append(ids, vol.ID)
	}
	f.ResetCalls()
	return ids
}

// late does something with each of n volumes, by workers, and answers by how
// much later than EC2's own time for that volume it was done: the medians of
// what was added and of EC2's time. do answers the volume's id.
func (f *fleet) late(n, workers int, action string, do func(i int) (ebs.VolumeID, error)) (adds, own time.Duration) {
	f.t.Helper()
	queue := make(chan int, n)
	for i := range n {
		queue <- i
	}
	close(queue)
	var mu sync.Mutex
	var all, owns []time.Duration
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range queue {
				start := time.Now()
				id, err := do(i)
				took := time.Since(start)
				if err != nil {
					f.t.Error(err)
				}
				f.mu.Lock()
				lasts := f.drawn[action+string(id)]
				f.mu.Unlock()
				mu.Lock()
				all, owns = append(all, took-lasts), append(owns, lasts)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	slices.Sort(all)
	slices.Sort(owns)
	return all[n/2], owns[n/2]
}

// nodes are the instances over which volumes are spread.
const nodes = 40

// node is the instance of the i-th volume.
func node(i int) ebs.InstanceID { return ebs.InstanceID(fmt.Sprintf("i-%017x", 0xb0000+i%nodes)) }

// TestCallsOfAThousand: what docs/design/002-calls-to-ec2.md promises of a
// thousand volumes' lives: how often EC2 is asked, and what is added to its own time.
func TestCallsOfAThousand(t *testing.T) {
	const n, workers = 1000, 100
	fleetTest(t, 0.42, func(t *testing.T, f *fleet) {
		for i := range nodes {
			if err := f.AddInstance(ec2sim.Instance{ID: string(node(i)), Zone: zoneA, Type: "m7i.48xlarge"}); err != nil {
				t.Fatal(err)
			}
		}
		ids := make([]ebs.VolumeID, n)
		for _, p := range []struct {
			why       string
			action    string
			gathers   time.Duration
			describes int     // at most
			share     float64 // of EC2's own time, percent at most
			do        func(i int) (ebs.VolumeID, error)
		}{
			{"each volume's name is looked up before", "CreateVolume", 0, 220, 9, func(i int) (ebs.VolumeID, error) {
				vol, err := f.EnsureVolume(t.Context(), request(fmt.Sprint("pvc-", i)))
				ids[i] = vol.ID
				return vol.ID, err
			}},
			{"waits share their looks, instances are remembered", "AttachVolume", 0, 100, 10, func(i int) (ebs.VolumeID, error) {
				_, err := f.Attach(t.Context(), ids[i], node(i))
				return ids[i], err
			}},
			{"looks before share the calls of the waits", "ModifyVolume", 2 * time.Second, 100, 15, func(i int) (ebs.VolumeID, error) {
				_, err := f.Modify(t.Context(), ids[i], ebs.Modification{Size: 20})
				return ids[i], err
			}},
			{"waits share their looks", "DetachVolume", 0, 100, 10, func(i int) (ebs.VolumeID, error) { return ids[i], f.Detach(t.Context(), ids[i], node(i)) }},
		} {
			f.ResetCalls()
			adds, own := f.late(n, workers, p.action, p.do)
			share := 100 * (adds - p.gathers).Seconds() / own.Seconds()
			t.Logf("%s: %d looks (%d at volumes, %d at changes), %.1f %% later than EC2's own time", p.action, f.describes(), f.of("DescribeVolumes"), f.of("DescribeVolumesModifications"), share)
			if got := f.describes(); got > p.describes {
				t.Errorf("%s: %d looks, want %d at most: %s", p.action, got, p.describes, p.why)
			}
			if share > p.share {
				t.Errorf("%s: %.1f %% later than EC2's own time, want %v at most", p.action, share, p.share)
			}
			if got := f.of(p.action); got != n {
				t.Errorf("%d calls of %s for %d volumes", got, p.action, n)
			}
		}
	})
}

// TestCallsOfModifications: a single change costs a look at the volume, one at
// its latest change, and the looks of a wait; a hundred at once cost no more.
func TestCallsOfModifications(t *testing.T) {
	for _, n := range []int{1, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			fleetTest(t, 0, func(t *testing.T, f *fleet) {
				ids := f.make(n)
				adds, own := f.late(n, n, "ModifyVolume", func(i int) (ebs.VolumeID, error) {
					vol, err := f.Modify(t.Context(), ids[i], ebs.Modification{Size: 20})
					if vol.Size != 20 {
						t.Errorf("%s has %d GiB, want 20", vol.ID, vol.Size)
					}
					return ids[i], err
				})
				if late := adds - 2*time.Second; late < 0 || late > 1500*time.Millisecond {
					t.Errorf("answered %v after the 2 s of gathering and EC2's %v, want 1.5 s at most: the looks before are part of the 2 s", late, own)
				}
				for action, want := range map[string]int{"DescribeVolumes": 1, "DescribeVolumesModifications": 1 + 4, "ModifyVolume": n} {
					if got := f.of(action); got != want {
						t.Errorf("%d calls of %s, want %d", got, action, want)
					}
				}
			})
		})
	}
}

// TestModifyOfWhatIsAsWantedIsAnsweredSoon: at once where nothing is on its way,
// else with the others' looks, and before their changes are sent.
func TestModifyOfWhatIsAsWantedIsAnsweredSoon(t *testing.T) {
	fleetTest(t, 0, func(t *testing.T, f *fleet) {
		ids := f.make(2)
		nothing := func() time.Duration {
			t.Helper()
			start := time.Now()
			if vol, err := f.Modify(t.Context(), ids[0], ebs.Modification{Size: 10}); err != nil || vol.Size != 10 {
				t.Errorf("%d GiB, %v", vol.Size, err)
			}
			return time.Since(start)
		}
		if took := nothing(); took > 100*time.Millisecond {
			t.Errorf("alone it took %v", took)
		}
		var other sync.WaitGroup
		other.Go(func() {
			if _, err := f.Modify(t.Context(), ids[1], ebs.Modification{Size: 20}); err != nil {
				t.Error(err)
			}
		})
		<-time.After(500 * time.Millisecond)
		looks := f.of("DescribeVolumes")
		if took := nothing(); took > 1600*time.Millisecond {
			t.Errorf("beside another volume's change it took %v", took)
		}
		if got := f.of("DescribeVolumes") - looks; got != 1 {
			t.Errorf("%d looks at the volume, want 1", got)
		}
		other.Wait()
	})
}

// TestModifyJoinsAChangeAtTheLastMoment: a request that comes within 2 s of the
// first is part of its change, although it has to look at the volume before.
func TestModifyJoinsAChangeAtTheLastMoment(t *testing.T) {
	fleetTest(t, 0, func(t *testing.T, f *fleet) {
		ids := f.make(2)
		var callers sync.WaitGroup
		modify := func(id ebs.VolumeID, want ebs.Modification) {
			callers.Go(func() {
				if _, err := f.Modify(t.Context(), id, want); err != nil {
					t.Error(err)
				}
			})
		}
		modify(ids[1], ebs.Modification{Size: 30}) // with others on the way, looks are patient
		<-time.After(100 * time.Millisecond)
		modify(ids[0], ebs.Modification{Size: 20})
		<-time.After(2*time.Second - time.Millisecond)
		modify(ids[0], ebs.Modification{IOPS: 4000})
		callers.Wait()
		if got := f.of("ModifyVolume"); got != 2 {
			t.Errorf("%d calls of ModifyVolume, want one for each volume", got)
		}
		if v, _ := f.Sim.Volume(string(ids[0])); v.SizeGiB != 20 || v.IOPS != 4000 {
			t.Errorf("EC2 shows %d GiB and %d IOPS, want 20 and 4000", v.SizeGiB, v.IOPS)
		}
	})
}
