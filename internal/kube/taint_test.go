package kube

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const (
	ours   = "ebs.csi.aws.com"
	ourKey = "ebs.csi.aws.com/agent-not-ready"
)

func csiNode(name string, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
}

func counted(name string) storagev1.CSINodeDriver {
	return storagev1.CSINodeDriver{Name: name, NodeID: "i-1", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}}
}

func TestRegistered(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		node *storagev1.CSINode
		want bool
	}{
		"counted":    {"the scheduler knows the limit", csiNode("a", counted(ours)), true},
		"beside":     {"other drivers do not matter", csiNode("a", counted("other"), counted(ours)), true},
		"no CSINode": {"kubelet has not made it yet", nil, false},
		"other":      {"another driver says nothing of ours", csiNode("a", counted("other")), false},
		"no number":  {"a driver without a limit is not ours yet", csiNode("a", storagev1.CSINodeDriver{Name: ours, Allocatable: &storagev1.VolumeNodeResources{}}), false},
		"no limit":   {"no limit reported", csiNode("a", storagev1.CSINodeDriver{Name: ours}), false},
	} {
		if got := registered(tc.node, ours); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.why, got)
		}
	}
}

// runChores runs chores until the test ends, and holds that they then stop.
func runChores(t *testing.T, c Chores) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("chores ended with %v", err)
		}
	})
}

// The taint goes when the driver is registered, and nothing else with it.
func TestStartupTaint(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("early", "first", ourKey, "last"))
	server.put(csiNode("early", counted(ours)))
	server.put(tainted("late", ourKey))
	server.put(csiNode("late", storagev1.CSINodeDriver{Name: ours}))
	server.put(tainted("other", "other.example/agent-not-ready"))
	server.put(csiNode("other", counted(ours)))
	runChores(t, Chores{Client: client, DriverName: ours, StartupTaint: true, Log: testr.New(t)})

	server.eventually("taint of a registered node taken", func() bool { return keysOf(server.node("early")) == "first last" })
	server.put(csiNode("late", counted(ours)))
	server.eventually("taint taken upon registration", func() bool { return keysOf(server.node("late")) == "" })
	server.put(tainted("new", ourKey)) // a node that comes later, CSINode first
	server.put(csiNode("new", counted(ours)))
	server.eventually("taint of a new node taken", func() bool { return keysOf(server.node("new")) == "" })
	server.put(tainted("late", ourKey)) // a node that boots again with its taint
	server.eventually("taint taken again", func() bool { return keysOf(server.node("late")) == "" })
	if got := keysOf(server.node("other")); got != "other.example/agent-not-ready" {
		t.Errorf("another driver's taint was taken: left is %q", got)
	}
	if n := server.changed(); n != 4 { // a look at a node as it was before may ask for more, which is refused
		t.Errorf("%d changes for 4 taints", n)
	}
}

// Not before: while the driver is not registered the taint stays.
func TestStartupTaintStays(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("waiting", ourKey))
	server.put(csiNode("waiting", counted("other")))
	server.put(tainted("registered", ourKey))
	server.put(csiNode("registered", counted(ours)))
	runChores(t, Chores{Client: client, DriverName: ours, StartupTaint: true, Log: testr.New(t)})
	server.eventually("the registered node's taint taken", func() bool { return keysOf(server.node("registered")) == "" })
	server.put(csiNode("waiting", counted("other"), storagev1.CSINodeDriver{Name: ours}))
	server.put(tainted("after", ourKey))
	server.put(csiNode("after", counted(ours)))
	server.eventually("a later node's taint taken", func() bool { return keysOf(server.node("after")) == "" })
	if got := keysOf(server.node("waiting")); got != ourKey {
		t.Errorf("the taint of a node without the driver is %q", got)
	}
}

