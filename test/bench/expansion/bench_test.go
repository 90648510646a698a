//go:build envtest

package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestRun: the whole measurement, of few claims. What it measures is for a reader
// to judge; that it measures is held here.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), options{claims: 40, kubelets: 4, interval: time.Second, rounds: 3, other: 10, log: os.DevNull}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for why, want := range map[string]string{
		"the manager's process is looked at": `resident [1-9][0-9.]* MiB, peak [1-9]`,
		"rounds are counted":                 `[3-9]\.[0-9] rounds: `,
		"kubelets answer":                    `questions that kubelets did not answer +0 `,
		"nothing is written at rest":         `rounds at rest +0 `,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%s: nothing matches %s", why, want)
		}
	}
	if t.Failed() {
		t.Logf("printed:\n%s", &out)
	}
}
