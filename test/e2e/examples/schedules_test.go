//go:build e2e

package examples

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// runNow runs a schedule by hand, as the READMEs do, and waits until all its
// copies are ready.
func (x *example) runNow(schedule, token string) {
	x.T.Helper()
	x.Run("-n", x.Namespace, "annotate", "snapsched", schedule, v1alpha1.AnnotationRunNow+"="+token)
	x.Run("-n", x.Namespace, "wait", "snapsched/"+schedule, "--for=jsonpath={.status.lastRunToken}="+token, "--timeout=1m")
	x.Run("-n", x.Namespace, "wait", "volumesnapshot", "-l", v1alpha1.LabelSchedule+"="+schedule, "--for=jsonpath={.status.readyToUse}=true", "--timeout=2m")
}

// copies are a line for each copy, "claim class", in order of the claims.
func (x *example) copies() string {
	x.T.Helper()
	return x.Run("-n", x.Namespace, "get", "volumesnapshot", "--sort-by=.spec.source.persistentVolumeClaimName",
		"-o", `jsonpath={range .items[*]}{.spec.source.persistentVolumeClaimName} {.spec.volumeSnapshotClassName}{"\n"}{end}`)
}

// healthy holds what `kubectl get snapsched` says of a schedule.
func (x *example) healthy(schedule string, ready int) {
	x.T.Helper()
	x.Eventually(fmt.Sprintf("schedule %s tells of %d ready copies", schedule, ready), func(ctx context.Context) (string, error) {
		out, err := x.Kubectl(ctx, "-n", x.Namespace, "get", "snapsched", schedule, "--no-headers", "-o",
			`custom-columns=R:.status.readyCount,F:.status.failedCount,H:.status.conditions[?(@.type=="Ready")].reason,S:.status.lastSuccessfulTime`)
		if f := strings.Fields(string(out)); err != nil || len(f) == 4 && f[0] == fmt.Sprint(ready) && f[1] == "0" && f[2] == v1alpha1.ReasonActive && f[3] != "<none>" {
			return "", err
		}
		return string(out), nil
	})
}

func hourlySnapshots(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/database", "--timeout=3m")
	x.apply("30")
	x.Run("-n", x.Namespace, "wait", "snapsched/hourly", "--for=condition=Ready", "--timeout=1m")
	if all := x.copies(); all != "" {
		t.Errorf("the README says that nothing is copied at creation, there is:\n%s", all)
	}
	before := x.In("database-0", "head", "-n", "1", "/var/lib/data/journal")
	x.runNow("hourly", "first")
	if want := "data-database-0 example-19-copies\ndata-database-1 example-19-copies"; x.copies() != want {
		t.Errorf("copies are\n%s\nwant\n%s", x.copies(), want)
	}
	x.healthy("hourly", 2)
	uid := x.Run("-n", x.Namespace, "get", "pvc", "data-database-0", "-o", "jsonpath={.metadata.uid}")
	newest := x.Run("-n", x.Namespace, "get", "volumesnapshot", "-l", v1alpha1.LabelClaimUID+"="+uid, "--sort-by=.metadata.creationTimestamp", "-o", "jsonpath={.items[-1:].metadata.name}")
	x.applyWith("40", map[string]string{"NEWEST_COPY": newest})
	x.Ready("reader")
	if got := x.In("reader", "head", "-n", "1", "/var/lib/data/journal"); got != before {
		t.Errorf("the restored journal begins with %q, want %q", got, before)
	}
}

func nightlySnapshots(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Run("-n", x.Namespace, "rollout", "status", "statefulset/database", "--timeout=3m")
	x.apply("30")
	x.runNow("nightly", "before-upgrade")
	x.healthy("nightly", 1)
	if next := x.Run("-n", x.Namespace, "get", "snapsched", "nightly", "-o", "jsonpath={.status.nextScheduleTime}"); !strings.HasSuffix(next, "T06:30:00Z") && !strings.HasSuffix(next, "T07:30:00Z") {
		t.Errorf("the next run is at %s, the README says 06:30 or 07:30", next)
	}
	volume := x.VolumeID("data-database-0")
	taken, err := x.snapshotsOf(t.Context(), volume)
	x.Must(err)
	if len(taken) != 1 {
		t.Fatalf("EC2 has %d snapshots of %s, want 1", len(taken), volume)
	}
	name := x.Run("-n", x.Namespace, "get", "volumesnapshot", "-l", "tier=backup", "-o", "jsonpath={.items[*].metadata.name}")
	x.HasTags("copy", taken[0].Tags, map[string]string{"Copy": x.Namespace + "/" + name})

	// Held, a copy stays; let go, it goes with its schedule, in EC2 too.
	x.Run("-n", x.Namespace, "annotate", "volumesnapshot", "-l", "tier=backup", v1alpha1.AnnotationHold+"=before the upgrade")
	x.Run("-n", x.Namespace, "annotate", "volumesnapshot", "-l", "tier=backup", v1alpha1.AnnotationHold+"-")
	x.Run("-n", x.Namespace, "patch", "snapsched", "nightly", "--type=merge", "-p", `{"spec":{"onScheduleDelete":"Delete"}}`)
	x.Run("-n", x.Namespace, "wait", "snapsched/nightly", "--for=jsonpath={.metadata.finalizers[0]}="+v1alpha1.FinalizerSnapshots, "--timeout=1m")
	x.Run("-n", x.Namespace, "delete", "snapsched", "nightly", "--timeout=2m")
	if left := x.copies(); left != "" {
		t.Errorf("the schedule has gone, and copies are left:\n%s", left)
	}
	x.Eventually("snapshots of "+volume+" gone from EC2", func(ctx context.Context) (string, error) {
		left, err := x.snapshotsOf(ctx, volume)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return aws.ToString(left[0].SnapshotId) + " is left", nil
	})
}

func snapshotsByDriver(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("app")
	x.apply("30")
	x.runNow("daily", "first")
	if want := "data example-21-ebs\nledger example-21-ebs-tagged"; x.copies() != want {
		t.Errorf("copies are\n%s\nwant\n%s", x.copies(), want)
	}
	x.healthy("daily", 2)
	told := x.Run("-n", x.Namespace, "get", "snapsched", "daily", "-o", `jsonpath={range .status.claims[*]}{.name}: {.reason}: {.message}{"\n"}{end}`)
	if want := "scratch: OptedOut: the claim's annotation holdfast.dev/no-snapshots says: can be computed again"; told != want {
		t.Errorf("the README says that the status tells\n%s\nit tells\n%s", want, told)
	}
}
