//go:build envtest

package main

import (
	"bytes"
	"regexp"
	"testing"
	"time"
)

// TestRun: the whole measurement, of few claims. What it measures is for a
// reader to judge; that it measures is held here.
func TestRun(t *testing.T) {
	o := options{claims: 20, policies: []int{1, 3}, rounds: 3, batch: 8, workers: 2, rate: 50, duration: 2 * time.Second, judges: 30, log: t.TempDir() + "/log"}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for why, want := range map[string]string{
		"every request is answered":        `answered 100, of these denied [1-9][0-9]*, failed 0;`,
		"the bare server is measured":      `without Holdfast +[0-9.]+ +[0-9.]+ +[0-9]+ +1\.00 +1\.00 +1\.00`,
		"each number of policies is":       `(?m)^1 +[0-9.]+ .*\n3 +[0-9.]+ `,
		"the manager's process is looked":  `with 20 claims, after the steady load: resident [1-9][0-9.]* MiB, peak [1-9]`,
		"and its heap":                     `heap in use [1-9][0-9.]* MiB`,
		"reads are beside their target":    `live reads a 1,000 admissions +[0-9.]+ +<= 1 `,
		"and so is the webhook's own time": `webhook p99, 50 requests/s, 30 policies +[0-9.]+ ms +<= 20 ms`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%s: nothing matches %s", why, want)
		}
	}
	if t.Failed() {
		t.Logf("printed:\n%s", &out)
	}
}
