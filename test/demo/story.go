package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// step is one thing that the demo shows. It returns what was seen, for the
// reader, a line each.
type step struct {
	title string
	run   func(context.Context) (seen []string, err error)
}

// chapter is a run of steps that build on each other: after one that failed
// the rest of the chapter cannot be shown and counts as failed.
type chapter struct {
	title string
	steps []step
}

// stepTimeout bounds a step; the longest, a Pod's move to another node, takes
// about 20 s.
const stepTimeout = 3 * time.Minute

// teller plays chapters and counts.
type teller struct {
	out            io.Writer
	begin          time.Time
	now            func() time.Time
	passed, failed int
}

func (t *teller) play(ctx context.Context, chapters []chapter) {
	number := 0
	for _, c := range chapters {
		fmt.Fprintf(t.out, "\n== %s\n", c.title)
		broken := false
		for _, s := range c.steps {
			number++
			if broken || ctx.Err() != nil {
				t.failed++
				fmt.Fprintf(t.out, "%s %2d. %s: not reached\n", t.clock(), number, s.title)
				continue
			}
			broken = !t.step(ctx, number, s)
		}
	}
}

func (t *teller) step(ctx context.Context, number int, s step) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	start := t.now()
	fmt.Fprintf(t.out, "%s %2d. %s\n", t.clock(), number, s.title)
	seen, err := s.run(ctx)
	for _, line := range seen {
		fmt.Fprintf(t.out, "              %s\n", line)
	}
	if err != nil {
		t.failed++
		fmt.Fprintf(t.out, "              FAILED after %.1f s: %v\n", t.now().Sub(start).Seconds(), err)
		return false
	}
	t.passed++
	fmt.Fprintf(t.out, "              ok (%.1f s)\n", t.now().Sub(start).Seconds())
	return true
}

func (t *teller) clock() string {
	return fmt.Sprintf("[%6.1f s]", t.now().Sub(t.begin).Seconds())
}
