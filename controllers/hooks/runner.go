package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

const (
	// writeWithin bounds each write of a record or mark.
	writeWithin = 10 * time.Second
	// lookEvery is how often the informer is asked whether a copy is cut.
	lookEvery = 50 * time.Millisecond
	// blocking are the passes over what is left to undo for which no other freeze
	// of the Pod is begun: some eight minutes. A command that can never be run
	// must not keep the Pod from being copied for ever.
	blocking = 12
)

// ReasonHookFailed is the reason of the events about hooks.
const ReasonHookFailed = "HookFailed"

// Options are what a Runner works with. All must be given.
type Options struct {
	// Client reads VolumeSnapshots and VolumeGroupSnapshots from informers.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Run runs a command: Exec.Run.
	Run    func(ctx context.Context, c Command, within time.Duration) error
	Events events.EventRecorder
	Clock  clock.Clock
	// Namespace is the manager's own, where the records are.
	Namespace string
	// Registry is where the metrics are registered.
	Registry prometheus.Registerer
}

// Runner runs freezes, and undoes what others left. It is to be started where
// the manager leads, and until it has looked for records it begins no freeze.
type Runner struct {
	o       Options
	metrics *instruments

	mu    sync.Mutex
	busy  map[types.UID]string         // by Pod: the schedule whose hooks run in it
	undo  map[types.NamespacedName]int // by schedule: freezes that wait to be undone
	ready context.Context              // of Start; nil: it has not looked for records yet
	tasks sync.WaitGroup
}

// NewRunner makes a Runner and registers its metrics.
func NewRunner(o Options) *Runner {
	r := &Runner{o: o, metrics: newInstruments(), busy: map[types.UID]string{}, undo: map[types.NamespacedName]int{}}
	o.Registry.MustRegister(r.metrics.all()...)
	return r
}

// Result is how a freeze ended.
type Result struct {
	// Failed says why no copy was asked for; empty: they were.
	Failed string
	// Flaw says why some of the copies are not quiesced; empty: they all are.
	Flaw string
}

// Freeze asks for copies between the hooks of a freeze. create asks for them, with
// annotations that they must carry, and answers which were made by that: one that
// was there before may have been cut before. It comes back once the hooks of after
// have run, or what is left of them is in good hands.
func (r *Runner) Freeze(ctx context.Context, owner Owner, freeze Freeze, create func(context.Context, map[string]string) []string) Result {
	task := &task{runner: r, record: newRecord(owner, freeze), create: create}
	lasting, why := r.take(task.pods(freeze.Before), owner)
	if why != "" {
		return Result{Failed: why}
	}
	f := begin(freeze)
	if task.drive(ctx, f); f.at == pause {
		r.tasks.Go(func() { task.finish(lasting, f) })
	} else {
		r.release(task.held)
	}
	return Result{Failed: f.failed, Flaw: f.flaw}
}

// take keeps Pods for one freeze; why says that they are not to be had now.
func (r *Runner) take(pods []types.UID, owner Owner) (lasting context.Context, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready == nil || r.ready.Err() != nil {
		return nil, "what earlier runs left to undo is still looked up"
	}
	for _, uid := range pods {
		if by, taken := r.busy[uid]; taken {
			return nil, fmt.Sprintf("hooks of SnapshotSchedule %s still run in the same Pod, or are still to be undone there", by)
		}
	}
	for _, uid := range pods {
		r.busy[uid] = owner.Namespace + "/" + owner.Name
	}
	return r.ready, ""
}

func (r *Runner) release(pods []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range pods {
		delete(r.busy, uid)
	}
}

// toUndo counts freezes that wait to be undone. A schedule without any has no
// series: it may be gone by then.
func (r *Runner) toUndo(owner Owner, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	if r.undo[key] += more; r.undo[key] > 0 {
		r.metrics.toUndo.WithLabelValues(key.Namespace, key.Name).Set(float64(r.undo[key]))
		return
	}
	delete(r.undo, key)
	r.metrics.toUndo.DeleteLabelValues(key.Namespace, key.Name)
}

// Forget takes the counts of failures away of a schedule that is gone. What is
// still to be undone of it stays told until it is.
func (r *Runner) Forget(schedule types.NamespacedName) {
	r.metrics.failures.DeletePartialMatch(prometheus.Labels{"namespace": schedule.Namespace, "schedule": schedule.Name})
}

// taken says whether a freeze is under way in a Pod.
func (r *Runner) taken(pod types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, is := r.busy[pod]
	return is
}

