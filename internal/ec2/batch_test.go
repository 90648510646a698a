package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// ids are n volume ids that EC2 knows nothing of.
func ids(n int) []ebs.VolumeID {
	var out []ebs.VolumeID
	for i := range n {
		out = append(out, ebs.VolumeID(fmt.Sprintf("vol-%017x", i+1)))
	}
	return out
}

// lookUpAll looks volumes up all at once.
func lookUpAll(ctx context.Context, client *ec2.Client, ids []ebs.VolumeID) (volumes []ebs.Volume, errs []error) {
	volumes, errs = make([]ebs.Volume, len(ids)), make([]error, len(ids))
	var group sync.WaitGroup
	for i, id := range ids {
		group.Go(func() { volumes[i], errs[i] = client.Volume(ctx, id) })
	}
	group.Wait()
	return volumes, errs
}

// DRIVER rule 6: what EC2 does not know, or would call malformed, concerns its own caller alone.
func TestLookUpsShareACallAndNothingElse(t *testing.T) {
	r := newRegionInRealTime(t)
	r.SetDelays(ec2sim.Delays{})
	one, two := r.volume("one").ID, r.volume("two").ID
	before := len(r.callsOf("DescribeVolumes"))
	unknown, odd := ebs.VolumeID("vol-0123456789abcdef0"), ebs.VolumeID("vol-*")
	volumes, errs := lookUpAll(t.Context(), r.client(), []ebs.VolumeID{one, unknown, two, odd, one})
	for i, want := range []ebs.VolumeID{one, "", two, "", one} {
		switch {
		case want == "" && !errors.Is(errs[i], ebs.ErrNotFound):
			t.Errorf("what does not exist: %+v, %v; want that it is not found", volumes[i], errs[i])
		case want != "" && (errs[i] != nil || volumes[i].ID != want):
			t.Errorf("beside what does not exist: %+v, %v; want %s", volumes[i], errs[i], want)
		}
	}
	if n := len(r.callsOf("DescribeVolumes")) - before; n > 3 { // 1, where all come within the time that each lingers
		t.Errorf("%d calls for 4 look-ups at one time, want them shared", n)
	}
}

func TestLookUpsByTheHundreds(t *testing.T) {
	r := newRegionInRealTime(t)
	r.SetDelays(ec2sim.Delays{})
	known := r.volume("known").ID
	all := append(ids(500), known)
	volumes, errs := lookUpAll(t.Context(), r.client(), all)
	for i, err := range errs[:500] {
		if !errors.Is(err, ebs.ErrNotFound) {
			t.Fatalf("%s: %v, want that it is not found", all[i], err)
		}
	}
	if errs[500] != nil || volumes[500].ID != known {
		t.Errorf("%+v, %v; want %s", volumes[500], errs[500], known)
	}
	calls := 0
	for _, c := range r.callsOf("DescribeVolumes") {
		if c.by("volume-id") {
			calls++
		}
	}
	if calls > 50 { // on an idle machine they are 3
		t.Errorf("%d calls for 501 look-ups, want about one for each 200", calls)
	}
	for _, c := range r.Calls() {
		if c.Code != "OK" {
			t.Errorf("EC2 refused %d calls of %s with %s: it takes 200 values", c.Count, c.Action, c.Code)
		}
	}
}

// DRIVER rule 6 for snapshots, which are asked for by id: EC2 refuses the list for one of them.
func TestLookUpsOfSnapshotsAreAsUnknownAsTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		why     string
		message string // of EC2's refusal; empty: the simulator's, which names what is unknown
		calls   int    // at most; a few more than needed, for look-ups that come apart on a busy machine
	}{
		"named":     {"EC2 says which it does not know, and is asked for the rest", "", 4},
		"not named": {"else the list is halved until it is found", "No.", 11},
		"alike":     {"an id that begins like a known one is another", "The snapshots 'snap-0123456789abcdef0', 'snap-01234567' do not exist.", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegionInRealTime(t)
			r.SetDelays(ec2sim.Delays{})
			vol := r.volume("pvc-1").ID
			var all []ebs.SnapshotID
			for i := range 7 {
				all = append(all, r.snapshot(fmt.Sprint("snap-", i), vol).ID)
			}
			unknown := ebs.SnapshotID("snap-0123456789abcdef0")
			all = append(all, unknown)
			r.intercept(func(c call) *reply {
				for key, values := range c.form {
					if tc.message != "" && strings.HasPrefix(key, "SnapshotId.") && values[0] == string(unknown) {
						return refusal(400, "InvalidSnapshot.NotFound", tc.message)
					}
				}
				return nil
			})
			before := len(r.callsOf("DescribeSnapshots"))
			client := r.client()
			var group sync.WaitGroup
			for _, id := range all {
				group.Go(func() {
					page, err := client.ListSnapshots(t.Context(), ebs.SnapshotQuery{ID: id})
					switch {
					case err != nil, id == unknown && len(page.Snapshots) != 0, id != unknown && (len(page.Snapshots) != 1 || page.Snapshots[0].ID != id):
						t.Errorf("%s: %s: %+v, %v", tc.why, id, page, err)
					}
				})
			}
			group.Wait()
			if n := len(r.callsOf("DescribeSnapshots")) - before; n > tc.calls {
				t.Errorf("%s: %d calls, want %d at most", tc.why, n, tc.calls)
			}
		})
	}
}

