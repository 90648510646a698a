package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/bench"
)

// steady is what a steady load saw.
type steady struct {
	rate, policies  int
	took            time.Duration
	answered        []time.Duration // from the moment at which the request was due
	denied, failed  int
	sample          string // one of the failures
	reads, requests float64
	processor       float64 // seconds that the manager worked
	byKind          map[string]int
}

// steadyLoad asks the webhook at a rate that does not wait for answers (an open
// loop), so that what is slow is seen as slow.
func (s *server) steadyLoad(ctx context.Context, o options) (*steady, error) {
	if err := s.setPolicies(ctx, o.judges); err != nil {
		return nil, err
	}
	if err := s.Client.Create(ctx, newSet("pg", 3)); err != nil {
		return nil, fmt.Errorf("make a StatefulSet: %w", err)
	}
	n := int(o.duration.Seconds() * float64(o.rate))
	reviews := make([]review, n)
	for i := range reviews {
		reviews[i] = reviewOf(i)
	}
	for _, r := range reviews[:min(n, len(mix))] { // connections and informers of a server that has run for a while
		if _, err := s.ask(ctx, r); err != nil {
			return nil, err
		}
	}
	before, err := s.manager.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	l := &steady{rate: o.rate, policies: o.judges, byKind: map[string]int{}}
	l.run(ctx, reviews, func(r review) (bool, error) { return s.ask(ctx, r) })
	after, err := s.manager.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	l.processor = after.Processor() - before.Processor()
	l.reads, l.requests = after.Reads()-before.Reads(), after.Requests()-before.Requests()
	return l, ctx.Err()
}

// run sends each review when it is due.
func (l *steady) run(ctx context.Context, reviews []review, ask func(review) (allowed bool, err error)) {
	var mu sync.Mutex
	var running sync.WaitGroup
	start, gap := time.Now(), time.Second/time.Duration(l.rate)
	for i, r := range reviews {
		due := start.Add(time.Duration(i) * gap)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			allowed, err := ask(r)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			l.byKind[r.kind]++
			switch {
			case err != nil:
				l.failed++
				l.sample = err.Error()
			case !allowed:
				l.denied++
			}
			l.answered = append(l.answered, took)
		})
	}
	running.Wait()
	l.took = time.Since(start)
}

// review is one question.
type review struct {
	kind, path string
	body       []byte
}

// mix is what a hundred requests are, by kind and how many.
var mix = func() (all []string) {
	for _, share := range []struct {
		kind string
		of   int
	}{
		{"claim created: default", 27}, {"claim created", 35}, {"claim relabelled", 12}, {"claim grown", 6}, {"claim deleted", 4},
		{"claim of a bad class", 2}, {"claim of a missing class", 2}, {"set created", 5}, {"set scaled down", 4}, {"namespace annotated", 2}, {"class created", 1},
	} {
		for range share.of {
			all = append(all, share.kind)
		}
	}
	return all
}()

// reviewOf is the i-th question. 37 and 100 have no factor in common, so that
// the kinds take turns.
func reviewOf(i int) review {
	kind := mix[i*37%len(mix)]
	name, team := fmt.Sprintf("data-new-%d", i), namespaceOf(2*(i%(namespaces/2))) // an even one: of databases
	created := bench.Claim(team, name, goodClass)
	there := bench.Claim(team, fmt.Sprintf("data-postgresql-%d", i%3), goodClass)
	there.Spec.VolumeName, there.Status.Phase = "pvc-"+name, corev1.ClaimBound
	changed := there.DeepCopy()
	claims := metav1.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}
	switch kind {
	case "claim created: default":
		created.Spec.StorageClassName = nil
		return reviewed(kind, "/default/claims", admissionv1.Create, claims, "", created, nil)
	case "claim created":
		return reviewed(kind, "/validate/claims", admissionv1.Create, claims, "", created, nil)
	case "claim of a bad class":
		created.Spec.StorageClassName = ptr(badClass)
		return reviewed(kind, "/validate/claims", admissionv1.Create, claims, "", created, nil)
	case "claim of a missing class":
		created.Spec.StorageClassName = ptr(newClass)
		return reviewed(kind, "/validate/claims", admissionv1.Create, claims, "", created, nil)
	case "claim relabelled":
		changed.Labels["release"] = name
		return reviewed(kind, "/validate/claims", admissionv1.Update, claims, "", changed, there)
	case "claim grown":
		changed.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("30Gi")
		return reviewed(kind, "/validate/claims", admissionv1.Update, claims, "", changed, there)
	case "claim deleted":
		return reviewed(kind, "/validate/claims", admissionv1.Delete, claims, "", nil, there)
	case "set created":
		set := newSet(name, 3)
		return reviewed(kind, "/validate/statefulsets", admissionv1.Create, metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, "", set, nil)
	case "set scaled down":
		scale := func(n int32) *autoscalingv1.Scale {
			return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: loaded, Name: "pg"}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}
		}
		return reviewed(kind, "/validate/statefulsets", admissionv1.Update, metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, "scale", scale(2), scale(3))
	case "namespace annotated":
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{"tier": "db"}}}
		annotated := n.DeepCopy()
		annotated.Annotations = map[string]string{"note": name}
		return reviewed(kind, "/validate/namespaces", admissionv1.Update, metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", annotated, n)
	default:
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"type": "gp3"}}
		return reviewed(kind, "/validate/storageclasses", admissionv1.Create, metav1.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}, "", class, nil)
	}
}

func newSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app.kubernetes.io/name": name}
	template := bench.Claim("", "data", goodClass)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: loaded, Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "postgresql", Image: "postgresql:16", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/postgresql"}}}},
			}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*template},
		},
	}
}

// reviewed is a question in the API server's words.
func reviewed(kind, path string, op admissionv1.Operation, gvk metav1.GroupVersionKind, sub string, now, old client.Object) review {
	of := now
	if of == nil || now == client.Object(nil) {
		of = old
	}
	raw := func(o client.Object) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // our own objects
		}
		return runtime.RawExtension{Raw: text}
	}
	req := &admissionv1.AdmissionRequest{
		UID: types.UID(kind), Kind: gvk, SubResource: sub, Name: of.GetName(), Namespace: of.GetNamespace(), Operation: op,
		UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:argocd:argocd-application-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
		Object:   raw(now), OldObject: raw(old),
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		panic(err)
	}
	return review{kind: kind, path: path, body: body}
}

// ask asks the webhook as the API server does: over TLS, by connections that stay.
func (s *server) ask(ctx context.Context, r review) (allowed bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.manager.WebhookURL(r.path), bytes.NewReader(r.body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.manager.Webhook.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return false, err
	}
	var answer admissionv1.AdmissionReview
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s: %s", r.kind, res.Status, body)
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Response == nil {
		return false, fmt.Errorf("%s: the answer is %s: %w", r.kind, body, err)
	}
	return answer.Response.Allowed, nil
}
