package ec2

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// gatherFor is for how long a change waits for others of its volume. A claim's
// new size and new class reach the driver as two requests, within moments of
// each other; EC2 would take the second only when the first is completed, hours
// later, and allows four a day.
const gatherFor = 2 * time.Second

// lookPatience is how long the looks at a volume may take before its change,
// where other volumes' changes are on their way whose looks they can share. It
// ends within gatherFor, so the change is not sent later for it; what is found to
// be as wanted is answered that much later.
const lookPatience = 1500 * time.Millisecond

// answersApart is how long the answer to a caller comes after the one before, of
// those that share a change. csi-resizer writes a claim's new size and its new
// class by two loops over one cache, and puts what the API server answered into the
// cache itself: written within milliseconds, the older state stays there, and both
// loops meet conflicts until the claim changes again
// (https://github.com/kubernetes-csi/external-resizer/issues/458).
const answersApart = time.Second

// changes is the one queue that the changes of a volume's shape go through. A
// caller arrives, looks at the volume, and has its change made or leaves; those
// that arrive within gatherFor of the first make one change, however long they look.
//
//	none on its way                 gather for a while, then send all as one
//	gathering                       joins; ErrNotReady where it contradicts one that came before
//	sent  to what is wanted         waits for it
//	      to something else         ErrNotReady
//
// The work has a context of its own: a caller that gives up takes nobody with
// it, and when the last one has given up it ends, or is never begun.
type changes struct {
	clock clock.Clock
	// look looks at a volume anew, within a time.
	look func(ctx context.Context, id ebs.VolumeID, within time.Duration) (ebs.Volume, *modification, error)
	// carryOut does what a plan says and answers the shape that the volume then has.
	carryOut func(ctx context.Context, id ebs.VolumeID, p modifyPlan) (ebs.Shape, error)

	mu    sync.Mutex
	onWay map[ebs.VolumeID]*change
}

// change is one change on its way.
type change struct {
	id      ebs.VolumeID
	began   time.Time  // when the first caller arrived
	looking int        // callers that look at the volume before they say what they need
	vol     ebs.Volume // as the last member saw it
	latest  *modification
	members []*changeMember
	// looked is made when the gathering is over, and closed when nobody looks any more.
	looked chan struct{}
	sent   bool
	target ebs.Shape          // once it is sent
	stop   context.CancelFunc // of the work; nil before the first member
}

func newChanges(clk clock.Clock, look func(context.Context, ebs.VolumeID, time.Duration) (ebs.Volume, *modification, error), carryOut func(context.Context, ebs.VolumeID, modifyPlan) (ebs.Shape, error)) *changes {
	return &changes{clock: clk, look: look, carryOut: carryOut, onWay: map[ebs.VolumeID]*change{}}
}

// arrival is a caller that may want a change, and looks at the volume to see.
type arrival struct {
	// patience is how long it may take to look.
	patience time.Duration

	queue   *changes
	waiting *change // that waits for it; nil: none, or not any more
}

// arrive notes a caller. While it looks, the changes of its volume wait to be sent.
func (q *changes) arrive(id ebs.VolumeID) *arrival {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, ch := &arrival{queue: q}, q.onWay[id]
	switch {
	case ch == nil:
		if len(q.onWay) > 0 {
			a.patience = lookPatience
		}
		ch = q.begin(id)
	case ch.looked != nil:
		return a // too late to be waited for
	}
	ch.looking++
	a.waiting = ch
	return a
}

// begin puts a change in the queue, still of nobody.
func (q *changes) begin(id ebs.VolumeID) *change {
	ch := &change{id: id, began: q.clock.Now()}
	q.onWay[id] = ch
	return ch
}

// leave says that the caller does not look any more. It may be called again.
func (a *arrival) leave() {
	a.queue.mu.Lock()
	defer a.queue.mu.Unlock()
	ch := a.waiting
	if ch == nil {
		return
	}
	a.waiting = nil
	if ch.looking--; ch.looking > 0 {
		return
	}
	if ch.looked != nil {
		close(ch.looked)
	}
	a.queue.giveUp(ch)
}

// giveUp ends a change that nobody waits for.
func (q *changes) giveUp(ch *change) {
	if len(ch.members) > 0 || ch.looking > 0 {
		return
	}
	if ch.stop != nil {
		ch.stop()
	}
	q.drop(ch)
}

// changeMember is one caller.
type changeMember struct {
	want   ebs.Modification
	answer chan changeAnswer // of one place: nobody waits for a caller that has given up
}

type changeAnswer struct {
	shape ebs.Shape
	err   error
	after time.Duration // how long the caller keeps it back
}

// do has a change made that the caller has found to be needed.
func (q *changes) do(ctx context.Context, came *arrival, vol ebs.Volume, latest *modification, want ebs.Modification) (ebs.Shape, error) {
	m, err := q.enter(ctx, vol, latest, want)
	came.leave()
	if err != nil {
		return ebs.Shape{}, err
	}
	select {
	case a := <-m.answer:
		_ = sleep(ctx, q.clock, a.after) // a caller that gives up is answered all the same
		return a.shape, a.err
	case <-ctx.Done():
		return ebs.Shape{}, q.leave(vol.ID, m, ctx.Err())
	}
}

