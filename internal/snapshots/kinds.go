package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Family are kinds that are installed together.
type Family string

// The families.
const (
	// Single: VolumeSnapshots, their classes and contents.
	Single Family = "snapshot.storage.k8s.io"
	// Group: VolumeGroupSnapshots, their classes and contents.
	Group Family = "groupsnapshot.storage.k8s.io"
)

// families are the resources by family: all of them, or the family is not there.
// Both are served as v1; clusters that only have older versions are taken to
// have none.
var families = map[Family][]string{
	Single: {"volumesnapshots", "volumesnapshotclasses", "volumesnapshotcontents"},
	Group:  {"volumegroupsnapshots", "volumegroupsnapshotclasses", "volumegroupsnapshotcontents"},
}

// How often the cluster is asked whether it serves a family.
const (
	every       = 10 * time.Second // while it does not: a schedule may wait for it
	everyServed = time.Minute      // while it does: each question is a live read
)

// discoverer says what the API server serves of a group and version.
type discoverer interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Kinds knows which families the cluster serves. Each replica has one.
type Kinds struct {
	discovery discoverer
	cache     cache.Cache
	clock     clock.WithTicker
	index     *Index
	gauge     *prometheus.GaugeVec

	mu      sync.Mutex
	served  map[Family]bool
	again   map[Family]time.Time      // when a family that is served is asked for again
	waiting map[Family][]func() error // what begins when the family comes
	changed []func()
}

// New asks once what the cluster serves, starts the informers of what is there
// and registers the metric. The manager goes on asking.
func New(ctx context.Context, mgr ctrl.Manager, registry prometheus.Registerer) (*Kinds, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("ask for the snapshot kinds: %w", err)
	}
	k := newKinds(d, mgr.GetCache(), NewIndex(mgr.GetFieldIndexer()), clock.RealClock{})
	registry.MustRegister(k.gauge)
	return k, errors.Join(k.look(ctx), mgr.Add(k))
}

func newKinds(d discoverer, c cache.Cache, index *Index, clk clock.WithTicker) *Kinds {
	return &Kinds{
		discovery: d, cache: c, index: index, clock: clk,
		served: map[Family]bool{}, again: map[Family]time.Time{}, waiting: map[Family][]func() error{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_snapshot_kinds_served",
			Help: "Whether the cluster serves the snapshot kinds of an API group: 1, or 0 where their CRDs are missing.",
		}, []string{"group"}),
	}
}

// Index is the informer of VolumeSnapshots.
func (k *Kinds) Index() *Index { return k.index }

// Served says whether the cluster serves a family, as of the last look.
func (k *Kinds) Served(f Family) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.served[f]
}

// Watch calls begin once when the cluster serves a family: at once, or when it
// comes. begin gives a controller its watches, as with c.Watch(source.Kind(…));
// the controller may have started before.
func (k *Kinds) Watch(f Family, begin func() error) error {
	if k.Served(f) {
		return begin()
	}
	k.wait(f, begin)
	return nil
}

// wait keeps begin for a look that finds the family.
func (k *Kinds) wait(f Family, begin func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[f] = append(k.waiting[f], begin)
}

// Changes is a source of requests whenever a family comes or goes.
func (k *Kinds) Changes(requests func(context.Context) []ctrl.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.changed = append(k.changed, func() {
			for _, r := range requests(ctx) {
				queue.Add(r)
			}
		})
		return nil
	})
}

// NeedLeaderElection says that each replica knows for itself: the webhooks read
// snapshots too.
func (k *Kinds) NeedLeaderElection() bool { return false }

// Start looks every 10 seconds until ctx ends, each minute for a family that is
// served.
func (k *Kinds) Start(ctx context.Context) error {
	tick := k.clock.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			if err := k.look(ctx); err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Look for the snapshot kinds, trying again", "after", every.String())
			}
		}
	}
}

// look asks what the cluster serves, and begins what waits for it.
func (k *Kinds) look(ctx context.Context) error {
	var failed []error
	var moved bool
	for f, resources := range families {
		if !k.due(f) {
			continue
		}
		is, err := k.ask(f, resources)
		if err != nil { // unknown is not absent: what was known stays
			failed = append(failed, err)
			continue
		}
		if is {
			if is, err = k.begin(ctx, f); err != nil {
				failed = append(failed, err)
				continue
			}
		}
		changed, err := k.found(ctx, f, is)
		moved = moved || changed
		failed = append(failed, err)
	}
	if moved {
		for _, tell := range k.tellers() {
			tell()
		}
	}
	return errors.Join(failed...)
}

// due says whether to ask for a family.
func (k *Kinds) due(f Family) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.clock.Now().Before(k.again[f])
}

// tellers are those to tell of a change. They are called without the lock, since
// they may ask what is served.
func (k *Kinds) tellers() []func() {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.changed)
}

// ask asks the API server for a family.
func (k *Kinds) ask(f Family, resources []string) (bool, error) {
	list, err := k.discovery.ServerResourcesForGroupVersion(string(f) + "/v1")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the kinds of %s/v1: %w", f, err)
	}
	for _, name := range resources {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			return false, nil
		}
	}
	return true, nil
}

// begin starts the informers of a family; false: the kinds have gone again.
func (k *Kinds) begin(ctx context.Context, f Family) (bool, error) {
	if f == Group {
		for _, kind := range []client.Object{&groupv1.VolumeGroupSnapshot{}, &groupv1.VolumeGroupSnapshotClass{}} {
			_, err := k.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
			if meta.IsNoMatchError(err) {
				return false, nil
			}
			if err != nil {
				return false, fmt.Errorf("watch the kinds of group snapshots: %w", err)
			}
		}
		return true, nil
	}
	there, err := k.index.Begin(ctx, k.clock.Now())
	if err != nil || !there {
		return false, err
	}
	if _, err := k.cache.GetInformer(ctx, &snapshotv1.VolumeSnapshotClass{}, cache.BlockUntilSynced(false)); err != nil {
		return false, fmt.Errorf("watch VolumeSnapshotClasses: %w", err)
	}
	return true, nil
}

// found takes note of what is served, and begins what has waited for it.
func (k *Kinds) found(ctx context.Context, f Family, is bool) (moved bool, err error) {
	moved, waiting := k.note(f, is)
	if moved {
		logr.FromContextOrDiscard(ctx).Info("Snapshot kinds came or went", "group", string(f), "served", is)
	}
	var failed []error
	for _, begin := range waiting {
		if err := begin(); err != nil {
			failed = append(failed, err)
			k.wait(f, begin) // the next look tries again
		}
	}
	if is && len(failed) == 0 {
		k.rest(f)
	}
	return moved, errors.Join(failed...)
}

// rest has a family that is served not asked for again for a minute.
func (k *Kinds) rest(f Family) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.again[f] = k.clock.Now().Add(everyServed)
}

// note takes note, and takes out what begins now. That is called without the
// lock: a controller that starts holds its own, and wants ours in Changes.
func (k *Kinds) note(f Family, is bool) (moved bool, begins []func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	moved = k.served[f] != is
	k.served[f] = is
	k.gauge.WithLabelValues(string(f)).Set(map[bool]float64{true: 1}[is])
	if is {
		begins, k.waiting[f] = k.waiting[f], nil
	}
	return moved, begins
}
