package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// StartupTaint is the key of the taint with which a node waits for the driver:
// ebs.csi.aws.com/agent-not-ready, as AWS's driver has it, for the default name.
// Under another name it is that driver's own, since of two drivers on a node
// each has to be waited for.
func StartupTaint(driver string) string { return driver + "/agent-not-ready" }

// registered says whether kubelet has told how many volumes of the driver the
// node takes. Before that the scheduler counts no limit, and Pods with volumes
// would be put on the node beyond it.
func registered(n *storagev1.CSINode, driver string) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == driver && d.Allocatable != nil && d.Allocatable.Count != nil
	})
}

// withoutTaint returns taints without those of a key, whatever their value and
// effect, and whether there was any.
func withoutTaint(taints []corev1.Taint, key string) ([]corev1.Taint, bool) {
	rest := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == key })
	return rest, len(rest) < len(taints)
}

// patchOperation is an operation of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string         `json:"op"`
	Path  string         `json:"path"`
	Value []corev1.Taint `json:"value"`
}

// taintPatch replaces the taints of a node if they are still those that were
// seen: another who changes taints at the same time loses nothing.
func taintPatch(seen, want []corev1.Taint) ([]byte, error) {
	return json.Marshal([]patchOperation{
		{Op: "test", Path: "/spec/taints", Value: seen},
		{Op: "replace", Path: "/spec/taints", Value: append([]corev1.Taint{}, want...)},
	})
}

// removeTaint takes the startup taint from a node as it was seen. A node that
// is gone is fine. The API server refuses where the taints are no longer those
// that were seen, as Invalid (RFC 6902, "test"): the next look has others.
func (c *Client) removeTaint(ctx context.Context, seen *corev1.Node, key string) (removed bool, err error) {
	rest, found := withoutTaint(seen.Spec.Taints, key)
	if !found {
		return false, nil
	}
	patch, err := taintPatch(seen.Spec.Taints, rest)
	if err != nil {
		return false, err
	}
	err = c.core.Patch(types.JSONPatchType).Resource("nodes").Name(seen.Name).Body(patch).Do(ctx).Error()
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("take taint %s from node %s: %w", key, seen.Name, err)
}