// NeedLeaderElection says that only the leader runs and undoes.
func (r *Runner) NeedLeaderElection() bool { return true }

// Start takes up what is left of earlier freezes, and ends with ctx.
func (r *Runner) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("hooks")
	ctx = logr.NewContext(ctx, log)
	defer r.tasks.Wait()
	var left corev1.ConfigMapList
	err := wait.PollUntilContextCancel(ctx, writeWithin, true, func(ctx context.Context) (bool, error) {
		err := r.o.Live.List(ctx, &left, client.InNamespace(r.o.Namespace), client.MatchingLabels{labelRecord: recordHooks})
		if err != nil {
			log.Error(err, "Cannot look up what earlier runs left to undo")
		}
		return err == nil, nil
	})
	if err != nil {
		return nil // it was stopped
	}
	for i := range left.Items {
		record, err := readRecord(&left.Items[i])
		if err != nil {
			log.Error(err, "Cannot undo")
			continue
		}
		log.Info("Undo what an earlier run left", "schedule", record.Owner.Namespace+"/"+record.Owner.Name, "record", left.Items[i].Name)
		t := &task{runner: r, record: *record}
		r.mu.Lock()
		for _, uid := range t.pods(nil) {
			r.busy[uid] = record.Owner.Namespace + "/" + record.Owner.Name
		}
		r.mu.Unlock()
		r.tasks.Go(func() { t.finish(ctx, takeUp(record.After, record.Copies)) })
	}
	r.mu.Lock()
	r.ready = ctx
	r.mu.Unlock()
	<-ctx.Done()
	return nil
}

// task is one freeze as it is carried out.
type task struct {
	runner *Runner
	record Record
	create func(context.Context, map[string]string) []string
	held   []types.UID
	told   int // of the notes
}

// pods are those of a freeze, which the task holds.
func (t *task) pods(before []Before) []types.UID {
	for _, b := range before {
		if b.PodUID != "" {
			t.held = append(t.held, b.PodUID)
		}
	}
	for _, c := range t.record.After {
		t.held = append(t.held, c.PodUID)
	}
	slices.Sort(t.held)
	t.held = slices.Compact(t.held)
	return t.held
}

// drive carries a freeze out until it is over or has to wait.
func (t *task) drive(ctx context.Context, f *freezing) {
	for {
		s := f.step(t.runner.o.Clock.Now())
		if s.kind == over || s.kind == pause {
			t.tell(ctx, f)
			return
		}
		in := ctx
		if s.lasting {
			in = context.WithoutCancel(ctx)
		}
		f.saw(t.runner.o.Clock.Now(), t.do(in, f, s))
	}
}

// finish carries on with what has to wait, until it is over or ctx ends. Then the
// record is there for whoever leads next.
func (t *task) finish(ctx context.Context, f *freezing) {
	defer func() { t.runner.release(t.held) }()
	t.runner.toUndo(t.record.Owner, 1)
	defer t.runner.toUndo(t.record.Owner, -1)
	for t.drive(ctx, f); f.at == pause; t.drive(ctx, f) {
		if f.pass == blocking {
			t.runner.release(t.held)
			t.held = nil
		}
		timer := t.runner.o.Clock.NewTimer(f.step(t.runner.o.Clock.Now()).within)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		if t.held == nil && slices.ContainsFunc(t.record.After, func(c Command) bool { return t.runner.taken(c.PodUID) }) {
			continue // another freeze of the Pod is under way
		}
		f.saw(t.runner.o.Clock.Now(), outcome{})
	}
}

// tell tells what is new of a freeze, as events on its schedule.
func (t *task) tell(ctx context.Context, f *freezing) {
	for _, n := range f.notes[t.told:] {
		logr.FromContextOrDiscard(ctx).Info("A hook failed", "schedule", t.record.Owner.Namespace+"/"+t.record.Owner.Name, "hook", n.Command.Hook, "pod", n.Command.Pod, "container", n.Command.Container)
		when := whenBefore
		if n.Undo {
			when = whenAfter
		}
		t.runner.metrics.failures.WithLabelValues(t.record.Owner.Namespace, t.record.Owner.Name, when).Inc()
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Command.Namespace, Name: n.Command.Pod, UID: n.Command.PodUID}
		t.runner.o.Events.Eventf(t.record.Owner.reference(), pod, corev1.EventTypeWarning, ReasonHookFailed, "RunHook", "%s", cut(n.Problem))
	}
	t.told = len(f.notes)
}

