package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/test/process"
)

// target is the driver that is measured.
type target struct {
	*process.Client
	gauge *gauge // nil: its process is not known
	// note says how memory is measured, where it is not by cgroup.
	note string

	binary     string          // empty: somebody else's
	controller *process.Driver // nil: somebody else's
	group      *memoryGroup
	log        *os.File
}

// newTarget starts Holdfast's controller, or connects to the endpoint that was given.
func newTarget(ctx context.Context, o options, ec2URL, dir string) (*target, error) {
	if o.csiEndpoint != "" {
		return foreignTarget(ctx, o)
	}
	t := &target{}
	var err error
	if t.binary, err = process.Build(ctx, dir); err != nil {
		return nil, err
	}
	if t.group, err = newMemoryGroup(fmt.Sprintf("holdfast-bench-%d", os.Getpid())); err != nil {
		t.note = fmt.Sprintf("* resident set (VmHWM) instead of the cgroup's working set, since no cgroup could be made: %v", err)
	}
	if t.log, err = os.Create(o.log); err != nil {
		return nil, errors.Join(fmt.Errorf("--log: %w", err), t.close())
	}
	start := process.Options{Binary: t.binary, Dir: dir, Log: t.log, Args: o.driverArgs}
	if t.group != nil {
		start.Wrap = t.group.enter()
	}
	if t.controller, err = process.StartController(ctx, start, ec2URL); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.gauge = newGauge(t.controller.PID(), t.group)
	if t.Client, err = process.Dial(t.controller.Endpoint); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// foreignTarget connects to a driver that somebody else starts.
func foreignTarget(ctx context.Context, o options) (*target, error) {
	t := &target{note: "* resident set (VmHWM): the driver is not in a cgroup of this program"}
	if err := process.Served(ctx, o.csiEndpoint, nil); err != nil {
		return nil, fmt.Errorf("--csi-endpoint: %w", err)
	}
	if o.pid != 0 {
		t.gauge = newGauge(o.pid, nil)
	}
	var err error
	t.Client, err = process.Dial(o.csiEndpoint)
	return t, err
}

// pid is the driver's process, 0 if it is not known.
func (t *target) pid() int {
	if t.gauge == nil {
		return 0
	}
	return t.gauge.pid
}

func (t *target) close() error {
	var errs []error
	if t.Client != nil {
		errs = append(errs, t.Close())
	}
	t.gauge.close()
	if t.controller != nil {
		errs = append(errs, t.controller.Stop())
	}
	if t.group != nil {
		errs = append(errs, t.group.remove())
	}
	if t.log != nil {
		errs = append(errs, t.log.Close())
	}
	return errors.Join(errs...)
}
