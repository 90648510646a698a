package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// queue is a queue whose plans are noted instead of sent to EC2.
type queue struct {
	*changes
	t *testing.T

	mu     sync.Mutex
	sent   []string
	takes  time.Duration            // how long a change takes
	refuse func(p modifyPlan) error // nil: everything is accepted
	now    ebs.Shape                // the volume, as seen by a new look
	began  []time.Time
}

func newQueue(t *testing.T) *queue {
	q := &queue{t: t, takes: 5 * time.Second, now: gp3Of10}
	clk := clock.RealClock{}
	q.changes = newChanges(clk,
		func(context.Context, ebs.VolumeID, time.Duration) (ebs.Volume, *modification, error) {
			q.mu.Lock()
			defer q.mu.Unlock()
			return volumeOf(q.now), nil, nil
		},
		func(ctx context.Context, _ ebs.VolumeID, p modifyPlan) (ebs.Shape, error) {
			q.mu.Lock()
			q.sent = append(q.sent, p.target.String())
			q.began = append(q.began, time.Now())
			refuse := q.refuse
			q.mu.Unlock()
			if refuse != nil {
				if err := refuse(p); err != nil {
					return p.from, err
				}
			}
			if err := sleep(ctx, clk, q.takes); err != nil {
				return p.from, err
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.now = p.target
			return p.target, nil
		})
	return q
}

// outcome is what a caller was told.
type outcome struct {
	shape ebs.Shape
	err   error
	after time.Duration
}

// ask has a change made by a caller of its own.
func (q *queue) ask(ctx context.Context, want ebs.Modification) <-chan outcome {
	told := make(chan outcome, 1)
	start := time.Now()
	go func() {
		shape, err := q.do(ctx, q.arrive(volumeOf(gp3Of10).ID), volumeOf(gp3Of10), nil, want)
		told <- outcome{shape, err, time.Since(start)}
	}()
	synctest.Wait()
	return told
}

func (q *queue) wantSent(shapes ...string) {
	q.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if got, want := strings.Join(q.sent, "; "), strings.Join(shapes, "; "); got != want {
		q.t.Errorf("sent: %s\nwant: %s", got, want)
	}
	if len(q.onWay) != 0 {
		q.t.Errorf("%d changes are left in the queue", len(q.onWay))
	}
}

func gatherTest(t *testing.T, test func(t *testing.T, q *queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newQueue(t)) })
}

// DRIVER rule 10: expand and modify close together. They are answered a second
// apart, for what csi-resizer does with the answers.
func TestChangesCloseTogetherAreOne(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		first := q.ask(t.Context(), ebs.Modification{Size: 20})
		<-time.After(1900 * time.Millisecond)
		second := q.ask(t.Context(), ebs.Modification{IOPS: 4000})
		both := ebs.Shape{Size: 20, Type: ebs.GP3, IOPS: 4000, ThroughputMiBps: 125}
		for _, want := range []struct {
			told  <-chan outcome
			after time.Duration
		}{{first, 7 * time.Second}, {second, 7*time.Second + answersApart - 1900*time.Millisecond}} {
			if got := <-want.told; got.err != nil || got.shape != both || got.after != want.after {
				t.Errorf("%s, %v after %s, want %s after %s", got.shape, got.err, got.after, both, want.after)
			}
		}
		synctest.Wait()
		q.wantSent(both.String())
	})
}

func TestAChangeThatComesTooLate(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		first := q.ask(t.Context(), ebs.Modification{Size: 20})
		<-time.After(2100 * time.Millisecond)
		same := q.ask(t.Context(), ebs.Modification{Size: 15})
		other := <-q.ask(t.Context(), ebs.Modification{Size: 30})
		if !errors.Is(other.err, ebs.ErrNotReady) || other.after != 0 || !strings.Contains(other.err.Error(), "20 GiB") || !strings.Contains(other.err.Error(), "30 GiB") {
			t.Errorf("to another size: %v after %s, want at once that it is not ready, and both sizes", other.err, other.after)
		}
		if got := <-<-waitBoth(first, same); got.err != nil {
			t.Error(got.err)
		}
		synctest.Wait()
		q.wantSent(gp3Of20.String())
	})
}

// waitBoth hands on the second of two outcomes once the first is there.
func waitBoth(first, second <-chan outcome) <-chan (<-chan outcome) {
	out := make(chan (<-chan outcome), 1)
	go func() { <-first; out <- second }()
	return out
}

