package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a waiting builder looks whether it is its turn.
const lockPoll = 500 * time.Millisecond

// lock takes the file's lock and returns what gives it back. The kernel gives it
// back too when the process ends.
func lock(ctx context.Context, path string, out io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache folder: %w", err)
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			fmt.Fprintf(out, "another process is building the same programs: waiting for it\n")
			told = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for another builder: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
