package main

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The sidecars' ways: how long a request may take, and how long they wait
// before they repeat it.
const (
	rpcTimeout   = 60 * time.Second
	backoffFirst = time.Second
	backoffMost  = 5 * time.Minute
)

// task does one request for the i-th volume. settled says that nothing is left
// to be asked: a snapshot that is not ready is asked for again.
type task func(ctx context.Context, i int) (settled bool, err error)

// outcome is what a crew saw.
type outcome struct {
	took time.Duration
	// answered is how long each volume waited for its first success, from its
	// first request on; volumes that had none are absent.
	answered map[int]time.Duration
	errors   map[codes.Code]int
	sample   string // one of the errors
	settled  int
}

// crew is a number of workers that do a task for each of n volumes. A volume
// whose request fails goes to the back of the queue after a pause, as in the
// sidecars' work queues; meanwhile the worker does others.
type crew struct {
	ctx   context.Context
	do    task
	queue chan int

	mu    sync.Mutex
	begun []time.Time // by volume
	tries []int
	done  []bool // answered
	out   outcome
	left  int
	all   chan struct{}
}

// work has workers do a task for n volumes. It ends when all are settled or
// ctx ends.
func work(ctx context.Context, workers, n int, do task) outcome {
	c := &crew{
		ctx: ctx, do: do, queue: make(chan int, n), left: n, all: make(chan struct{}),
		begun: make([]time.Time, n), tries: make([]int, n), done: make([]bool, n),
		out: outcome{answered: make(map[int]time.Duration, n), errors: map[codes.Code]int{}},
	}
	start := time.Now()
	for i := range n {
		c.queue <- i
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(c.worker)
	}
	running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.took = time.Since(start)
	return c.out
}

func (c *crew) worker() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.all:
			return
		case i := <-c.queue:
			c.once(i)
		}
	}
}

// once does the task once for a volume.
func (c *crew) once(i int) {
	c.mu.Lock()
	if c.begun[i].IsZero() {
		c.begun[i] = time.Now()
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, rpcTimeout)
	settled, err := c.do(ctx, i)
	cancel()
	c.note(i, settled, err)
}

// note counts what came of a request and has it repeated where that is needed.
func (c *crew) note(i int, settled bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.ctx.Err() == nil {
		c.out.errors[status.Code(err)]++
		c.out.sample = err.Error()
	}
	if err == nil && !c.done[i] {
		c.done[i] = true
		c.out.answered[i] = time.Since(c.begun[i])
	}
	if err == nil && settled {
		c.out.settled++
		if c.left--; c.left == 0 {
			close(c.all)
		}
		return
	}
	pause := backoff(c.tries[i])
	c.tries[i]++
	time.AfterFunc(pause, func() { c.queue <- i }) // the queue has room for every volume
}

// backoff is the pause before the next try of a volume that was tried before so often.
func backoff(before int) time.Duration {
	pause := backoffFirst
	for range before {
		if pause *= 2; pause >= backoffMost {
			return backoffMost
		}
	}
	return pause
}

// failures is how many requests failed.
func (o outcome) failures() int {
	n := 0
	for _, count := range o.errors {
		n += count
	}
	return n
}
