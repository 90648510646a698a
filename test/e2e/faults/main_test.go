//go:build e2e

package faults

import (
	"testing"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// begin is a namespace and a class for a test, and the promise that nothing is
// left over when the test has cleaned up.
func begin(t *testing.T, parameters map[string]string) (s *stage.Stage, class string) {
	t.Helper()
	var over *stage.Stage
	t.Cleanup(func() {
		if !t.Failed() {
			over.NothingLeft()
		}
	})
	s = stage.New(t)
	over = s
	return s, s.Class("gp3", parameters)
}

// holds writes into a Pod's volume, moves the volume to another Pod and reads
// the same: it is a filesystem that works, and the one that the claim has.
func holds(s *stage.Stage, pod, claim string) {
	s.T.Helper()
	sum := s.FillAndSum(pod, "/data/file", 8)
	s.DeletePod(pod)
	s.Pod(pod+"-again", claim)
	s.Ready(pod + "-again")
	if got := s.Sum(pod+"-again", "/data/file"); got != sum {
		s.T.Errorf("checksum after the next mount is %s, want %s", got, sum)
	}
}
