//go:build e2e

package postgresql

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// Copies to wait for, all of them made under load.
const copies = 2

// A server that is started on a copy made under load, on schedule and between
// hooks, has every row whose commit was told before the cut, no row without those
// before it, and no half of a transaction.
func TestRowsCommittedBeforeTheCutAreInTheCopy(t *testing.T) {
	s := stage.For(t, "example-24")
	bring(s)
	t.Cleanup(func() { deleteClasses(s) })
	apply(s, nil, "00-namespace.yaml", "10-classes.yaml")
	s.Run("-n", s.Namespace, "create", "secret", "generic", "postgresql", "--from-literal=password=of-the-test")
	apply(s, nil, "20-statefulset.yaml", "30-schedule.yaml")
	s.Ready("postgresql-0")
	s.Step("%s", query(s, "postgresql-0", "SELECT version()"))

	load(s, "postgresql-0")
	rows := keepLedger(s, "postgresql-0")
	before := checkpointsByHand(s, "postgresql-0")
	apply(s, nil, "35-checkpoint.yaml")
	s.Run("-n", s.Namespace, "patch", "snapshotschedule", "postgresql", "--type=merge", "-p", `{"spec":{"schedule":"* * * * *"}}`)
	newest := waitForCopies(s, rows)
	if n := checkpointsByHand(s, "postgresql-0") - before; n < copies {
		t.Errorf("%d checkpoints were asked for before %d copies", n, copies)
	}
	s.Step("starting a server on %s, cut at %s", newest.Name, cutOf(s, newest).Format(time.RFC3339Nano))

	apply(s, map[string]string{"SNAPSHOT_NAME": newest.Name}, "40-restore.yaml")
	s.Ready("restored-0")
	s.Must(rows.err())
	rows.end()
	checkRecovered(s, "restored-0")
	checkRows(s, "restored-0", rows, cutOf(s, newest))
	checkAccounts(s, "restored-0")
	checkPages(s, "restored-0")
}

// load has pgbench change accounts until the test ends.
func load(s *stage.Stage, pod string) {
	s.T.Helper()
	s.In(pod, "pgbench", "-U", "postgres", "--initialize", "--quiet", "--scale=1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err := s.Kubectl(ctx, "-n", s.Namespace, "exec", pod, "--",
			"pgbench", "-U", "postgres", "--no-vacuum", "--client=4", "--rate=40", "--time=3600")
		if ctx.Err() == nil {
			s.T.Errorf("pgbench ended: %v\n%s", err, out)
		}
	}()
	s.T.Cleanup(func() { cancel(); <-done })
}

// checkpointsByHand is how many checkpoints a server was told to make at once, by
// its log.
func checkpointsByHand(s *stage.Stage, pod string) int {
	s.T.Helper()
	return strings.Count(s.Run("-n", s.Namespace, "logs", pod), "checkpoint starting: immediate force wait")
}

// cutOf is when a copy was cut, in the driver's precision.
func cutOf(s *stage.Stage, copied snapshotv1.VolumeSnapshot) time.Time {
	s.T.Helper()
	var content snapshotv1.VolumeSnapshotContent
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Name: *copied.Status.BoundVolumeSnapshotContentName}, &content))
	cut := time.Unix(0, ptr.Deref(content.Status.CreationTime, 0)).UTC()
	if told := copied.Status.CreationTime; told == nil || cut.Sub(told.Time).Abs() >= time.Second {
		s.T.Fatalf("snapshot %s says that it was cut at %v, its content %s", copied.Name, told, cut)
	}
	return cut
}

