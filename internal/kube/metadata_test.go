package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

func instanceNode(providerID string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
			"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-east-1a", "topology.kubernetes.io/region": "us-east-1",
		}},
		Spec: corev1.NodeSpec{ProviderID: providerID},
	}
}

func TestInstanceOf(t *testing.T) {
	without := func(label string) *corev1.Node {
		n := instanceNode("aws:///us-east-1a/i-0123456789abcdef0")
		delete(n.Labels, label)
		return n
	}
	want := imds.Instance{ID: "i-0123456789abcdef0", Type: "m5.large", Zone: "us-east-1a", Region: "us-east-1"}
	for name, tc := range map[string]struct {
		why  string
		node *corev1.Node
		ok   bool
		says string
	}{
		"as on EKS":   {"kubelet's and the cloud controller's form", instanceNode("aws:///us-east-1a/i-0123456789abcdef0"), true, ""},
		"without /":   {"an older form without the empty host", instanceNode("aws://us-east-1a/i-0123456789abcdef0"), true, ""},
		"region":      {"nothing depends on the region", without("topology.kubernetes.io/region"), true, ""},
		"not yet":     {"the cloud controller sets it a moment after the start", instanceNode(""), false, "providerID"},
		"other cloud": {"not an EC2 instance", instanceNode("gce://p/z/i-0123456789abcdef0"), false, "gce://"},
		"Fargate":     {"aws, and no instance", instanceNode("aws:///us-east-1a/fargate-ip-10-0-0-1"), false, "fargate"},
		"no type":     {"the limit depends on it", without("node.kubernetes.io/instance-type"), false, "node.kubernetes.io/instance-type"},
		"no zone":     {"volumes are bound to it", without("topology.kubernetes.io/zone"), false, "topology.kubernetes.io/zone"},
	} {
		got, err := instanceOf(tc.node)
		if !tc.ok {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %s: got %+v, %v", name, tc.why, got, err)
			}
			continue
		}
		expect := want
		expect.Region = tc.node.Labels["topology.kubernetes.io/region"]
		if diff := cmp.Diff(expect, got); diff != "" || err != nil {
			t.Errorf("%s: %s: %v\n%s", name, tc.why, err, diff)
		}
	}
}

func TestNodeMetadata(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(instanceNode("aws:///us-east-1a/i-0123456789abcdef0"))
	m := NodeMetadata{Client: client, NodeName: "a"}
	if i, err := m.Instance(t.Context()); err != nil || i.ID != "i-0123456789abcdef0" {
		t.Errorf("instance: %+v, %v", i, err)
	}
	if o, err := m.Occupancy(t.Context()); err != nil || o != ebs.MostOccupied("m5.large") {
		t.Errorf("occupancy: %+v, %v", o, err)
	}
	m.NodeName = "b"
	if _, err := m.Occupancy(t.Context()); err == nil || !strings.Contains(err.Error(), "node b") {
		t.Errorf("a node that is not there: %v", err)
	}
}
