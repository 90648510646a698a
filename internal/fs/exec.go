package fs

import (
	"context"
	"iter"
	"strings"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// boundExec runs every command under one context, for libraries that do not
// pass one on: who gives up takes its mkfs, fsck or resize2fs with it.
type boundExec struct {
	utilexec.Interface
	ctx context.Context
}

// withContext binds exec's commands to ctx.
func withContext(ctx context.Context, exec utilexec.Interface) utilexec.Interface {
	return boundExec{Interface: exec, ctx: ctx}
}

// Command is the context's CommandContext.
func (b boundExec) Command(cmd string, args ...string) utilexec.Cmd {
	return b.CommandContext(b.ctx, cmd, args...)
}

// boundMounter mounts nothing once its context has ended: mount-utils takes an
// fsck that was cut off for a warning and would go on to mount.
type boundMounter struct {
	mountutils.Interface
	ctx context.Context
}

// MountSensitive is mount-utils' own if the context still stands.
func (b boundMounter) MountSensitive(source, target, fstype string, options, sensitive []string) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	return b.Interface.MountSensitive(source, target, fstype, options, sensitive)
}

// keeper is an exec that formats nothing, for a device that holds a filesystem:
// mount-utils looks at the device a second time, and takes one that just then
// cannot be read for an empty one, since blkid answers both alike.
type keeper struct {
	utilexec.Interface
	// refused is set once a mkfs was asked for.
	refused bool
}

// Command is the wrapped Command, or for a mkfs one that fails without running.
func (k *keeper) Command(cmd string, args ...string) utilexec.Cmd {
	run := k.Interface.Command(cmd, args...)
	if strings.HasPrefix(cmd, "mkfs") {
		k.refused = true
		return refusedCmd{run}
	}
	return run
}

// CommandContext is as Command.
func (k *keeper) CommandContext(ctx context.Context, cmd string, args ...string) utilexec.Cmd {
	run := k.Interface.CommandContext(ctx, cmd, args...)
	if strings.HasPrefix(cmd, "mkfs") {
		k.refused = true
		return refusedCmd{run}
	}
	return run
}

// refusedCmd is a command that is not run, whichever way it is asked to.
type refusedCmd struct{ utilexec.Cmd }

func (refusedCmd) Run() error                      { return ErrUnreadable }
func (refusedCmd) CombinedOutput() ([]byte, error) { return nil, ErrUnreadable }
func (refusedCmd) Output() ([]byte, error)         { return nil, ErrUnreadable }
func (refusedCmd) Start() error                    { return ErrUnreadable }

// splitOptions yields the options of comma-separated lists.
func splitOptions(lists ...string) iter.Seq[string] {
	return strings.SplitSeq(strings.Join(lists, ","), ",")
}
