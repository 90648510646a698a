package kube

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDraining(t *testing.T) {
	cordoned := tainted("a")
	cordoned.Spec.Unschedulable = true
	for name, tc := range map[string]struct {
		why  string
		node *corev1.Node
		want bool
	}{
		"plain":              {"a restart of the driver alone", tainted("a"), false},
		"startup taint":      {"a node that comes, not one that goes", tainted("a", ourKey), false},
		"pressure":           {"evicts some Pods, does not empty the node", tainted("a", corev1.TaintNodeDiskPressure), false},
		"deletion candidate": {"the cluster autoscaler only thinks about it", tainted("a", "DeletionCandidateOfClusterAutoscaler"), false},
		"cordoned":           {"kubectl drain begins so", cordoned, true},
		"unschedulable":      {"the taint of a cordoned node", tainted("a", corev1.TaintNodeUnschedulable), true},
		"cluster autoscaler": {"it empties the node to delete it", tainted("a", "ToBeDeletedByClusterAutoscaler"), true},
		"Karpenter":          {"since its v1", tainted("a", "karpenter.sh/disrupted"), true},
		"Karpenter before":   {"its v1beta1", tainted("a", "karpenter.sh/disruption"), true},
	} {
		if got := draining(tc.node) != ""; got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.why, got)
		}
	}
}

func attachment(name, attacher, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: attacher, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-of-" + name)},
	}}
}

func preStop(t *testing.T, client *Client) PreStop {
	return PreStop{Client: client, DriverName: ours, NodeName: "a", Log: testr.New(t)}
}

// A node that is not being drained keeps its volumes: no wait.
func TestPreStopWithoutDrain(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("a"))
	server.put(attachment("1", ours, "a"))
	if err := preStop(t, client).Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// A drained node, and one that is gone, is waited for: all of its volumes of
// ours, and no others.
func TestPreStopWaits(t *testing.T) {
	for name, node := range map[string]*corev1.Node{"drained": tainted("a", corev1.TaintNodeUnschedulable), "gone": nil} {
		t.Run(name, func(t *testing.T) {
			server, client := startAPIServer(t)
			if node != nil {
				server.put(node)
			}
			first, second := attachment("1", ours, "a"), attachment("2", ours, "a")
			for _, a := range []*storagev1.VolumeAttachment{first, second, attachment("3", ours, "b"), attachment("4", "other", "a")} {
				server.put(a)
			}
			ended := make(chan error, 1)
			go func() { ended <- preStop(t, client).Run(t.Context()) }()
			still := func(what string) {
				t.Helper()
				select {
				case err := <-ended:
					t.Fatalf("ended with %v while %s", err, what)
				case <-time.After(50 * time.Millisecond):
				}
			}
			still("two volumes are attached")
			server.remove(first)
			still("one volume is attached")
			server.remove(second)
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("still waits for volumes of other nodes or drivers")
			}
		})
	}
}

func TestPreStopEnds(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("a", "karpenter.sh/disrupted"))
	server.put(attachment("1", ours, "a"))
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	err := preStop(t, client).Run(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pv-of-1") {
		t.Errorf("want the end of time and what is attached, got %v", err)
	}
	server.refusing(func(*http.Request) *apierrors.StatusError { return apierrors.NewUnauthorized("no") })
	if err := preStop(t, client).Run(t.Context()); err == nil {
		t.Error("an API server that does not tell is an error, so that kubelet goes on")
	}
}
