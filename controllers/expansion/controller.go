package expansion

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Usage tells how full claims are.
type Usage interface {
	Read(ctx context.Context, nodes []usage.Node) usage.Answer
}

// Grower grows claims. The leader runs it.
type Grower struct {
	client client.Client // reads from informers
	world  *world.World
	usage  Usage
	clock  clock.WithTicker
	events events.EventRecorder
	every  time.Duration

	histories map[types.UID]*remembered
	names     names
	metrics   *instruments
}

// remembered is what is kept of a claim between rounds.
type remembered struct {
	History
	said string // why there was no decision, as it was told
}

// Options are what a Grower works with. All must be given.
type Options struct {
	World    *world.World
	Usage    Usage
	Clock    clock.WithTicker
	Registry prometheus.Registerer
	// Every is the time between two rounds.
	Every time.Duration
}

// New makes the grower of a manager and registers its metrics.
func New(mgr ctrl.Manager, o Options) *Grower {
	return newGrower(mgr.GetClient(), mgr.GetEventRecorder("holdfast"), o)
}

func newGrower(c client.Client, recorder events.EventRecorder, o Options) *Grower {
	g := &Grower{client: c, world: o.World, usage: o.Usage, clock: o.Clock, events: recorder, every: o.Every, histories: map[types.UID]*remembered{}, names: names{}, metrics: newInstruments()}
	o.Registry.MustRegister(g.metrics.all()...)
	return g
}

// NeedLeaderElection says that one replica grows claims.
func (g *Grower) NeedLeaderElection() bool { return true }

// Start goes round until ctx ends.
func (g *Grower) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("expansion")
	ctx = logr.NewContext(ctx, log)
	ticks := g.clock.NewTicker(g.every)
	defer ticks.Stop()
	for {
		if err := g.Round(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Grow claims, trying again", "after", g.every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C():
		}
	}
}

// Round looks at every claim once. One claim's failure does not stop the others.
func (g *Grower) Round(ctx context.Context) error {
	seen, err := g.observe(ctx)
	if err != nil {
		return err
	}
	answer := g.usage.Read(ctx, seen.nodes)
	tell(logr.FromContextOrDiscard(ctx), answer)
	now := g.clock.Now()
	told := newFigures()
	kept := make(map[types.UID]*remembered, len(seen.claims))
	var failed []error
	for uid, err := range seen.failed {
		failed = append(failed, err)
		if memory := g.histories[uid]; memory != nil {
			kept[uid] = memory
		}
	}
	for i := range seen.left {
		if err := g.note(ctx, now, &seen.left[i], Decision{}); err != nil {
			failed = append(failed, fmt.Errorf("claim %s/%s: %w", seen.left[i].object.Namespace, seen.left[i].object.Name, err))
		}
	}
	for i := range seen.claims {
		c := &seen.claims[i]
		memory := g.histories[c.object.UID]
		if memory == nil {
			memory = &remembered{}
		}
		kept[c.object.UID] = memory
		c.claim.Successor = g.names.successor(now, c.object)
		var sample *usage.Sample
		if s, there := answer.Samples[client.ObjectKeyFromObject(c.object)]; there && !c.claim.Block {
			sample = &s
		}
		decision := Decide(now, c.rules, c.claim, sample, memory.History)
		memory.History = decision.History
		told.add(now, c, decision)
		if err := g.apply(ctx, now, c, memory, decision); err != nil {
			failed = append(failed, fmt.Errorf("claim %s/%s: %w", c.object.Namespace, c.object.Name, err))
		}
	}
	g.histories = kept
	g.names.forget(now)
	g.metrics.set(told)
	return errors.Join(failed...)
}

// tell logs what the sources of usage did not tell, each reason once.
func tell(log logr.Logger, answer usage.Answer) {
	if answer.Token != nil {
		log.Error(answer.Token, "Request the token with which nodes are asked how full volumes are")
	}
	for node, err := range answer.Failed {
		if errors.Is(err, answer.Token) {
			continue // said above for all nodes
		}
		log.Info("A node does not tell how full its volumes are: their claims do not grow by a trigger until it does", "node", node, "reason", err.Error())
	}
	if answer.Prometheus != nil {
		log.Error(answer.Prometheus, "Ask Prometheus how full volumes are")
	}
}
