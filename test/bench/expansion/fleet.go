package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// Names of what the measurement stands on.
const (
	namespaces = 50
	storage    = "gp3-encrypted"
)

func namespaceOf(i int) string { return fmt.Sprintf("team-%02d", i%namespaces) }

func claimOf(i int) string { return fmt.Sprintf("data-postgresql-%d", i/namespaces) }

func nodeOf(i int) string { return fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/250, i%250) }

// fleet are the kubelets.
type fleet struct {
	servers []*httptest.Server
	mu      sync.Mutex
	times   []answered
}

// answered is when one question was asked and answered.
type answered struct{ from, to time.Time }

// startFleet starts kubelets whose volumes are half full.
func startFleet(o options) *fleet {
	f := &fleet{}
	other := others(o.other)
	for k := range o.kubelets {
		var text bytes.Buffer
		for i := k; i < o.claims; i += o.kubelets {
			labels := fmt.Sprintf("{namespace=%q,persistentvolumeclaim=%q}", namespaceOf(i), claimOf(i))
			for series, value := range map[string]float64{"available_bytes": 1e10, "capacity_bytes": 2e10, "used_bytes": 1e10, "inodes": 1.3e6, "inodes_free": 1.2e6, "inodes_used": 1e5} {
				fmt.Fprintf(&text, "kubelet_volume_stats_%s%s %e\n", series, labels, value)
			}
		}
		text.WriteString(other)
		f.servers = append(f.servers, httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			from := time.Now()
			if req.URL.Path != "/metrics" {
				http.NotFound(w, req)
				return
			}
			_, _ = w.Write(text.Bytes())
			f.mu.Lock()
			defer f.mu.Unlock()
			f.times = append(f.times, answered{from, time.Now()})
		})))
	}
	return f
}

// others are series as a kubelet has besides.
func others(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"operation_%d\",le=\"%d\"} %d\n", i/20, i%20, i)
	}
	return text.String()
}

// authority is what signs the kubelets' certificates.
func (f *fleet) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.servers[0].Certificate().Raw})
}

func (f *fleet) close() {
	for _, s := range f.servers {
		s.Close()
	}
}

// asked is how many questions were answered.
func (f *fleet) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.times)
}

// longest is the longest round, of so many questions each, after the first ones.
func (f *fleet) longest(skip, each int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var most time.Duration
	for i := skip; i+each <= len(f.times); i += each {
		most = max(most, f.times[i+each-1].to.Sub(f.times[i].from))
	}
	return most.Round(time.Millisecond)
}

// populate makes the nodes, the claims, on which node each is, and the policy.
func populate(ctx context.Context, s *bench.Server, p *bench.Progress, f *fleet, o options) error {
	objects := []client.Object{
		bench.Class(storage, map[string]string{"type": "gp3", "encrypted": "true"}),
		&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "growth"}, Spec: v1alpha1.StoragePolicySpec{Expansion: &v1alpha1.PolicyExpansion{
			Trigger: v1alpha1.ExpansionTrigger{UsedPercent: 80, InodesUsedPercent: 80}, MaxSize: resource.MustParse("1Ti"),
		}}},
	}
	for i := range namespaces {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}})
	}
	const home = "holdfast-system" // the manager's, unless a flag says otherwise
	objects = append(objects,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: usage.ServiceAccount}})
	for _, object := range objects {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("make %T %s: %w", object, object.GetName(), err)
		}
	}
	for k, server := range f.servers {
		host, port, err := net.SplitHostPort(server.Listener.Addr().String())
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return err
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(k)}}
		if err := s.Client.Create(ctx, node); err != nil {
			return fmt.Errorf("make a node: %w", err)
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n)
		if err := s.Client.Status().Update(ctx, node); err != nil {
			return fmt.Errorf("make a node: %w", err)
		}
	}
	p.Say("%d claims are made", o.claims)
	var claims []*corev1.PersistentVolumeClaim
	for i := range o.claims {
		claims = append(claims, bench.Claim(namespaceOf(i), claimOf(i), storage))
	}
	if err := s.BindAll(ctx, p, claims, func(i int) string { return fmt.Sprintf("vol-%017x", i+1) }); err != nil {
		return err
	}
	return attach(ctx, s, p, claims, o.kubelets)
}

// attach attaches the claims' volumes to the nodes in turn, the first by way of
// the API server.
func attach(ctx context.Context, s *bench.Server, p *bench.Progress, claims []*corev1.PersistentVolumeClaim, nodes int) error {
	first := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + string(claims[0].UID), Annotations: map[string]string{"csi.alpha.kubernetes.io/node-id": "i-0123456789abcdef0"}},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: bench.Provisioner, NodeName: nodeOf(0), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &claims[0].Spec.VolumeName}},
	}
	if err := s.Client.Create(ctx, first); err != nil {
		return fmt.Errorf("make an attachment: %w", err)
	}
	first.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"devicePath": "/dev/xvdaa"}}
	if err := s.Client.Status().Update(ctx, first); err != nil {
		return fmt.Errorf("make an attachment: %w", err)
	}
	var others []client.Object
	for i, claim := range claims[1:] {
		a := bench.Twin(first, "", "csi-"+string(claim.UID))
		a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = nodeOf((i+1)%nodes), &claim.Spec.VolumeName
		others = append(others, a)
	}
	return s.Store(ctx, p, others)
}

// isWrite says whether a request, told as bench.Server.Requests does, is a write
// such as the manager makes of claims and policies, events included.
func isWrite(what string) bool {
	verb, of, _ := strings.Cut(what, " ")
	switch verb {
	case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		return strings.HasPrefix(of, "persistentvolumeclaims") || strings.HasPrefix(of, "events") || strings.HasPrefix(of, "storagepolicies")
	}
	return false
}
