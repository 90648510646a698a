package world

import (
	"sync"
	"time"
)

// absentFor is how long a class that was read live and is not there is not read
// again, nor a kind that the cluster does not have. It is well above the moment after which an informer has a class that is
// made meanwhile, and which is looked at first.
const absentFor = 10 * time.Second

// maxAbsent bounds how many names are kept: whoever makes claims chooses them.
const maxAbsent = 1024

// absences are names of what is not there, and until when that is believed.
type absences struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (a *absences) has(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[name])
}

func (a *absences) add(name string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil || len(a.until) >= maxAbsent {
		a.until = map[string]time.Time{} // what is forgotten is read live once more
	}
	a.until[name] = now.Add(absentFor)
}
