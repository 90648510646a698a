package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// BenchmarkClaims asks the handlers of claims as the API server does, less the
// network: 5,000 claims in real informers, and policies that each judge every
// claim by every rule on claims and classes. What allocates here with the number
// of claims or policies costs every claim of a cluster.
func BenchmarkClaims(b *testing.B) {
	for _, policies := range []int{50, 300} {
		w := informed(b, newFixture(), policies, 5000)
		for _, path := range []string{"/validate/claims", "/default/claims"} {
			handler := handlers(logr.Discard(), w, world.Authorizer{Client: nobody{}}, nil, true)[path]
			named := fmt.Sprintf("%s/%d policies", strings.ReplaceAll(strings.Trim(path, "/"), "/", " "), policies)
			made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: guarded, Name: "new"}}
			made.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			made.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
			if path == "/validate/claims" {
				made.Spec.StorageClassName = ptr("good")
			}
			body := reviewOf(b, admissionv1.Create, made, nil)
			b.Run(named+"/created", func(b *testing.B) { asks(b, handler, path, body) })
			if path == "/default/claims" {
				continue
			}
			grown := made.DeepCopy()
			grown.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("30Gi")
			body = reviewOf(b, admissionv1.Update, grown, made)
			b.Run(named+"/grown", func(b *testing.B) { asks(b, handler, path, body) })
			grown.Spec.StorageClassName = ptr("bad")
			body = reviewOf(b, admissionv1.Create, grown, nil)
			b.Run(named+"/refused", func(b *testing.B) { asks(b, handler, path, body) })
		}
	}
}

func asks(b *testing.B, handler http.Handler, path string, body []byte) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		res := httptest.NewRecorder()
		handler.ServeHTTP(res, httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, bytes.NewReader(body)))
		if res.Code != http.StatusOK {
			b.Fatalf("answered %d: %s", res.Code, res.Body)
		}
	}
}

func reviewOf(tb testing.TB, op admissionv1.Operation, now, old *corev1.PersistentVolumeClaim) []byte {
	tb.Helper()
	raw := func(o any) []byte {
		text, err := json.Marshal(o)
		if err != nil {
			tb.Fatal(err)
		}
		return text
	}
	req := &admissionv1.AdmissionRequest{UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Namespace: now.Namespace, Name: now.Name, Operation: op}
	req.Object.Raw = raw(now)
	if old != nil {
		req.OldObject.Raw = raw(old)
	}
	return raw(admissionv1.AdmissionReview{Request: req})
}

// informed is a world of real informers, filled by a server that answers lists
// of the fixture's classes, a number of policies like the fixture's, and claims.
func informed(tb testing.TB, f *fixture, policies, claims int) *world.World {
	tb.Helper()
	lists := map[string]runtime.Object{"snapshotschedules": &v1alpha1.SnapshotScheduleList{}, "statefulsets": &appsv1.StatefulSetList{}, "poddisruptionbudgets": &policyv1.PodDisruptionBudgetList{}}
	namespaces := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for name, labels := range f.namespaces {
		namespaces.Items = append(namespaces.Items, metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		})
	}
	all := &v1alpha1.StoragePolicyList{}
	for i := range policies {
		p := f.policy.DeepCopy()
		p.Name, p.UID = fmt.Sprintf("policy-%d", i), types.UID(fmt.Sprint(i))
		all.Items = append(all.Items, *p)
	}
	held := &corev1.PersistentVolumeClaimList{}
	for i := range claims {
		c := f.claims[0].DeepCopy()
		c.Name = fmt.Sprintf("data-%d", i)
		held.Items = append(held.Items, *c)
	}
	lists["namespaces"], lists["storagepolicies"], lists["persistentvolumeclaims"], lists["storageclasses"] = namespaces, all, held, &storagev1.StorageClassList{Items: f.classes}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		list, ok := lists[req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]]
		switch query := req.URL.Query(); {
		case !ok:
			http.NotFound(w, req)
		case query.Get("sendInitialEvents") != "":
			http.Error(w, "this server cannot stream a list", http.StatusBadRequest)
		case query.Get("watch") != "":
			<-req.Context().Done() // nothing changes
		default:
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				tb.Error(err)
			}
		}
	}))
	tb.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if gvk.Kind == "Namespace" || gvk.Kind == "StorageClass" || gvk.Kind == "StoragePolicy" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	if err := snapshotv1.AddToScheme(scheme); err != nil { // and no such kind in the cluster
		tb.Fatal(err)
	}
	informers, err := cache.New(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}},
		cache.Options{Scheme: scheme, Mapper: mapper, HTTPClient: server.Client()})
	if err != nil {
		tb.Fatal(err)
	}
	w := &world.World{Cache: informers, Live: f, Index: snapshots.NewIndex(informers), Clock: clock.RealClock{}}
	if err := w.Watch(informers); err != nil {
		tb.Fatal(err)
	}
	go func() {
		if err := informers.Start(tb.Context()); err != nil {
			tb.Error(err)
		}
	}()
	ctx, stop := context.WithTimeout(tb.Context(), time.Minute)
	defer stop()
	if !informers.WaitForCacheSync(ctx) {
		tb.Fatal("the informers do not sync: does the server know all kinds that the world watches?")
	}
	return w
}
