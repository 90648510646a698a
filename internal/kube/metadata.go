package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

// NodeMetadata tells what a Node object says of its instance, for instances
// whose metadata service does not answer Pods.
type NodeMetadata struct {
	Client   *Client
	NodeName string
}

// Instance reads the Node.
func (m NodeMetadata) Instance(ctx context.Context) (imds.Instance, error) {
	node, err := m.Client.node(ctx, m.NodeName)
	if err != nil {
		return imds.Instance{}, err
	}
	return instanceOf(node)
}

// instanceOf reads spec.providerID (aws:///us-east-1a/i-0123456789abcdef0, set by
// kubelet or AWS's cloud controller manager) and the well-known labels.
func instanceOf(n *corev1.Node) (imds.Instance, error) {
	id := n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
	i := imds.Instance{
		ID:     ebs.InstanceID(id),
		Type:   n.Labels[corev1.LabelInstanceTypeStable],
		Zone:   n.Labels[corev1.LabelTopologyZone],
		Region: n.Labels[corev1.LabelTopologyRegion],
	}
	switch {
	case !strings.HasPrefix(n.Spec.ProviderID, "aws://") || !i.ID.WellFormed():
		return imds.Instance{}, fmt.Errorf("node %s: spec.providerID is %q, want aws:///<zone>/<instance id>", n.Name, n.Spec.ProviderID)
	case i.Type == "":
		return imds.Instance{}, fmt.Errorf("node %s has no label %s", n.Name, corev1.LabelInstanceTypeStable)
	case i.Zone == "":
		return imds.Instance{}, fmt.Errorf("node %s has no label %s", n.Name, corev1.LabelTopologyZone)
	}
	return i, nil
}

// Occupancy assumes the most that is likely, as a Node does not tell what is
// attached: a limit that is too high leaves Pods waiting for volumes that EC2
// refuses to attach, one that is too low leaves places unused.
func (m NodeMetadata) Occupancy(ctx context.Context) (ebs.Occupancy, error) {
	i, err := m.Instance(ctx)
	if err != nil {
		return ebs.Occupancy{}, err
	}
	return ebs.MostOccupied(i.Type), nil
}
