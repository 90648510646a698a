package main

import (
	"context"
	"fmt"
	"io"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// measureRest watches a cluster in which nothing is due: claims, and copies of
// them that are all kept. Nobody but the manager works on it; what the snapshot
// stack would have written of the copies is written by the measurement.
func measureRest(ctx context.Context, p *place, o options, out io.Writer) ([]bench.Figure, error) {
	fmt.Fprintf(out, "\n# At rest: %d schedules, %d claims, %d snapshots that are ready and kept\n", o.schedules, o.resting, o.resting*o.copies)
	if err := p.populate(ctx, o); err != nil {
		return nil, err
	}
	m, err := p.startManager(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := testenv.Eventually(ctx, 5*time.Minute, "the manager knows all schedules", func(ctx context.Context) (string, error) {
		n, err := p.settled(ctx)
		if err != nil || n == o.schedules {
			return "", err
		}
		return fmt.Sprintf("%d of %d", n, o.schedules), nil
	}); err != nil {
		return nil, err
	}
	if err := p.quiet(ctx); err != nil {
		return nil, err
	}
	began, err := m.Memory(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(out, "when it knows all: ")
	began.Print(out)
	before, err := p.usage(ctx, m)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(o.quiet):
	}
	after, err := p.usage(ctx, m)
	if err != nil {
		return nil, err
	}
	is, err := m.Memory(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "after %v more:  ", o.quiet)
	is.Print(out)
	written := between(writes(before.server), writes(after.server))
	fmt.Fprintf(out, "in that time it worked %.2f s of processor time; requests answered: %s; written: %s\n",
		after.manager.Processor()-before.manager.Processor(), told(between(before.server, after.server)), orNone(told(written)))
	return []bench.Figure{
		{Name: fmt.Sprintf("resident memory, %d claims, %d snapshots", o.resting, o.resting*o.copies), Is: bench.MiB(is.Resident), AtMost: 120, Unit: "MiB"},
		{Name: "the same at its peak", Is: bench.MiB(is.Peak), AtMost: 120, Unit: "MiB"},
		{Name: fmt.Sprintf("writes in %v at rest", o.quiet), Is: total(written)},
	}, nil
}

func orNone(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// populate makes claims, schedules that are due once a year, and the copies of
// runs before this hour.
func (p *place) populate(ctx context.Context, o options) error {
	if err := p.classes(ctx, o.schedules); err != nil {
		return err
	}
	yearly := cronAt(time.Now().Add(-24 * time.Hour))
	keep := v1alpha1.SnapshotRetention{KeepLast: int32(o.copies), Daily: 7}
	if err := bench.Parallel(ctx, workers, o.schedules, func(ctx context.Context, i int) error { return p.schedule(ctx, i, yearly, keep) }); err != nil {
		return err
	}
	uids := map[string]types.UID{}
	var all v1alpha1.SnapshotScheduleList
	if err := p.Client.List(ctx, &all); err != nil {
		return err
	}
	for i := range all.Items {
		uids[all.Items[i].Namespace+"/"+all.Items[i].Name] = all.Items[i].UID
	}
	hour := time.Now().Truncate(time.Hour)
	return bench.Parallel(ctx, workers, o.resting, func(ctx context.Context, i int) error {
		claim, err := p.claim(ctx, i, o.schedules, fmt.Sprintf("vol-%017x", i+1))
		if err != nil {
			return err
		}
		schedule := scheduleOf(i % o.schedules)
		for n := range o.copies {
			if err := p.copied(ctx, claim, schedule, uids[claim.Namespace+"/"+schedule], hour.Add(-time.Duration(n)*time.Hour)); err != nil {
				return err
			}
		}
		return nil
	})
}

// copied makes a copy of a claim in a run as the manager and the snapshot stack
// leave it: asked for, bound to a content, ready.
func (p *place) copied(ctx context.Context, claim *corev1.PersistentVolumeClaim, schedule string, uid types.UID, at time.Time) error {
	class := copyClass
	slot := copies.SlotOf(at)
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: copies.Name(claim.Name, claim.UID, uid, slot),
			Labels:      map[string]string{v1alpha1.LabelSchedule: schedule, v1alpha1.LabelClaimUID: string(claim.UID), v1alpha1.LabelSlot: slot},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claim.Name},
			Finalizers:  []string{"snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection", "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name}, VolumeSnapshotClassName: &class},
	}
	if err := p.Client.Create(ctx, snapshot, client.FieldOwner("holdfast-manager")); err != nil {
		return fmt.Errorf("make a copy: %w", err)
	}
	content, handle, ready, size := "snapcontent-"+string(snapshot.UID), "snap-"+string(snapshot.UID)[:17], true, resource.MustParse("20Gi")
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &content, CreationTime: &metav1.Time{Time: at}, ReadyToUse: &ready, RestoreSize: &size}
	if err := p.Client.Status().Update(ctx, snapshot, client.FieldOwner("snapshot-controller")); err != nil {
		return fmt.Errorf("make a copy ready: %w", err)
	}
	handleOfVolume := "vol-" + string(claim.UID)[:17]
	return p.Client.Create(ctx, &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: content, Annotations: map[string]string{"example.com/handle": handle}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: bench.Provisioner, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: &class,
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handleOfVolume},
			VolumeSnapshotRef: corev1.ObjectReference{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot", Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID},
		},
	}, client.FieldOwner("snapshot-controller"))
}