// Nor where the cache says that the driver is registered and the API server says
// that it is not any more: a node that boots again is told of by two watches,
// and the Node's may be the first.
func TestStartupTaintStaysWhereTheCacheIsOld(t *testing.T) {
	server, client := startAPIServer(t)
	server.silent = "csinodes"
	for _, name := range []string{"first", "again", "after"} {
		server.put(csiNode(name, counted(ours)))
	}
	server.put(tainted("first", ourKey))
	runChores(t, Chores{Client: client, DriverName: ours, StartupTaint: true, Log: testr.New(t)})
	server.eventually("both kinds are read", func() bool { return keysOf(server.node("first")) == "" })
	server.put(csiNode("again"))
	server.put(tainted("again", ourKey))
	server.put(tainted("after", ourKey))
	server.eventually("a later node's taint taken", func() bool { return keysOf(server.node("after")) == "" })
	if got := keysOf(server.node("again")); got != ourKey {
		t.Errorf("the taint of a node whose driver has gone is %q", got)
	}
}

// Under another name the driver has a taint of its own.
func TestStartupTaintOfAnotherName(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("a", ourKey, "x.example/agent-not-ready"))
	server.put(csiNode("a", counted("x.example")))
	runChores(t, Chores{Client: client, DriverName: "x.example", StartupTaint: true, Log: testr.New(t)})
	server.eventually("own taint taken", func() bool { return keysOf(server.node("a")) == ourKey })
}

// A patch that fails is tried again, whatever failed.
func TestStartupTaintIsRetried(t *testing.T) {
	server, client := startAPIServer(t)
	failures := 2
	server.refusing(func(r *http.Request) *apierrors.StatusError {
		server.mu.Lock()
		defer server.mu.Unlock()
		if r.Method != http.MethodPatch || failures == 0 {
			return nil
		}
		failures--
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", nil)
	})
	server.put(tainted("a", ourKey))
	server.put(csiNode("a", counted(ours)))
	runChores(t, Chores{Client: client, DriverName: ours, StartupTaint: true, Log: testr.New(t)})
	server.eventually("taint taken at the third try", func() bool { return keysOf(server.node("a")) == "" })
}

// A taint that another sets between look and patch is not lost.
func TestRemoveTaintKeepsWhatItHasNotSeen(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(tainted("a", ourKey, "cordoned-meanwhile"))
	removed, err := client.removeTaint(t.Context(), tainted("a", ourKey), ourKey)
	if err == nil || removed {
		t.Errorf("a stale patch was taken: %t, %v", removed, err)
	}
	if got := keysOf(server.node("a")); got != ourKey+" cordoned-meanwhile" {
		t.Errorf("taints are %q", got)
	}
	if removed, err := client.removeTaint(t.Context(), tainted("gone", ourKey), ourKey); err != nil || removed {
		t.Errorf("a node that is gone is no error: %t, %v", removed, err)
	}
	if removed, err := client.removeTaint(t.Context(), tainted("a", "x"), ourKey); err != nil || removed || server.patched() != 2 {
		t.Errorf("a node without the taint is not patched: %t, %v", removed, err)
	}
}

// runningNodes is a cache of the server's Nodes.
func runningNodes(t *testing.T, client *Client) cache.SharedInformer {
	t.Helper()
	nodes, err := client.nodeInformer()
	if err != nil {
		t.Fatal(err)
	}
	go nodes.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), nodes.HasSynced) {
		t.Fatal("nodes are not cached")
	}
	return nodes
}

// What is kept of a Node is what is read of it: a cluster's Nodes are large.
func TestNodesAreCachedStripped(t *testing.T) {
	server, client := startAPIServer(t)
	n := tainted("a", ourKey)
	n.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m5.large", "more": "labels"}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"an/image"}}}
	server.put(n)
	nodes := runningNodes(t, client)
	got := cached[*corev1.Node](nodes, "a")
	if got == nil || len(got.Status.Images) > 0 || len(got.Labels) != 1 || keysOf(got) != ourKey {
		t.Errorf("cached is %+v", got)
	}
}