// maxNote is how long the note of an event may be, in bytes.
const maxNote = 1024

// cut shortens a text to the note of an event, at a whole character: what half of
// one becomes would be too long again, and the event be refused.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxNote)], "") }

// do does one step.
func (t *task) do(ctx context.Context, f *freezing, s step) outcome {
	switch s.kind {
	case run:
		return outcome{err: t.runner.o.Run(ctx, s.command, s.within)}
	case create:
		ctx, cancel := context.WithTimeout(ctx, s.within)
		defer cancel()
		return outcome{made: t.create(ctx, map[string]string{v1alpha1.AnnotationQuiesced: v1alpha1.QuiescedPending})}
	case await:
		return t.await(ctx, s.copies, s.within)
	case undoAll:
		return outcome{undone: t.undo(ctx, f.left, s.undo)}
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	switch s.kind {
	case record:
		return outcome{err: t.write(ctx)}
	case mark:
		return outcome{err: t.mark(ctx, s.marks)}
	default:
		return outcome{err: t.erase(ctx)}
	}
}

// undoAtOnce is in how many Pods hooks of after run at once.
const undoAtOnce = 32

// undo runs hooks of after, and answers how each ended.
func (t *task) undo(ctx context.Context, left []undo, pods [][]int) map[int]error {
	ends := map[int]error{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(undoAtOnce)
	for _, pod := range pods {
		group.Go(func() error {
			for _, i := range pod {
				c := left[i].command
				err := t.runner.o.Run(ctx, c, c.timeout())
				mu.Lock()
				ends[i] = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // each has its own end
	return ends
}

func (t *task) write(ctx context.Context) error {
	stored, err := t.record.configMap(t.runner.o.Namespace)
	if err != nil {
		return err
	}
	return t.runner.o.Client.Create(ctx, stored)
}

func (t *task) erase(ctx context.Context) error {
	stored := &corev1.ConfigMap{}
	stored.Namespace, stored.Name = t.runner.o.Namespace, t.record.name
	return client.IgnoreNotFound(t.runner.o.Client.Delete(ctx, stored))
}

// await waits until copies are cut, and answers which are.
func (t *task) await(ctx context.Context, copies []string, within time.Duration) outcome {
	ctx, cancel := context.WithTimeout(ctx, max(within, 0))
	defer cancel()
	var cut []string
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		waiting := false
		for _, name := range copies {
			is, err := t.isCut(ctx, name)
			switch {
			case err == nil && is:
				if !slices.Contains(cut, name) {
					cut = append(cut, name)
				}
			default: // not shown yet, not cut yet, or deleted by somebody: time bounds it
				waiting = true
			}
		}
		return !waiting, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return outcome{err: err, cut: cut}
}

// object is an empty one of the kind that a name of a copy is of.
func (t *task) object(name string) (client.Object, types.NamespacedName) {
	key := types.NamespacedName{Namespace: t.record.Owner.Namespace, Name: name}
	if group, is := strings.CutPrefix(name, groupPrefix); is {
		key.Name = group
		return &groupv1.VolumeGroupSnapshot{}, key
	}
	return &snapshotv1.VolumeSnapshot{}, key
}

// isCut says whether a copy, or a group of them, is cut.
func (t *task) isCut(ctx context.Context, name string) (bool, error) {
	o, key := t.object(name)
	if err := t.runner.o.Client.Get(ctx, key, o); err != nil {
		return false, err
	}
	switch s := o.(type) {
	case *groupv1.VolumeGroupSnapshot:
		return s.Status != nil && s.Status.CreationTime != nil, nil
	case *snapshotv1.VolumeSnapshot:
		return s.Status != nil && s.Status.CreationTime != nil, nil
	}
	return false, nil
}

// mark writes marks on copies that have none yet. What is written on a group is
// written on its members by whoever marks these as the schedule's.
func (t *task) mark(ctx context.Context, marks map[string]string) error {
	var errs []error
	for name, value := range marks {
		s, key := t.object(name)
		err := t.runner.o.Live.Get(ctx, key, s)
		if err == nil && s.GetAnnotations()[v1alpha1.AnnotationQuiesced] == v1alpha1.QuiescedPending {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationQuiesced, value)
			err = t.runner.o.Client.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("mark %T %s: %w", s, key.Name, err))
		}
	}
	return errors.Join(errs...)
}
