package expansion

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/holdfast-dev/holdfast/internal/usage"
)

// TestTellOnce: what stops all nodes is said once a round, and what stops one of
// them with its name.
func TestTellOnce(t *testing.T) {
	token, dead := errors.New("the right is missing"), errors.New("it is dead")
	for name, tc := range map[string]struct {
		answer usage.Answer
		want   []string // in one line each
	}{
		"all is well":       {usage.Answer{}, nil},
		"no token":          {usage.Answer{Token: token, Failed: map[string]error{"a": token, "b": token}}, []string{token.Error()}},
		"not renewed":       {usage.Answer{Token: token, Failed: map[string]error{"a": dead}}, []string{token.Error(), `"node"="a" "reason"="it is dead"`}},
		"two nodes":         {usage.Answer{Failed: map[string]error{"a": dead, "b": dead}}, []string{`"node"="a"`, `"node"="b"`}},
		"nor by Prometheus": {usage.Answer{Token: token, Failed: map[string]error{"a": token}, Prometheus: dead}, []string{token.Error(), dead.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			tell(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}), tc.answer)
			if len(lines) != len(tc.want) {
				t.Errorf("%d lines, want %d: %q", len(lines), len(tc.want), lines)
			}
			for _, want := range tc.want {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
					t.Errorf("%q is in no line of %q", want, lines)
				}
			}
		})
	}
}

// TestNotesAreCutBetweenLetters: what others say is of any length and language, and an
// event that the API server does not take is told to nobody.
func TestNotesAreCutBetweenLetters(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	g := &Grower{events: recorder}
	g.event(&guarded{object: &corev1.PersistentVolumeClaim{}}, corev1.EventTypeWarning, "R", "A", "x"+strings.Repeat("é", 1024))
	note := strings.TrimPrefix(<-recorder.Events, "Warning R ")
	if !utf8.ValidString(note) || len(note) > 1024 || len(note) < 1000 {
		t.Errorf("the note has %d bytes and ends with %q", len(note), note[len(note)-3:])
	}
}
