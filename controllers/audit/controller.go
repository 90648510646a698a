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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Every is the time between two scans.
const Every = time.Minute

// Auditor scans the cluster and reports. The leader runs it.
type Auditor struct {
	Client     client.Client
	World      *world.World
	Clock      clock.Clock
	violations *prometheus.GaugeVec
}

// New makes an auditor and registers its metric.
func New(c client.Client, w *world.World, clk clock.Clock, registry prometheus.Registerer) *Auditor {
	a := &Auditor{Client: c, World: w, Clock: clk, violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
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
		timer := a.Clock.NewTimer(Every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
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
	return Observed{Claims: claims.Items, Classes: classes.Items, Sets: sets.Items}, nil
}

// count sets the metric, from which policies that are gone disappear.
func (a *Auditor) count(results map[string]*Result) {
	a.violations.Reset()
	for name, r := range results {
		for _, v := range r.Violations {
			a.violations.WithLabelValues(name, string(v.Rule), string(v.Action)).Inc()
		}
	}
}

// write writes a status where anything but the time of the scan differs; that
// alone is refreshed every ten scans, so that an idle cluster is not written to.
func (a *Auditor) write(ctx context.Context, p *v1alpha1.StoragePolicy, status v1alpha1.StoragePolicyStatus) error {
	same := status
	same.LastScanTime = p.Status.LastScanTime
	if p.Status.LastScanTime != nil && status.LastScanTime.Sub(p.Status.LastScanTime.Time) < 10*Every && equality.Semantic.DeepEqual(same, p.Status) {
		return nil
	}
	old := p.DeepCopy()
	p.Status = status
	if err := a.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of StoragePolicy %s: %w", p.Name, err)
	}
	return nil
}
