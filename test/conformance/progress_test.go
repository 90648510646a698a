package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgress: a line for each spec as it ends, however the output is cut.
func TestProgress(t *testing.T) {
	const labels = " [Driver: ebs.csi.aws.com, Slow]"
	text := strings.Join([]string{
		"Will run 3 of 7 specs",
		"------------------------------",
		"• [0.585 seconds]",
		prefix + "[Testpattern: a] volumes works" + labels,
		"/go/test/e2e/storage/volumes.go:126",
		"  Timeline >>",
		"  " + prefix + "is a word in a log",
		"------------------------------",
		"• [FAILED] [16.023 seconds]",
		prefix + "[Testpattern: b] subPath [It] breaks [Slow]" + labels,
		"S [SKIPPED] [0.100 seconds]",
		prefix + "[Testpattern: c] may skip" + labels,
		"• [1.000 seconds]",
		"CSI mock volume works [sig-storage]",
		"",
	}, "\n")
	out := &bytes.Buffer{}
	p := &progress{out: out, started: time.Now(), total: 3}
	for part := range strings.SplitSeq(text, "e") {
		for _, s := range []string{part, "e"} {
			if n, err := p.Write([]byte(s)); err != nil || n != len(s) {
				t.Fatal(n, err)
			}
		}
	}
	want := []string{"1/3 passed [Testpattern: a] volumes works", "2/3 failed [Testpattern: b] subPath breaks [Slow]", "3/3 skipped [Testpattern: c] may skip"}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("lines %q", lines)
	}
	for i := range want {
		if !strings.HasSuffix(lines[i], want[i]) {
			t.Errorf("line %q, want %q at its end", lines[i], want[i])
		}
	}
}
