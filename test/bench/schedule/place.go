package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// Names of what the measurement stands on.
const (
	namespaces  = 50 // at most, that the schedules are spread over
	storage     = "gp3-encrypted"
	copyClass   = "ebs-copies"
	memberLabel = "app.kubernetes.io/name" // by which a schedule picks its claims
)

// workers make what there is to be.
const workers = 8

// place is a server, and all that runs against it.
type place struct {
	*bench.Server
	progress *bench.Progress
	logs     string // folder; empty: none
	stops    []func() error
}

// close stops what was started, the last first.
func (p *place) close() error {
	var errs []error
	for len(p.stops) > 0 {
		last := len(p.stops) - 1
		errs = append(errs, p.stops[last]())
		p.stops = p.stops[:last]
	}
	return errors.Join(errs...)
}

// log is where a process logs to; it is closed with the place.
func (p *place) log(name string) (io.Writer, error) {
	path := os.DevNull
	if p.logs != "" {
		path = filepath.Join(p.logs, name+".log")
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--logs: %w", err)
	}
	p.stops = append(p.stops, file.Close)
	return file, nil
}

// startManager starts the manager for as long as the place is there.
func (p *place) startManager(ctx context.Context, o options) (*bench.Manager, error) {
	p.progress.Say("the manager is built and started")
	log, err := p.log("manager")
	if err != nil {
		return nil, err
	}
	m, err := p.StartManager(ctx, bench.ManagerOptions{Log: log, Processors: o.processor})
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, m.Stop)
	return m, nil
}

// namespaceOf and setOf are where the claims of the i-th schedule are, and the
// label that it picks them by.
func namespaceOf(schedule int) string { return fmt.Sprintf("team-%02d", schedule%namespaces) }

func setOf(schedule int) string { return fmt.Sprintf("postgresql-%d", schedule/namespaces) }

// classes makes namespaces and classes.
func (p *place) classes(ctx context.Context, schedules int) error {
	objects := []client.Object{
		bench.Class(storage, map[string]string{"type": "gp3", "encrypted": "true"}),
		&snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: copyClass, Annotations: map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}},
			Driver:     bench.Provisioner, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		},
	}
	for i := range min(schedules, namespaces) {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}})
	}
	for _, o := range objects {
		if err := p.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// claims are bound claims, of the schedules in turn.
func (p *place) claims(ctx context.Context, n, schedules int, handles func(i int) string) ([]*corev1.PersistentVolumeClaim, error) {
	p.progress.Say("%d claims are made", n)
	var all []*corev1.PersistentVolumeClaim
	for i := range n {
		schedule := i % schedules
		claim := bench.Claim(namespaceOf(schedule), fmt.Sprintf("data-%s-%d", setOf(schedule), i/schedules), storage)
		claim.Labels[memberLabel] = setOf(schedule)
		all = append(all, claim)
	}
	return all, p.BindAll(ctx, p.progress, all, handles)
}

// schedule makes the i-th schedule.
func (p *place) schedule(ctx context.Context, i int, when string, retention v1alpha1.SnapshotRetention) error {
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(i), Name: scheduleOf(i)}}
	s.Spec = v1alpha1.SnapshotScheduleSpec{
		Schedule: when, Retention: retention,
		Target: v1alpha1.SnapshotTarget{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{memberLabel: setOf(i)}}},
	}
	if err := p.Client.Create(ctx, s); err != nil {
		return fmt.Errorf("make schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

func scheduleOf(i int) string { return "of-" + setOf(i) }

// cronAt is a schedule that is due at a minute of this year, in UTC.
func cronAt(at time.Time) string {
	at = at.UTC()
	return fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month())
}

// settled counts the schedules whose status says that they are known and due, and
// the ready copies that they tell of.
func (p *place) settled(ctx context.Context) (schedules, ready int, err error) {
	var all v1alpha1.SnapshotScheduleList
	if err := p.Client.List(ctx, &all); err != nil {
		return 0, 0, err
	}
	for i := range all.Items {
		if all.Items[i].Status.NextScheduleTime != nil {
			schedules++
		}
		ready += int(all.Items[i].Status.ReadyCount)
	}
	return schedules, ready, nil
}
