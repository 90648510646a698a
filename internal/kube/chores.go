package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Chores are what the controller half does in the cluster besides CSI. Several
// replicas may do them at once: each step is one that a second time changes
// nothing.
type Chores struct {
	// Client reaches the API server; it may watch Nodes and CSINodes, read
	// CSINodes, patch Nodes and create Events.
	Client *Client
	// DriverName is the driver as kubelet registers it.
	DriverName string
	// StartupTaint: take the startup taint from nodes with the driver.
	StartupTaint bool
	// Limits asks EC2 about instance types; nil: limits are not compared.
	Limits Limits
	// Clock tells when a type was last asked about.
	Clock clock.Clock
	// Log receives a line for each taint that is taken.
	Log logr.Logger
}

// Run does the chores until ctx ends. What fails is tried again; Run itself
// fails only where it cannot begin.
func (c Chores) Run(ctx context.Context) error {
	nodes, err := c.Client.nodeInformer()
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	start := func(i cache.SharedInformer) {
		group.Go(func() error {
			i.RunWithContext(ctx)
			return nil
		})
	}
	if c.StartupTaint {
		csiNodes, err := c.Client.csiNodeInformer(c.DriverName)
		if err != nil {
			return fmt.Errorf("watch CSINodes: %w", err)
		}
		remover, err := newTaintRemover(c, nodes, csiNodes)
		if err != nil {
			return err
		}
		start(csiNodes)
		group.Go(func() error { return remover.run(ctx) })
	}
	if c.Limits != nil {
		group.Go(func() error { return newLimitWatch(c, nodes).run(ctx) })
	}
	start(nodes)
	return group.Wait()
}

// taintRemover takes the startup taint from nodes on which the driver is registered.
type taintRemover struct {
	Chores
	key             string
	nodes, csiNodes cache.SharedInformer
	queue           workqueue.TypedRateLimitingInterface[string] // names of nodes
}

// Retries of one node: soon at first, as Pods wait for it.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newTaintRemover(c Chores, nodes, csiNodes cache.SharedInformer) (*taintRemover, error) {
	r := &taintRemover{
		Chores: c, key: StartupTaint(c.DriverName), nodes: nodes, csiNodes: csiNodes,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
	}
	look := cache.ResourceEventHandlerFuncs{
		AddFunc:    r.look,
		UpdateFunc: func(_, now any) { r.look(now) },
	}
	_, nodesErr := nodes.AddEventHandler(look)
	_, csiErr := csiNodes.AddEventHandler(look)
	return r, errors.Join(nodesErr, csiErr)
}

// look has a node looked at; a CSINode has the name of its Node.
func (r *taintRemover) look(o any) {
	if named, err := meta.Accessor(o); err == nil {
		r.queue.Add(named.GetName())
	}
}

func (r *taintRemover) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), r.nodes.HasSynced, r.csiNodes.HasSynced) {
		return nil // ctx ended
	}
	for {
		name, ended := r.queue.Get()
		if ended {
			return nil
		}
		if err := r.remove(ctx, name); err != nil && ctx.Err() == nil {
			r.Log.Info("startup taint stays for now", "node", name, "reason", err.Error())
			r.queue.AddRateLimited(name)
		} else {
			r.queue.Forget(name)
		}
		r.queue.Done(name)
	}
}

func (r *taintRemover) remove(ctx context.Context, name string) error {
	node := cached[*corev1.Node](r.nodes, name)
	if node == nil || !registered(cached[*storagev1.CSINode](r.csiNodes, name), r.DriverName) {
		return nil // an event will tell of it
	}
	if _, found := withoutTaint(node.Spec.Taints, r.key); !found {
		return nil
	}
	// Of a node that boots again two watches tell, and the Node's may be the
	// first: then the CSINode in the cache is that of before.
	now, err := r.Client.csiNode(ctx, name)
	if err != nil || !registered(now, r.DriverName) {
		return err
	}
	removed, err := r.Client.removeTaint(ctx, node, r.key)
	if removed {
		r.Log.Info("startup taint taken: the driver is registered", "node", name, "taint", r.key)
	}
	return err
}

// cached returns an object of a cache, nil where there is none.
func cached[T any](i cache.SharedInformer, name string) (out T) {
	if o, found, err := i.GetStore().GetByKey(name); err == nil && found {
		out, _ = o.(T)
	}
	return out
}
