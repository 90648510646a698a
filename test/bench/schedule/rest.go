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
	if err := testenv.Eventually(ctx, 5*time.Minute, "the manager knows all schedules and copies", func(ctx context.Context) (string, error) {
		n, ready, err := p.settled(ctx)
		if err != nil || n == o.schedules && ready == o.resting*o.copies {
			return "", err
		}
		return fmt.Sprintf("%d of %d, %d of %d", n, o.schedules, ready, o.resting*o.copies), nil
	}); err != nil {
		return nil, err
	}
	p.progress.Say("the manager knows all; nobody is to write any more")
	if err := p.quiet(ctx); err != nil {
		return nil, err
	}
	p.progress.Say("it is watched for %v", o.quiet)
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
	p.progress.Say("%d schedules are made", o.schedules)
	yearly := cronAt(time.Now().Add(-24 * time.Hour))
	keep := v1alpha1.SnapshotRetention{KeepLast: int32(max(o.copies, 1)), Daily: 7}
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
	claims, err := p.claims(ctx, o.resting, o.schedules, func(i int) string { return fmt.Sprintf("vol-%017x", i+1) })
	if err != nil || o.copies == 0 {
		return err
	}
	p.progress.Say("%d copies are made", o.resting*o.copies)
	first, err := p.copied(ctx, claims[0])
	if err != nil {
		return err
	}
	hour := time.Now().Truncate(time.Hour)
	var objects []client.Object
	for i, claim := range claims {
		schedule := scheduleOf(i % o.schedules)
		for n := range o.copies {
			snapshot, content := first.of(claim, schedule, uids[claim.Namespace+"/"+schedule], hour.Add(-time.Duration(n)*time.Hour))
			objects = append(objects, snapshot, content)
		}
	}
	return p.Store(ctx, p.progress, objects)
}

// taken is a copy that is ready, and its content.
type taken struct {
	snapshot *snapshotv1.VolumeSnapshot
	content  *snapshotv1.VolumeSnapshotContent
}

// copied makes a copy of a claim as the manager and the snapshot stack leave it:
// asked for, bound to a content, ready. It is of no schedule: only those that are
// stored as its twins are.
func (p *place) copied(ctx context.Context, claim *corev1.PersistentVolumeClaim) (taken, error) {
	class := copyClass
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: "first",
			Labels:      map[string]string{v1alpha1.LabelClaimUID: string(claim.UID)},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claim.Name},
			Finalizers:  []string{"snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection", "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name}, VolumeSnapshotClassName: &class},
	}
	if err := p.Client.Create(ctx, snapshot, client.FieldOwner("holdfast-manager")); err != nil {
		return taken{}, fmt.Errorf("make a copy: %w", err)
	}
	name, handle, ready, size := "snapcontent-"+string(snapshot.UID), "vol-"+string(claim.UID)[:17], true, resource.MustParse("20Gi")
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &name, CreationTime: &metav1.Time{Time: time.Now()}, ReadyToUse: &ready, RestoreSize: &size}
	if err := p.Client.Status().Update(ctx, snapshot, client.FieldOwner("snapshot-controller")); err != nil {
		return taken{}, fmt.Errorf("make a copy ready: %w", err)
	}
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: bench.Provisioner, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: &class,
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot", Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID},
		},
	}
	if err := p.Client.Create(ctx, content, client.FieldOwner("snapshot-controller")); err != nil {
		return taken{}, fmt.Errorf("make a content: %w", err)
	}
	return taken{snapshot, content}, nil
}

// of is its twin: the copy of another claim, by a schedule, in a run.
func (t taken) of(claim *corev1.PersistentVolumeClaim, schedule string, uid types.UID, at time.Time) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	slot := copies.SlotOf(at)
	snapshot := bench.Twin(t.snapshot, claim.Namespace, copies.Name(claim.Name, claim.UID, uid, slot))
	snapshot.Status.CreationTime = &metav1.Time{Time: at}
	snapshot.Labels = map[string]string{v1alpha1.LabelSchedule: schedule, v1alpha1.LabelClaimUID: string(claim.UID), v1alpha1.LabelSlot: slot}
	snapshot.Annotations[v1alpha1.AnnotationClaim] = claim.Name
	snapshot.Spec.Source.PersistentVolumeClaimName = &claim.Name
	content := bench.Twin(t.content, "", "snapcontent-"+string(snapshot.UID))
	content.Spec.VolumeSnapshotRef.Namespace, content.Spec.VolumeSnapshotRef.Name, content.Spec.VolumeSnapshotRef.UID = snapshot.Namespace, snapshot.Name, snapshot.UID
	snapshot.Status.BoundVolumeSnapshotContentName = &content.Name
	return snapshot, content
}
