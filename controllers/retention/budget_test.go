package retention

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	var b budget
	at := now
	gone := 0
	for range 180 { // three minutes, second by second, with always something to delete
		for b.wait(at) == 0 {
			b.spend(1)
			gone++
		}
		at = at.Add(time.Second)
	}
	if gone != 3*perMinute {
		t.Errorf("%d deletions in three minutes, want %d", gone, 3*perMinute)
	}
	at = at.Add(time.Hour)
	if b.wait(at) != 0 {
		t.Error("after an hour of quiet nothing is allowed")
	}
	b.spend(3*perWindow + 1) // a large group
	if wait := b.wait(at); wait <= 2*window || wait > 3*window {
		t.Errorf("after a group of %d the wait is %v, want the windows that it took", 3*perWindow+1, wait)
	}
	if wait := b.wait(at.Add(-time.Hour)); wait > 3*window {
		t.Errorf("the clock went back an hour, and the wait is %v", wait)
	}
}
