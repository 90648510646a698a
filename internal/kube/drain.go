package kube

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// drainTaints mark a node whose Pods are being moved away: kubectl drain, the
// cluster autoscaler's deletion, Karpenter's since and before its v1. They are
// those that AWS's driver knows (aws-ebs-csi-driver, cmd/hooks/prestop.go).
var drainTaints = []string{
	corev1.TaintNodeUnschedulable,
	"ToBeDeletedByClusterAutoscaler",
	"karpenter.sh/disrupted",
	"karpenter.sh/disruption",
}

// draining says why a node counts as being drained, "" if it does not.
func draining(n *corev1.Node) string {
	if n.Spec.Unschedulable {
		return "it is unschedulable"
	}
	for _, t := range n.Spec.Taints {
		if slices.Contains(drainTaints, t.Key) {
			return "it has taint " + t.Key
		}
	}
	return ""
}

// PreStop waits, before the driver's process on a node ends, until the
// volumes of a node that is being drained are detached: without the driver
// kubelet cannot unmount them, and Kubernetes then waits six minutes before it
// takes them from the node by force. A node that is not being drained keeps its
// Pods over a restart of the driver, so there is nothing to wait for; one whose
// object is gone is being terminated.
type PreStop struct {
	Client     *Client
	DriverName string
	NodeName   string
	Log        logr.Logger
}

// Run returns when no VolumeAttachment of the driver is left on the node, or
// with an error that names those that are when ctx ends.
func (p PreStop) Run(ctx context.Context) error {
	node, err := p.Client.node(ctx, p.NodeName)
	reason := "it is gone from the API server"
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	default:
		if reason = draining(node); reason == "" {
			p.Log.Info("node is not being drained: nothing to wait for", "node", p.NodeName)
			return nil
		}
	}
	p.Log.Info("node is being drained: waiting for its volumes to be detached", "node", p.NodeName, "reason", reason)
	return p.wait(ctx)
}

// wait watches the node's attachments until none is left.
func (p PreStop) wait(ctx context.Context) error {
	attachments, err := p.Client.attachmentInformer(p.DriverName, p.NodeName)
	if err != nil {
		return fmt.Errorf("watch VolumeAttachments: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err = attachments.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return fmt.Errorf("watch VolumeAttachments: %w", err)
	}
	go attachments.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), attachments.HasSynced) {
		return fmt.Errorf("list VolumeAttachments of node %s: %w", p.NodeName, context.Cause(ctx))
	}
	for {
		left := p.attached(attachments.GetStore().List())
		if len(left) == 0 {
			p.Log.Info("no volume is attached to the node", "node", p.NodeName)
			return nil
		}
		p.Log.Info("volumes are still attached", "node", p.NodeName, "persistentVolumes", left)
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("volumes are still attached to node %s: %v: %w", p.NodeName, left, context.Cause(ctx))
		}
	}
}

// attached names the PersistentVolumes that are attached to the node, sorted.
func (p PreStop) attached(attachments []any) []string {
	var names []string
	for _, o := range attachments {
		a, ok := o.(*storagev1.VolumeAttachment)
		if !ok || a.Spec.Attacher != p.DriverName || a.Spec.NodeName != p.NodeName {
			continue
		}
		name := "an inline volume of " + a.Name
		if a.Spec.Source.PersistentVolumeName != nil {
			name = *a.Spec.Source.PersistentVolumeName
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