// enter makes the caller a member of the volume's change.
func (q *changes) enter(ctx context.Context, vol ebs.Volume, latest *modification, want ebs.Modification) (*changeMember, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &changeMember{want: want, answer: make(chan changeAnswer, 1)}
	ch := q.onWay[vol.ID]
	if ch == nil { // the one that was on its way when the caller arrived has ended
		ch = q.begin(vol.ID)
	}
	if ch.sent {
		target, err := want.Target(ch.target, vol.Tags)
		if err == nil && target != ch.target {
			err = fmt.Errorf("%w: volume %s is just being changed to %s, wanted is %s", ebs.ErrNotReady, vol.ID, ch.target, target)
		}
		if err != nil {
			return nil, err
		}
	} else {
		if err := ch.agrees(want); err != nil {
			return nil, fmt.Errorf("volume %s: %w", vol.ID, err)
		}
		ch.vol, ch.latest = vol, latest
	}
	ch.members = append(ch.members, m)
	if ch.stop == nil {
		work, stop := context.WithCancel(context.WithoutCancel(ctx))
		ch.stop = stop
		go q.run(work, ch)
	}
	return m, nil
}

// agrees says whether a change contradicts none of the members.
func (ch *change) agrees(want ebs.Modification) error {
	for _, m := range ch.members {
		if _, err := m.want.Merge(want); err != nil {
			return err
		}
	}
	return nil
}

// leave takes a caller out that gives up; the last one ends the work.
func (q *changes) leave(id ebs.VolumeID, m *changeMember, why error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	ch := q.onWay[id]
	if ch == nil || !ch.remove(m) {
		return why // answered in this very moment
	}
	q.giveUp(ch)
	if ch.sent {
		return accepted(why)
	}
	return why
}

func (ch *change) remove(m *changeMember) bool {
	for i, other := range ch.members {
		if other == m {
			ch.members = append(ch.members[:i], ch.members[i+1:]...)
			return true
		}
	}
	return false
}

// run gathers, sends and waits.
func (q *changes) run(ctx context.Context, ch *change) {
	defer ch.stop()
	if sleep(ctx, q.clock, gatherFor-q.clock.Since(ch.began)) != nil || !q.awaitLooks(ctx, ch) {
		return // the last member has left
	}
	p := q.decide(ch)
	if p == nil {
		return
	}
	shape, err := q.carryOut(ctx, ch.id, *p)
	if infeasible(err) && q.alone(ctx, ch) {
		return
	}
	q.end(ch, shape, err)
}

// awaitLooks ends the gathering: it waits for those that have arrived in time and
// still look at the volume. It is false where ctx ends.
func (q *changes) awaitLooks(ctx context.Context, ch *change) bool {
	q.mu.Lock()
	ch.looked = make(chan struct{})
	if ch.looking == 0 {
		close(ch.looked)
	}
	q.mu.Unlock()
	select {
	case <-ch.looked:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// decide answers the members whose change cannot be made
// and plans those of the others; no plan where none is left.
func (q *changes) decide(ch *change) *modifyPlan {
	q.mu.Lock()
	defer q.mu.Unlock()
	var wants []ebs.Modification
	for _, m := range ch.members {
		wants = append(wants, m.want)
	}
	if wants == nil { // the last member has left in this very moment
		return nil
	}
	p, errs := planTogether(ch.vol, ch.latest, wants)
	var stay []*changeMember
	for i, m := range ch.members {
		if errs[i] != nil {
			m.answer <- changeAnswer{err: errs[i]}
			continue
		}
		stay = append(stay, m)
	}
	ch.members = stay
	if len(stay) == 0 {
		q.drop(ch)
		return nil
	}
	ch.sent, ch.target = true, p.target
	return p
}

// alone does, after EC2 has refused several changes as one, each by itself: the
// refusal of one must not end the others for good. It is false where there was
// only one.
func (q *changes) alone(ctx context.Context, ch *change) bool {
	q.mu.Lock()
	members := append([]*changeMember(nil), ch.members...)
	q.mu.Unlock()
	if len(members) < 2 {
		return false
	}
	for _, m := range members {
		shape, err := q.one(ctx, ch, m.want)
		q.mu.Lock()
		if ch.remove(m) {
			m.answer <- changeAnswer{shape: shape, err: err}
		}
		q.mu.Unlock()
	}
	q.end(ch, ebs.Shape{}, fmt.Errorf("%w: volume %s was just being changed otherwise", ebs.ErrNotReady, ch.id))
	return true
}

// one does one member's change alone.
func (q *changes) one(ctx context.Context, ch *change, want ebs.Modification) (ebs.Shape, error) {
	vol, latest, err := q.look(ctx, ch.id, 0)
	if err != nil {
		return ebs.Shape{}, err
	}
	p, err := planModify(vol, latest, want)
	if err != nil {
		return ebs.Shape{}, err
	}
	q.mu.Lock()
	ch.target = p.target
	q.mu.Unlock()
	return q.carryOut(ctx, ch.id, p)
}

// end answers all members, one after the other, and lets the next change of the
// volume begin.
func (q *changes) end(ch *change, shape ebs.Shape, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range ch.members {
		m.answer <- changeAnswer{shape: shape, err: err, after: time.Duration(i) * answersApart}
	}
	ch.members = nil
	q.drop(ch)
}

// drop takes a change out of the queue, unless another one has its place already.
func (q *changes) drop(ch *change) {
	if q.onWay[ch.id] == ch {
		delete(q.onWay, ch.id)
	}
}