// A caller that gives up takes nobody along, and is not held up itself.
func TestLookUpsEndWithTheirOwnContext(t *testing.T) {
	r := newRegionInRealTime(t)
	vol := r.volume("pvc-1").ID
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	r.intercept(func(c call) *reply {
		if c.by("volume-id") {
			asked <- struct{}{}
			<-answer
		}
		return nil
	})
	client := r.client()
	stays := make(chan error, 1)
	go func() {
		_, err := client.Volume(t.Context(), vol)
		stays <- err
	}()
	short, cancel := context.WithCancel(t.Context())
	leaves := make(chan error, 1)
	go func() {
		_, err := client.Volume(short, vol)
		leaves <- err
	}()
	<-asked
	cancel()
	if err := <-leaves; !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up: %v, want the end of its context, at once", err)
	}
	close(answer)
	if err := <-stays; err != nil {
		t.Errorf("who stays: %v, want its answer", err)
	}
	if _, err := client.Volume(short, vol); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// DRIVER rule 17: where nobody waits any more the call ends, and no goroutine is left.
func TestLookUpsLeaveNothingBehind(t *testing.T) {
	r := newRegionInRealTime(t)
	ended := make(chan struct{}, 10)
	handler := r.sim
	r.sim = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-req.Context().Done() // EC2 does not answer
		ended <- struct{}{}
		handler.ServeHTTP(w, req)
	})
	_, errs := lookUpAll(soon(t, 200*time.Millisecond), r.client(), ids(20))
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
	}
	<-ended
	for deadline := time.Now().Add(5 * time.Second); ; {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "internal/ec2.(*batcher") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("look-ups go on although nobody waits:\n%s", stacks)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Each caller learns what went wrong, and the next call begins anew.
func TestLookUpsThatFailTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		code string
		want error
	}{
		"throttled":    {"EC2 wants to be asked later", "RequestLimitExceeded", ebs.ErrThrottled},
		"fault":        {"EC2 cannot answer now", "InternalError", ebs.ErrUnavailable},
		"unauthorized": {"nobody may look", "UnauthorizedOperation", ebs.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			if err := r.Inject(ec2sim.Fault{Action: "DescribeVolumes", Code: tc.code, Count: -1}); err != nil {
				t.Fatal(err)
			}
			client := r.client()
			_, errs := lookUpAll(t.Context(), client, ids(20))
			for _, err := range errs {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: %v, want %v", tc.why, err, tc.want)
				}
			}
			r.ClearFaults()
			if _, err := client.Volume(t.Context(), ids(1)[0]); !errors.Is(err, ebs.ErrNotFound) {
				t.Errorf("after it: %v, want an answer", err)
			}
		})
	}
}

// EC2 answers in pages, whatever was asked for.
func TestLookUpsFollowPages(t *testing.T) {
	r := newRegion(t)
	item := func(id ebs.VolumeID) string { return "<item><volumeId>" + string(id) + "</volumeId></item>" }
	r.intercept(func(c call) *reply {
		if c.form.Get("NextToken") == "" {
			return &reply{200, "<DescribeVolumesResponse><volumeSet>" + item(ids(2)[0]) + "</volumeSet><nextToken>more</nextToken></DescribeVolumesResponse>"}
		}
		return &reply{200, "<DescribeVolumesResponse><volumeSet>" + item(ids(2)[1]) + "</volumeSet></DescribeVolumesResponse>"}
	})
	_, errs := lookUpAll(t.Context(), r.client(), ids(2))
	if err := errors.Join(errs...); err != nil {
		t.Errorf("%v, want what the second page shows too", err)
	}
}

// A hundred volumes that are made at once share the looks that they wait with.
func TestWaitsShareTheirLooks(t *testing.T) {
	r := newRegionInRealTime(t)
	r.SetDelays(ec2sim.Delays{Create: ec2sim.Duration(1500 * time.Millisecond), Attach: ec2sim.Duration(time.Second), Detach: ec2sim.Duration(time.Second)})
	client := r.client()
	var group sync.WaitGroup
	made := make([]ebs.VolumeID, 25)
	each := func(do func(i int) error) (calls int) {
		before := len(r.callsOf("DescribeVolumes"))
		for i := range made {
			group.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		return len(r.callsOf("DescribeVolumes")) - before
	}
	created := each(func(i int) error {
		vol, err := client.EnsureVolume(t.Context(), request(fmt.Sprint("pvc-", i)))
		made[i] = vol.ID
		return err
	})
	attached := each(func(i int) error {
		_, err := client.Attach(t.Context(), made[i], nodeA)
		return err
	})
	detached := each(func(i int) error { return client.Detach(t.Context(), made[i], nodeA) })
	if created > 15 || attached > 12 || detached > 12 {
		t.Errorf("%d looks to make 25 volumes, %d to attach, %d to detach them: want about as many as for one", created, attached, detached)
	}
}
