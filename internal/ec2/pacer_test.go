package ec2

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// turns takes n turns at one time and says how far the last is away.
func turns(t *testing.T, p *pacer, n int) (last time.Duration) {
	t.Helper()
	for range n {
		var err error
		if last, err = p.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

func TestPacer(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	p := &pacer{clock: clk}
	about := func(why string, got, least, most time.Duration) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: the turn is in %v, want %v to %v", why, got, least, most)
		}
	}
	about("never throttled", turns(t, p, 1000), 0, 0)
	p.throttled()
	about("throttled: 5 a second, a little more with time", turns(t, p, 50), 7*time.Second, 10*time.Second)
	p.throttled()
	about("refused together with the first: no slower", turns(t, p, 1), 7*time.Second, 10*time.Second)

	clk.Step(30 * time.Second)
	p.throttled() // the rate was 11 a second by now
	clk.Step(9 * time.Second)
	about("after a later refusal", turns(t, p, 90), 8*time.Second, 11*time.Second)

	for range 100 {
		p.throttled()
		clk.Step(2 * time.Second)
	}
	about("refused for ever: one a second still", turns(t, p, 10), 4*time.Second, 10*time.Second)

	clk.Step(time.Minute)
	about("after a rest", turns(t, p, 1000), 0, 0)
}

// DRIVER rule 17: who cannot get a turn in time does not wait, nor take one away.
func TestPacerAndContexts(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	p := &pacer{clock: clk}
	p.throttled()
	turns(t, p, 50)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	before := p.next
	if err := p.wait(short); !errors.Is(err, ebs.ErrThrottled) {
		t.Errorf("no turn within its context: %v, want that EC2 throttles", err)
	}
	if !p.next.Equal(before) {
		t.Error("a turn was taken by who cannot use it")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.wait(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
}
