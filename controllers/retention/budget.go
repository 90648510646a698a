package retention

import "time"

// Deletions are spread: bursts of them make drivers and clouds refuse calls, and
// what is not called again leaks cloud snapshots
// (https://github.com/kubernetes-csi/external-snapshotter/issues/1446).
const (
	perMinute = 20
	// window is how long perWindow deletions are good for: short, so that they are
	// spread over the minute and one schedule does not take them all.
	window    = 15 * time.Second
	perWindow = int(perMinute * window / time.Minute)
)

// budget bounds the deletions of all schedules together. The zero value is full.
type budget struct {
	start time.Time // of the window
	used  int       // more than perWindow where a large group went
}

// wait is how long no deletion is allowed; 0: one is now.
func (b *budget) wait(now time.Time) time.Duration {
	if b.start.IsZero() || now.Before(b.start) { // the first time, or the clock went back
		b.start = now
	}
	if n := int(now.Sub(b.start) / window); n > 0 {
		b.used = max(b.used-n*perWindow, 0)
		b.start = b.start.Add(time.Duration(n) * window)
	}
	if b.used < perWindow {
		return 0
	}
	return b.start.Add(window * time.Duration(b.used/perWindow)).Sub(now)
}

// spend counts deletions. A group goes whole, so it may take more than there is,
// and the windows that follow pay for it.
func (b *budget) spend(n int) { b.used += n }
