//go:build e2e

package expansion

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// filesWriter makes empty files, 78,000 of them at once and then 100 each second,
// until it is told to make 150,000 in all; it gives up at the first that fails.
const filesWriter = `trap exit TERM
cd /data
n=0
batch() {
  said=$(seq $((n + 1)) $((n + $1)) | xargs touch 2>&1) || { echo "$said" | head -n 3; echo WRITE FAILED; exit 1; }
  n=$((n + $1))
}
while [ $n -lt 78000 ]; do batch 2000; done
until [ -e hurry ]; do batch 100; sleep 1; done
while [ $n -lt 150000 ]; do batch 2000; done
echo every file was made
while :; do sleep 1; done`

// writesFiles has a Pod's container make files.
func writesFiles(p *corev1.Pod) {
	p.Spec.Containers[0].Command = []string{"sh", "-c", filesWriter}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
}

// inodes are how many files a filesystem may hold, and how many more.
func inodes(s *stage.Stage, pod string) (total, free int) {
	s.T.Helper()
	said := strings.Fields(s.In(pod, "stat", "-f", "-c", "%c %d", "/data"))
	if len(said) == 2 {
		var err, second error
		total, err = strconv.Atoi(said[0])
		free, second = strconv.Atoi(said[1])
		if err == nil && second == nil {
			return total, free
		}
	}
	s.T.Fatalf("stat of /data in Pod %s said %q", pod, said)
	return 0, 0
}

// TestGrowsForInodes: inodes of 2,048 bytes let 1 GiB of xfs hold 131,072 files, a
// quarter of its space (imaxpct), so that files run out while three quarters of the
// bytes are free. A Pod makes 150,000: the volume grows by its inodes, once, and
// no file fails.
func TestGrowsForInodes(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	policy(s, `{maxSize: 2Gi, trigger: {inodesUsedPercent: 50}, cooldownSeconds: 1}`)
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "inodeSize": "2048"}), "1Gi")
	s.Pod("writer", "data", writesFiles)
	began := s.Ready("writer")
	first, _ := inodes(s, "writer")
	if first > 140000 {
		t.Fatalf("the filesystem holds %d files, want fewer than the writer makes", first)
	}
	s.Step("1 GiB holds %d files", first)
	capacity(s, "data", "2Gi")
	total, free := inodes(s, "writer")
	if total < 3*first/2 {
		t.Errorf("the filesystem holds %d files after the volume has grown, and %d before", total, first)
	}
	s.Step("2 GiB hold %d files, and %d are there", total, total-free)
	s.In("writer", "touch", "/data/hurry")
	s.Eventually("the writer goes on past the first limit", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "logs", "writer")
		if err == nil && strings.TrimSpace(string(out)) != "every file was made" {
			return fmt.Sprintf("it says %q", out), nil
		}
		return "", err
	})
	if total, free = inodes(s, "writer"); total-free < 150000 {
		t.Errorf("%d files are there, want 150000", total-free)
	}
	p := s.Ready("writer")
	if p.UID != began.UID || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod was restarted: %+v", p.Status)
	}
	if got := sizes(s, "data"); !slices.Equal(got, []int32{2}) {
		t.Errorf("EC2 was asked for %v GiB, want 2", got)
	}
	s.Event("data", "Expanded", "to 2Gi")
}
