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
	o := options{claims: 6, schedules: 2, lead: 30 * time.Second, throttle: true, qps: 100, patience: 5 * time.Minute, resting: 10, copies: 2, quiet: 3 * time.Second}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for why, want := range map[string]string{
		"every claim is copied":              `created  6: first [0-9.]+ s after the slot`,
		"by the real stack":                  `ready    6: first `,
		"in EC2":                             `CreateSnapshot OK 6`,
		"the manager's requests are told":    `the manager sent (GET [0-9]+, )?POST [0-9]+`,
		"the manager's process is looked at": `resident [1-9][0-9.]* MiB, peak [1-9]`,
		"what is written at rest is told":    `in that time it worked [0-9.]+ s of processor time; requests answered: .*; written: `,
		"nothing is copied twice":            `claims copied twice +0 `,
		"nor written at rest":                `writes in 3s at rest +0 `,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%s: nothing matches %s", why, want)
		}
	}
	if t.Failed() {
		t.Logf("printed:\n%s", &out)
	}
}
