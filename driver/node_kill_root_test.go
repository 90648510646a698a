//go:build root

package driver

import (
	"os/exec"
	"testing"
	"time"
)

// TestFormatKilled: a mkfs that dies with its process at any moment leaves a
// disk that the next call takes: formatted again where nothing can be in it.
func TestFormatKilled(t *testing.T) {
	for fsType, args := range map[string][]string{"ext4": {"-F", "-m0"}, "ext3": {"-F", "-m0"}, "xfs": {"-f"}} {
		t.Run(fsType, func(t *testing.T) {
			for after := time.Duration(0); after < 24*time.Millisecond; after += 2 * time.Millisecond {
				t.Run(after.String(), func(t *testing.T) {
					b := newBench(t)
					d := b.attach(volumeA, 512)
					mkfs := exec.Command("mkfs."+fsType, append(args, "/dev/"+d.loop)...)
					must(t, mkfs.Start())
					timer := time.AfterFunc(after, func() { _ = mkfs.Process.Kill() })
					_ = mkfs.Wait() // killed, or done before
					timer.Stop()
					must(t, b.stage(volumeA, mountOf(fsType)))
				})
			}
		})
	}
}
