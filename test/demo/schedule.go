package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// What the chapter is about.
const (
	scheduleName = "minutely"
	members      = 3 // of the StatefulSet, each with a claim
)

// runByHand is the label of the run that the demo asks for.
var runByHand = copies.RunOf("demo")

func (d *demo) schedule(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "schedule.yaml"); err != nil {
		return nil, err
	}
	var seen []string
	err := testenv.Eventually(ctx, patience, "the schedule is known", func(ctx context.Context) (string, error) {
		out, err := d.Kubectl(ctx, "-n", namespace, "get", "snapsched", scheduleName, "-o", "jsonpath={.status.claimCount} {.status.nextScheduleTime}")
		f := strings.Fields(string(out))
		if err != nil || len(f) < 2 || f[0] != fmt.Sprint(members) {
			return fmt.Sprintf("claims and next run: %s", out), err
		}
		seen = []string{fmt.Sprintf("SnapshotSchedule %s: %s claims, next run at %s", scheduleName, f[0], f[1])}
		return "", nil
	})
	return seen, err
}

// copiesMade are the schedule's copies that are there and not on their way out.
func (d *demo) copiesMade(ctx context.Context) ([]snapshotv1.VolumeSnapshot, error) {
	var list snapshotv1.VolumeSnapshotList
	err := d.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelSchedule: scheduleName})
	return slices.DeleteFunc(list.Items, func(s snapshotv1.VolumeSnapshot) bool { return s.DeletionTimestamp != nil }), err
}

// byRun are the ready copies of each run.
func byRun(all []snapshotv1.VolumeSnapshot) map[string][]snapshotv1.VolumeSnapshot {
	ready := map[string][]snapshotv1.VolumeSnapshot{}
	for _, s := range all {
		if s.Status != nil && aws.ToBool(s.Status.ReadyToUse) {
			ready[s.Labels[v1alpha1.LabelSlot]] = append(ready[s.Labels[v1alpha1.LabelSlot]], s)
		}
	}
	return ready
}

func (d *demo) runNow(ctx context.Context) ([]string, error) {
	if _, err := d.Kubectl(ctx, "-n", namespace, "annotate", "--overwrite", "snapsched", scheduleName, v1alpha1.AnnotationRunNow+"=demo"); err != nil {
		return nil, err
	}
	var made []snapshotv1.VolumeSnapshot
	err := testenv.Eventually(ctx, patience, "copies of the run by hand", func(ctx context.Context) (string, error) {
		all, err := d.copiesMade(ctx)
		if err != nil {
			return "", err
		}
		if made = byRun(all)[runByHand]; len(made) < members {
			return fmt.Sprintf("%d of %d are ready", len(made), members), nil
		}
		return "", nil
	})
	d.firstCopies = nil
	var seen []string
	for _, s := range made {
		handle, failed := d.handle(ctx, &s)
		if failed != nil {
			return nil, failed
		}
		d.firstCopies = append(d.firstCopies, handle)
		seen = append(seen, fmt.Sprintf("%s, %s", s.Name, handle))
	}
	return seen, err
}

// handle is the id of a copy's EBS snapshot.
func (d *demo) handle(ctx context.Context, s *snapshotv1.VolumeSnapshot) (string, error) {
	var content snapshotv1.VolumeSnapshotContent
	if err := d.Client.Get(ctx, client.ObjectKey{Name: aws.ToString(s.Status.BoundVolumeSnapshotContentName)}, &content); err != nil {
		return "", err
	}
	return aws.ToString(content.Status.SnapshotHandle), nil
}

func (d *demo) ageOut(ctx context.Context) ([]string, error) {
	var run string
	err := testenv.Eventually(ctx, 2*patience, "a run by the clock that pushes out the first copies", func(ctx context.Context) (string, error) {
		all, err := d.copiesMade(ctx)
		if err != nil {
			return "", err
		}
		ready := byRun(all)
		old := len(ready[runByHand])
		delete(ready, runByHand)
		for _, slot := range slices.Sorted(maps.Keys(ready)) {
			if len(ready[slot]) == members {
				run = slot
			}
		}
		if run == "" || old > 0 {
			return fmt.Sprintf("run %q is ready, %d copies of the run by hand are left", run, old), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("the run of %s: a ready copy of each claim", run),
		fmt.Sprintf("%s have aged out (keepLast 1) and are gone from EC2", strings.Join(d.firstCopies, ", ")),
	}, d.snapshotsGone(ctx, d.firstCopies)
}

// snapshotsGone waits until EC2 has none of some snapshots; nil: none of the
// set's volumes at all.
func (d *demo) snapshotsGone(ctx context.Context, ids []string) error {
	var volumes []string
	for i := range members {
		pv, err := d.persistentVolume(ctx, fmt.Sprintf("data-db-%d", i))
		if err != nil {
			return err
		}
		volumes = append(volumes, pv.Spec.CSI.VolumeHandle)
	}
	return testenv.Eventually(ctx, patience, "snapshots gone from EC2", func(ctx context.Context) (string, error) {
		out, err := d.ec2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
			OwnerIds: []string{"self"}, Filters: []types.Filter{{Name: aws.String("volume-id"), Values: volumes}},
		})
		if err != nil {
			return "", err
		}
		var left []string
		for _, s := range out.Snapshots {
			if id := aws.ToString(s.SnapshotId); ids == nil || slices.Contains(ids, id) {
				left = append(left, id)
			}
		}
		return strings.Join(left, ", "), nil
	})
}

func (d *demo) endSchedule(ctx context.Context) ([]string, error) {
	if _, err := d.Kubectl(ctx, "-n", namespace, "delete", "snapsched", scheduleName, "--timeout=120s"); err != nil {
		return nil, err
	}
	return []string{"the deletion returned when its copies were gone; by default they stay"}, d.snapshotsGone(ctx, nil)
}
