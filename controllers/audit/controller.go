package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Every is the time between two scans, and the least time between two writes of
// a policy's status while its spec stays as it is.
const Every = time.Minute

// soon is how long after the change of a policy the next scan comes: changes
// that come together, such as a folder that is applied, cost one.
const soon = 3 * time.Second

// Auditor scans the cluster and reports. The leader runs it.
type Auditor struct {
	Client client.Client
	World  *world.World
	Clock  clock.Clock
	// Orphan is what there is to say of an orphaned claim; nil: nothing.
	Orphan     func(types.UID) string
	violations *prometheus.GaugeVec
	changed    chan struct{} // holds one: there is a policy that has not been scanned yet
}

// New makes an auditor and registers its metric.
func New(c client.Client, w *world.World, clk clock.Clock, registry prometheus.Registerer) *Auditor {
	a := &Auditor{Client: c, World: w, Clock: clk, changed: make(chan struct{}, 1), violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_policy_violations",
		Help: "Objects that break a rule of a policy now, by policy, rule and action.",
	}, []string{"policy", "rule", "action"})}
	registry.MustRegister(a.violations)
	return a
}

// NeedLeaderElection says that one replica writes status.
func (a *Auditor) NeedLeaderElection() bool { return true }

// Start scans until ctx ends.
func (a *Auditor) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for {
		if err := a.Audit(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Audit, trying again", "after", Every.String())
		}
		if !a.wait(ctx, Every, a.changed) {
			return nil
		}
	}
}

// wait waits until the next scan: for a time, or until soon after early; false
// where ctx ends first.
func (a *Auditor) wait(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := a.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	case <-early:
		return a.wait(ctx, soon, nil)
	}
}

// Watch makes the change of a policy's spec wake the auditor.
func (a *Auditor) Watch(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &v1alpha1.StoragePolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch StoragePolicies: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.wake() },
		DeleteFunc: func(any) { a.wake() },
		UpdateFunc: func(old, now any) {
			before, is := old.(*v1alpha1.StoragePolicy)
			after, too := now.(*v1alpha1.StoragePolicy)
			if is && too && before.Generation != after.Generation { // what we write ourselves leaves it
				a.wake()
			}
		},
	})
	return err
}

// wake lets the next scan come soon.
func (a *Auditor) wake() {
	select {
	case a.changed <- struct{}{}:
	default: // it is coming
	}
}

// Audit scans once and writes what differs.
func (a *Auditor) Audit(ctx context.Context) error {
	var list v1alpha1.StoragePolicyList
	if err := a.World.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list StoragePolicies: %w", err)
	}
	if len(list.Items) == 0 {
		a.violations.Reset()
		return nil
	}
	seen, err := a.observe(ctx)
	if err != nil {
		return err
	}
	var policies []*policy.Policy
	all := cluster{now: a.World.Now(), policies: map[string]*policy.Policy{}}
	broken := map[string]field.ErrorList{}
	for i := range list.Items {
		p, errs := policy.Compile(&list.Items[i])
		if p == nil {
			broken[list.Items[i].Name] = errs
			continue
		}
		policies = append(policies, p)
		all.policies[p.Name] = p
	}
	marked, err := a.World.DefaultClass(ctx)
	if err != nil {
		return err
	}
	if marked != nil {
		all.defaultClass = marked.Name
	}
	results, err := Scan(ctx, a.World, policies, seen)
	if err != nil {
		return err
	}
	a.count(results)
	var failed []error
	for i := range list.Items {
		p := &list.Items[i]
		status := report(p.Status, p.Generation, all.policies[p.Name], broken[p.Name], results[p.Name], all)
		failed = append(failed, a.write(ctx, p, status))
	}
	return errors.Join(failed...)
}

func (a *Auditor) observe(ctx context.Context) (Observed, error) {
	var claims corev1.PersistentVolumeClaimList
	var classes storagev1.StorageClassList
	var sets appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&claims, &classes, &sets} {
		// What the informers hold is only read here.
		if err := a.World.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return Observed{}, fmt.Errorf("list what there is: %w", err)
		}
	}
	snapshots, err := a.World.Snapshots(ctx)
	return Observed{Claims: claims.Items, Classes: classes.Items, Sets: sets.Items, Snapshots: snapshots, Told: a.Orphan}, err
}

// count sets the metric, from which policies that are gone disappear.
func (a *Auditor) count(results map[string]*Result) {
	a.violations.Reset()
	for name, r := range results {
		for b, n := range r.Broken {
			a.violations.WithLabelValues(name, string(b.Rule), string(b.Action)).Set(float64(n))
		}
	}
}

// write writes a status where it is due.
func (a *Auditor) write(ctx context.Context, p *v1alpha1.StoragePolicy, status v1alpha1.StoragePolicyStatus) error {
	if !due(p.Status, status) {
		return nil
	}
	old := p.DeepCopy()
	p.Status = status
	if err := a.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of StoragePolicy %s: %w", p.Name, err)
	}
	return nil
}

// due says whether a status is to be written.
//
//	the spec has changed, or there is no status    at once
//	written less than a minute ago                 not yet: the next scans find it again
//	anything but the time of the scan differs      yes
//	nothing differs                                every ten minutes, so that an idle
//	                                               cluster is not written to
func due(old, now v1alpha1.StoragePolicyStatus) bool {
	if old.LastScanTime == nil || old.ObservedGeneration != now.ObservedGeneration {
		return true
	}
	since := now.LastScanTime.Sub(old.LastScanTime.Time)
	now.LastScanTime = old.LastScanTime
	return since >= 10*Every || since >= Every && !equality.Semantic.DeepEqual(now, old)
}
