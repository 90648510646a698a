package schedule

import (
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// TestFailuresDoNotMakeRunsLate: a schedule of which something fails for hours, as a
// member of a group that takes no marks, is looked at when its next run is due: a
// run that begins later than lateAfter is missed where nothing is made up for.
func TestFailuresDoNotMakeRunsLate(t *testing.T) {
	p, all := patience(), time.Duration(0)
	for range 500 {
		wait := p.When(ctrl.Request{})
		if wait > lateAfter/2 {
			t.Fatalf("after %v of failures it is looked at again in %v, and a run may be %v late", all, wait, lateAfter)
		}
		all += wait
	}
	if all < time.Hour {
		t.Errorf("500 failures within %v: that is hot", all)
	}
}
