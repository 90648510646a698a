package bench

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress tells how far a measurement is. A nil one tells nobody.
type Progress struct {
	to    io.Writer
	began time.Time

	mu   sync.Mutex
	last time.Time
}

// NewProgress tells a writer, beside the time since now.
func NewProgress(to io.Writer) *Progress { return &Progress{to: to, began: time.Now()} }

// Say tells a step.
func (p *Progress) Say(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(format, args)
}

// tellEvery is how often one step is told of.
const tellEvery = 5 * time.Second

// Often tells how far a step is, where nothing was told for a while.
func (p *Progress) Often(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) >= tellEvery {
		p.say(format, args)
	}
}

func (p *Progress) say(format string, args []any) {
	p.last = time.Now()
	fmt.Fprintf(p.to, "[%4.0f s] %s\n", p.last.Sub(p.began).Seconds(), fmt.Sprintf(format, args...))
}