func TestAChangeThatContradicts(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		first := q.ask(t.Context(), ebs.Modification{Size: 20})
		got := <-q.ask(t.Context(), ebs.Modification{Size: 30})
		if !errors.Is(got.err, ebs.ErrNotReady) || infeasible(got.err) || !strings.Contains(got.err.Error(), "20 and 30") {
			t.Errorf("%v, want that it is not ready, and both values", got.err)
		}
		if got := <-first; got.err != nil || got.shape != gp3Of20 {
			t.Errorf("the first: %s, %v", got.shape, got.err)
		}
		synctest.Wait()
		q.wantSent(gp3Of20.String())
	})
}

// DRIVER rule 17: who gives up takes nobody with it; when all have, nothing goes on.
func TestCallersThatGiveUp(t *testing.T) {
	for name, tc := range map[string]struct {
		after    time.Duration
		all      bool
		sent     []string
		accepted bool
	}{
		"one, while gathering": {time.Second, false, []string{"gp3 of 10 GiB with 4000 IOPS and 125 MiB/s"}, false},
		"one, when sent":       {3 * time.Second, false, []string{"gp3 of 20 GiB with 4000 IOPS and 125 MiB/s"}, true},
		"all, while gathering": {time.Second, true, nil, false},
		"all, when sent":       {3 * time.Second, true, []string{"gp3 of 20 GiB with 4000 IOPS and 125 MiB/s"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			gatherTest(t, func(t *testing.T, q *queue) {
				ctx, giveUp := context.WithCancel(t.Context())
				stay := t.Context()
				if tc.all {
					stay = ctx
				}
				first := q.ask(ctx, ebs.Modification{Size: 20})
				second := q.ask(stay, ebs.Modification{IOPS: 4000})
				<-time.After(tc.after)
				giveUp()
				got := <-first
				if !errors.Is(got.err, context.Canceled) || got.after != tc.after || errors.Is(got.err, ebs.ErrMaybeAccepted) != tc.accepted {
					t.Errorf("the first: %v after %s", got.err, got.after)
				}
				if got := <-second; (got.err != nil) != tc.all {
					t.Errorf("the second: %s, %v", got.shape, got.err)
				}
				synctest.Wait() // and no goroutine is left, or the bubble would not end
				q.wantSent(tc.sent...)
			})
		})
	}
}

// A new caller must not meet the remains of one that has given up.
func TestAfterAllHaveGivenUp(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		ctx, giveUp := context.WithCancel(t.Context())
		first := q.ask(ctx, ebs.Modification{Size: 30})
		giveUp()
		<-first
		if got := <-q.ask(t.Context(), ebs.Modification{Size: 20}); got.err != nil || got.shape != gp3Of20 {
			t.Errorf("%s, %v", got.shape, got.err)
		}
		synctest.Wait()
		q.wantSent(gp3Of20.String())
	})
}

// What no repeat can heal is said to the one whose fault it is.
func TestEC2RefusesChangesTogether(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		q.refuse = func(p modifyPlan) error {
			if p.target.IOPS == 4000 {
				return fmt.Errorf("%w: not on this volume", ebs.ErrInvalid)
			}
			return nil
		}
		bad := q.ask(t.Context(), ebs.Modification{IOPS: 4000})
		good := q.ask(t.Context(), ebs.Modification{Size: 20})
		if got := <-bad; !errors.Is(got.err, ebs.ErrInvalid) {
			t.Errorf("the bad one: %v, want EC2's refusal", got.err)
		}
		if got := <-good; got.err != nil || got.shape != gp3Of20 {
			t.Errorf("the good one: %s, %v, want that it is done", got.shape, got.err)
		}
		synctest.Wait()
		q.wantSent("gp3 of 20 GiB with 4000 IOPS and 125 MiB/s", "gp3 of 10 GiB with 4000 IOPS and 125 MiB/s", gp3Of20.String())
	})
}

// One that is impossible by itself waits for what may make it possible, and is
// told the truth then.
func TestImpossibleAlone(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		if got := <-q.ask(t.Context(), ebs.Modification{IOPS: 8000}); !errors.Is(got.err, ebs.ErrInvalid) || got.after != gatherFor {
			t.Errorf("%v after %s, want that it is invalid once nothing else has come", got.err, got.after)
		}
		synctest.Wait()
		q.wantSent()
	})
}

