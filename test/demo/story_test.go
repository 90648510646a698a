package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTeller(t *testing.T) {
	ok := func(context.Context) ([]string, error) { return []string{"seen it"}, nil }
	bad := func(context.Context) ([]string, error) { return nil, errors.New("no such disk") }
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	tell := &teller{out: &out, begin: at, now: func() time.Time { at = at.Add(time.Second); return at }}
	tell.play(context.Background(), []chapter{
		{"first", []step{{"a", ok}, {"b", bad}, {"c", ok}}},
		{"second", []step{{"d", ok}}},
	})
	if tell.passed != 2 || tell.failed != 2 {
		t.Errorf("passed %d failed %d, want 2 and 2: what follows a failed step in its chapter counts as failed, the next chapter goes on", tell.passed, tell.failed)
	}
	for _, want := range []string{"1. a", "seen it", "no such disk", "3. c: not reached", "4. d"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
