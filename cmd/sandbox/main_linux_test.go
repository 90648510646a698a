package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
)

func TestTell(t *testing.T) {
	failed := &sandbox.ExitError{Node: "node-a1", Argv: []string{"ctr"}, Code: 7}
	for _, tc := range []struct {
		why  string
		err  error
		code int
		said string
	}{
		{"all is well", nil, 0, ""},
		{"an error is said", errors.New("no such sandbox"), 1, "sandbox: no such sandbox\n"},
		{"the command of exec has spoken for itself", asOurs(failed), 7, ""},
		{"an error before that command is ours to say", asOurs(errors.New("on node-a1: no shell")), 1, "sandbox: on node-a1: no shell\n"},
		{"a command that we ran for our own ends has said nothing to anybody",
			fmt.Errorf("load image /etc/passwd into node-a1: %w: not a tar", failed), 1,
			"sandbox: load image /etc/passwd into node-a1: ctr on node-a1: exit code 7: not a tar\n"},
	} {
		var said strings.Builder
		if code := tell(&said, tc.err); code != tc.code || said.String() != tc.said {
			t.Errorf("%s: code %d and %q, want %d and %q", tc.why, code, said.String(), tc.code, tc.said)
		}
	}
}

// TestBuildWhereNodesSee: a cache that no node can see is refused before the build,
// which the context of this test does not let begin.
func TestBuildWhereNodesSee(t *testing.T) {
	t.Setenv("HOLDFAST_CACHE", "/var/lib/nope")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newRootCommand()
	c.SetArgs([]string{"build"})
	if err := c.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "folder /var/lib/nope lies in /var/lib") {
		t.Errorf("error %v, want it to refuse /var/lib/nope", err)
	}
}