// Who has arrived in time is part of the change, however long it looks at the
// volume, and the looks of those before count as gathering.
func TestWhoLooksIsWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		arrives, looks time.Duration
		joins          bool // or finds that there is nothing to do
		sentAfter      time.Duration
		sent           []string
	}{
		"looks within the time":    {time.Second, 500 * time.Millisecond, true, gatherFor, []string{"gp3 of 20 GiB with 4000 IOPS and 125 MiB/s"}},
		"looks beyond it":          {1900 * time.Millisecond, 3 * time.Second, true, 4900 * time.Millisecond, []string{"gp3 of 20 GiB with 4000 IOPS and 125 MiB/s"}},
		"needs nothing":            {1900 * time.Millisecond, time.Second, false, 2900 * time.Millisecond, []string{gp3Of20.String()}},
		"arrives when it is late":  {2100 * time.Millisecond, 100 * time.Millisecond, false, gatherFor, []string{gp3Of20.String()}},
		"arrives before the first": {0, time.Second, true, gatherFor, []string{"gp3 of 20 GiB with 4000 IOPS and 125 MiB/s"}},
	} {
		t.Run(name, func(t *testing.T) {
			gatherTest(t, func(t *testing.T, q *queue) {
				start, vol := time.Now(), volumeOf(gp3Of10)
				var early *arrival
				if tc.arrives == 0 {
					early = q.arrive(vol.ID)
				}
				first := q.ask(t.Context(), ebs.Modification{Size: 20})
				<-time.After(tc.arrives)
				if early == nil {
					early = q.arrive(vol.ID)
				}
				<-time.After(tc.looks)
				if tc.joins {
					if shape, err := q.do(t.Context(), early, vol, nil, ebs.Modification{IOPS: 4000}); err != nil || shape.IOPS != 4000 {
						t.Errorf("the second: %s, %v", shape, err)
					}
				} else {
					early.leave()
					early.leave() // once more does no harm
				}
				if got := <-first; got.err != nil || got.shape.Size != 20 {
					t.Errorf("the first: %s, %v", got.shape, got.err)
				}
				synctest.Wait()
				q.wantSent(tc.sent...)
				if after := q.began[0].Sub(start); after != tc.sentAfter {
					t.Errorf("sent after %v, want %v", after, tc.sentAfter)
				}
			})
		})
	}
}

// The first caller's own look is part of the time for which its change gathers.
func TestLooksCountAsGathering(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		start, vol := time.Now(), volumeOf(gp3Of10)
		came := q.arrive(vol.ID)
		<-time.After(lookPatience)
		if _, err := q.do(t.Context(), came, vol, nil, ebs.Modification{Size: 20}); err != nil {
			t.Error(err)
		}
		if after := q.began[0].Sub(start); after != gatherFor {
			t.Errorf("sent %v after the caller arrived, want %v", after, gatherFor)
		}
		synctest.Wait()
		q.wantSent(gp3Of20.String())
	})
}

// Who leaves without a change leaves nothing behind, be it before, among or
// after callers that give up.
func TestWhoLooksAndLeaves(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		vol := volumeOf(gp3Of10)
		q.arrive(vol.ID).leave()
		q.wantSent()

		came := q.arrive(vol.ID)
		ctx, giveUp := context.WithCancel(t.Context())
		gone := q.ask(ctx, ebs.Modification{Size: 20})
		giveUp()
		<-gone
		<-time.After(gatherFor + time.Second)
		came.leave()
		synctest.Wait() // and no goroutine is left, or the bubble would not end
		q.wantSent()
	})
}

// A look takes its time only where it shares the calls of others, and nobody of
// its own volume waits for it.
func TestPatience(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		for _, step := range []struct {
			id   ebs.VolumeID
			want time.Duration
		}{{"vol-1", 0}, {"vol-2", lookPatience}, {"vol-2", 0}, {"vol-1", 0}} {
			came := q.arrive(step.id)
			if came.patience != step.want {
				t.Errorf("%s: %v, want %v", step.id, came.patience, step.want)
			}
			defer came.leave()
		}
	})
}

// Volumes do not wait for each other.
func TestQueuesAreByVolume(t *testing.T) {
	gatherTest(t, func(t *testing.T, q *queue) {
		q.takes = 0
		other := volumeOf(gp3Of10)
		other.ID = "vol-2"
		first := q.ask(t.Context(), ebs.Modification{Size: 20})
		shape, err := q.do(t.Context(), q.arrive(other.ID), other, nil, ebs.Modification{Size: 30})
		if err != nil || shape.Size != 30 {
			t.Errorf("%s, %v", shape, err)
		}
		<-first
		synctest.Wait()
		if len(q.began) != 2 || q.began[0] != q.began[1] {
			t.Errorf("sent at %v, want both at once", q.began)
		}
	})
}
