package expansion

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

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
