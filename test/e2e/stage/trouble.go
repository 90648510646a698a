package stage

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// tellTrouble writes into the test's log what a person would look at first:
// the namespace's objects and events, and what Holdfast logged meanwhile.
func (s *Stage) tellTrouble(since time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	age := fmt.Sprintf("--since=%ds", int(time.Since(since).Seconds())+1)
	for _, look := range [][]string{
		{"-n", s.Namespace, "get", "pods,pvc", "-o", "wide"},
		{"-n", s.Namespace, "get", "events", "--sort-by=.lastTimestamp", "-o", "custom-columns=TYPE:.type,REASON:.reason,ABOUT:.involvedObject.name,MESSAGE:.message"},
		{"get", "volumeattachments,pv"},
		{"-n", "holdfast-system", "get", "pods", "-o", "wide"},
		{"-n", "holdfast-system", "logs", "-l", controllerLabel, "-c", container, age, "--tail=60", "--prefix"},
		{"-n", "holdfast-system", "logs", "-l", nodeLabel, "-c", container, age, "--tail=40", "--prefix"},
	} {
		out, err := s.Kubectl(ctx, look...)
		s.T.Logf("kubectl %s (%v)\n%s", strings.Join(look, " "), err, out)
	}
}
