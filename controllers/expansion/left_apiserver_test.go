//go:build envtest

package expansion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// oneClassFails cannot read one StorageClass.
type oneClassFails struct{ client.Client }

func (c oneClassFails) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, class := o.(*storagev1.StorageClass); class && key.Name == "unreadable" {
		return errors.New("the class cannot be read now")
	}
	return c.Client.Get(ctx, key, o, opts...)
}

// full is a source of usage by which all claims are full.
type full struct{ claims []types.NamespacedName }

func (f full) Read(context.Context, []usage.Node) usage.Answer {
	a := usage.Answer{Samples: map[types.NamespacedName]usage.Sample{}}
	for _, c := range f.claims {
		a.Samples[c] = usage.Sample{At: time.Now(), Bytes: usage.Amount{Total: 1000, Free: 10}}
	}
	return a
}

// TestOthersAndLeftovers: a claim that cannot be looked at stops no other, and one
// that is under no expansion any more keeps no condition of one.
func TestOthersAndLeftovers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(testenv.APIServer(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}}
	create(ns)
	policy := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}, Spec: v1alpha1.StoragePolicySpec{
		Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns.Name}}},
		Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Gi")},
	}}
	create(policy)
	create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}, Provisioner: ns.Name + ".example.com", AllowVolumeExpansion: ptr.To(true)})
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	var keys []types.NamespacedName
	for name, class := range map[string]string{"a-other": "unreadable", "b-full": ns.Name} {
		keys = append(keys, types.NamespacedName{Namespace: ns.Name, Name: name})
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			VolumeName: ns.Name + name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		}}
		create(claim)
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, size
		if err := c.Status().Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: ns.Name + name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "x.example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(ns.Name + name)},
		}}
		create(a)
		a.Status.Attached = true
		if err := c.Status().Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	odd := oneClassFails{c}
	g := newGrower(odd, events.NewFakeRecorder(100), Options{
		World: &world.World{Cache: odd, Live: odd, Clock: clock.RealClock{}}, Usage: full{keys}, Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
	})
	look := func(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimCondition) {
		t.Helper()
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns.Name, Name: name}, claim); err != nil {
			t.Fatal(err)
		}
		return claim, conditionOf(claim, v1alpha1.ConditionExpansionBlocked)
	}
	if err := g.Round(t.Context()); err == nil {
		t.Error("the class that cannot be read is not told of")
	}
	if _, blocked := look("b-full"); blocked == nil || blocked.Reason != v1alpha1.ReasonAtMaximum {
		t.Errorf("one claim's class cannot be read, and another claim is not looked at: %+v", blocked)
	}
	if err := c.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if err := g.Round(t.Context()); err != nil {
		t.Error(err)
	}
	before, blocked := look("b-full")
	if blocked != nil {
		t.Errorf("no policy grows the claim, and its condition still says %+v", blocked)
	}
	if err := g.Round(t.Context()); err != nil {
		t.Error(err)
	}
	if after, _ := look("b-full"); after.ResourceVersion != before.ResourceVersion {
		t.Error("a claim that is under no expansion is written to again")
	}
}
