package fs

import (
	"context"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"
)

// TestCommandsEndWithTheirCaller: a tool that was started for a call does not
// outlive it.
func TestCommandsEndWithTheirCaller(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- withContext(ctx, utilexec.New()).Command("sleep", "60").Run() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a command that was cut off must fail")
		}
	case <-time.After(20 * time.Second):
		t.Error("the command outlives its caller")
	}
}