// waitForCopies waits until the schedule has made enough copies that are ready,
// each of them between its hooks, and returns the newest.
func waitForCopies(s *stage.Stage, rows *ledger) snapshotv1.VolumeSnapshot {
	s.T.Helper()
	var newest snapshotv1.VolumeSnapshot
	check := func(ctx context.Context) (string, error) {
		var list snapshotv1.VolumeSnapshotList
		if err := s.Client.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
			return "", err
		}
		if err := rows.err(); err != nil {
			return "", err
		}
		found := map[string]int{}
		for _, c := range list.Items {
			state := "not ready"
			if c.Status != nil && ptr.Deref(c.Status.ReadyToUse, false) {
				state = "ready, quiesced: " + c.Annotations[v1alpha1.AnnotationQuiesced]
			}
			found[state]++
			if state == quiesced && (newest.Status == nil || newest.Status.CreationTime.Before(c.Status.CreationTime)) {
				newest = c
			}
		}
		if found[quiesced] < copies {
			return fmt.Sprint(found), nil
		}
		return "", nil
	}
	if err := s.Within(3*time.Minute, fmt.Sprintf("%d copies %s", copies, quiesced), check); err != nil {
		s.T.Fatalf("%v\n%s", err, s.Run("-n", s.Namespace, "get", "snapshotschedule", "postgresql", "-o", "yaml"))
	}
	return newest
}

// quiesced is what a copy is to be.
const quiesced = "ready, quiesced: " + v1alpha1.Quiesced

// checkRecovered holds that the copy was cut under a running server: one that was
// shut down would prove nothing.
func checkRecovered(s *stage.Stage, pod string) {
	s.T.Helper()
	log := s.Run("-n", s.Namespace, "logs", pod)
	if !strings.Contains(log, "automatic recovery in progress") {
		s.T.Errorf("the server on the copy had nothing to recover from:\n%s", log)
	}
}

// checkRows compares the ledger in the copy with what was told outside.
func checkRows(s *stage.Stage, pod string, told *ledger, cut time.Time) {
	s.T.Helper()
	var first, last, number int
	_, err := fmt.Sscanf(query(s, pod, "SELECT coalesce(min(n), 0), coalesce(max(n), 0), count(*) FROM ledger"), "%d|%d|%d", &first, &last, &number)
	s.Must(err)
	before, around := told.by(cut), told.by(cut.Add(time.Second))-told.by(cut.Add(-time.Second))
	s.Step("rows told before the cut: %d, in the copy: %d to %d; told within a second of the cut: %d", before, first, last, around)
	switch {
	case before == 0 || around == 0:
		s.T.Errorf("%d rows were told before the cut, %d within a second of it: there was no load", before, around)
	case last < before:
		s.T.Errorf("row %d was told to be committed before the cut at %s; the copy ends at row %d", before, cut, last)
	case first != 1 || number != last:
		s.T.Errorf("the copy has %d rows from %d to %d: there are gaps", number, first, last)
	}
}

// checkAccounts holds that each of pgbench's transactions, which change three
// balances and write a line of history, is there as a whole or not at all.
func checkAccounts(s *stage.Stage, pod string) {
	s.T.Helper()
	got := query(s, pod, `SELECT sum(abalance), (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches),
		(SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT count(*) FROM pgbench_history) FROM pgbench_accounts`)
	sums := strings.Split(got, "|")
	if sums[0] != sums[1] || sums[0] != sums[2] || sums[0] != sums[3] || sums[4] == "0" {
		s.T.Errorf("accounts, tellers, branches, history and its lines are %v: want four equal sums of some lines", sums)
	}
}

// checkPages has every table and index of the copy read and checked, with the
// checksums of their pages.
func checkPages(s *stage.Stage, pod string) {
	s.T.Helper()
	if sums := query(s, pod, "SHOW data_checksums"); sums != "on" {
		s.T.Errorf("data_checksums is %s: nothing tells a torn page", sums)
	}
	s.In(pod, "pg_amcheck", "-U", "postgres", "--all", "--install-missing", "--heapallindexed")
	if failures := query(s, pod, "SELECT coalesce(sum(checksum_failures), 0) FROM pg_stat_database"); failures != "0" {
		s.T.Errorf("%s pages have a wrong checksum", failures)
	}
}
