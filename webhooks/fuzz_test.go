package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/policyschedule"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/snapshot"
	"github.com/holdfast-dev/holdfast/webhooks/snapshotschedule"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// The fuzz targets ask each judge about random and hostile objects. None may
// panic, each answers in the API server's words or with an HTTP error, and none
// lets through what the rule functions, called on the decoded object alone, deny.

func ptr[T any](v T) *T { return &v }

// now is the time at which the targets judge.
var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fixture is a small cluster in memory: what the judges read.
type fixture struct {
	client.Reader

	policy     *v1alpha1.StoragePolicy
	copying    *v1alpha1.StoragePolicy // asks for a schedule of claims with a label
	namespaces map[string]map[string]string
	classes    []storagev1.StorageClass
	attributes []storagev1.VolumeAttributesClass
	claims     []corev1.PersistentVolumeClaim
	sets       []appsv1.StatefulSet
	schedules  []v1alpha1.SnapshotSchedule
	snapshots  []snapshotv1.VolumeSnapshot
	ofCopies   []snapshotv1.VolumeSnapshotClass
	indexes    map[string]client.IndexerFunc // of snapshots
}

// guarded is the namespace that the policies are about.
const guarded = "db"

// Labels of claims: those that a schedule must copy, and those that one does.
const toCopy, copied = "to-copy", "copied"

// sizeDeclared is the most that a set may declare of its claims.
var sizeDeclared = resource.MustParse("2Ti")

func newFixture() *fixture {
	data := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: guarded, Name: "data-pg-0", CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))}}
	data.Spec.VolumeName, data.Spec.StorageClassName = "pv-0", ptr("good")
	data.Status.Phase = corev1.ClaimBound
	second := *data.DeepCopy()
	second.Name = "data-pg-1"
	set := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: guarded, Name: "pg"}}
	set.Spec.Replicas = ptr[int32](2)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}}
	set.Annotations = map[string]string{v1alpha1.AnnotationSize: "data=2Ti"} // twice what guardrails let a claim have
	daily := v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: guarded, Name: "daily"}}
	daily.Spec.Schedule, daily.Spec.Target.ClaimSelector = "@daily", &metav1.LabelSelector{MatchLabels: map[string]string{copied: "yes"}}
	return &fixture{
		copying: &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "copying", UID: "2", Generation: 1}, Spec: v1alpha1.StoragePolicySpec{
			Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}, ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{toCopy: "yes"}}},
			Snapshots: &v1alpha1.PolicySnapshots{Required: v1alpha1.Deny},
		}},
		schedules: []v1alpha1.SnapshotSchedule{daily},
		attributes: []storagev1.VolumeAttributesClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "silver"}, DriverName: "ebs.csi.aws.com", Parameters: map[string]string{"iops": "16001"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "ebs.csi.aws.com", Parameters: map[string]string{"iops": "4000"}},
		},
		policy: &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "fuzzed", UID: "1", Generation: 1}, Spec: v1alpha1.StoragePolicySpec{
			Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}},
			Defaults:  &v1alpha1.PolicyDefaults{StorageClassName: "good"},
			Expansion: &v1alpha1.PolicyExpansion{MaxSize: sizeDeclared},
			Guardrails: &v1alpha1.Guardrails{
				StorageClass: &v1alpha1.StorageClassRules{
					Allowed: []string{"good", "bad", "flat"}, InTreeProvisioners: v1alpha1.Forbidden, Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}},
					VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer, AllowVolumeExpansion: v1alpha1.Required, ReclaimPolicy: corev1.PersistentVolumeReclaimRetain, MaxIOPS: 16000,
				},
				AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{"silver"}},
				SnapshotClass:   &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"},
				Claim: &v1alpha1.ClaimRules{
					MinSize: ptr(resource.MustParse("1Gi")), MaxSize: ptr(resource.MustParse("1Ti")), MaxGrowthPercent: 100,
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem},
				},
				StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, WhenScaled: v1alpha1.RetainClaims, MinTerminationGracePeriodSeconds: 30, PodDisruptionBudget: v1alpha1.Required},
				Deletion:    &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot},
				ScaleDown:   &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 3600},
			},
		}},
		namespaces: map[string]map[string]string{guarded: {"tier": "db"}, "web": {"tier": "web"}, "kube-system": {"tier": "db"}},
		classes: []storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "good"}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"encrypted": "true", "iopsPerGB": "500"}, ReclaimPolicy: ptr(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: ptr(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: ptr(true)},
			{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Provisioner: "ebs.csi.aws.com"},
			{ObjectMeta: metav1.ObjectMeta{Name: "flat"}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"encrypted": "true"}, ReclaimPolicy: ptr(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: ptr(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: ptr(true)},
		},
		claims: []corev1.PersistentVolumeClaim{data, second}, sets: []appsv1.StatefulSet{set},
		ofCopies: []snapshotv1.VolumeSnapshotClass{{ObjectMeta: metav1.ObjectMeta{Name: "deletes"}, Driver: "ebs.csi.aws.com", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}},
	}
}

func find[T any, P interface {
	*T
	client.Object
}](all []T, key client.ObjectKey, to P) error {
	for i := range all {
		if o := P(&all[i]); client.ObjectKeyFromObject(o) == key {
			*to = all[i]
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// Get reads one object.
func (f *fixture) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata: // the one kind that is read so
		if labels, ok := f.namespaces[key.Name]; ok {
			o.Name, o.Labels = key.Name, labels
			return nil
		}
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	case *storagev1.StorageClass:
		return find(f.classes, key, o)
	case *corev1.PersistentVolumeClaim:
		return find(f.claims, key, o)
	case *appsv1.StatefulSet:
		return find(f.sets, key, o)
	case *snapshotv1.VolumeSnapshotClass:
		return find(f.ofCopies, key, o)
	case *storagev1.VolumeAttributesClass:
		return find(f.attributes, key, o)
	case *groupv1.VolumeGroupSnapshot, *groupv1.VolumeGroupSnapshotClass, *corev1.PersistentVolume:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return fmt.Errorf("%s %T", unknown, o)
}

// List reads all of a kind.
func (f *fixture) List(_ context.Context, list client.ObjectList, o ...client.ListOption) error {
	of := client.ListOptions{}
	of.ApplyOptions(o)
	switch list := list.(type) {
	case *v1alpha1.StoragePolicyList:
		list.Items = []v1alpha1.StoragePolicy{*f.policy, *f.copying}
	case *storagev1.StorageClassList:
		list.Items = f.classes
	case *corev1.PersistentVolumeClaimList:
		for _, c := range f.claims {
			if c.Namespace == of.Namespace {
				list.Items = append(list.Items, c)
			}
		}
	case *appsv1.StatefulSetList:
		if of.Namespace == guarded {
			list.Items = f.sets
		}
	case *v1alpha1.SnapshotScheduleList:
		if of.Namespace == guarded {
			list.Items = f.schedules
		}
	case *snapshotv1.VolumeSnapshotList:
		for i := range f.snapshots {
			by := of.FieldSelector.Requirements()[0]
			if s := &f.snapshots[i]; slices.Contains(f.indexes[by.Field](s), by.Value) {
				list.Items = append(list.Items, *s)
			}
		}
	case *snapshotv1.VolumeSnapshotClassList:
		list.Items = f.ofCopies
	case *policyv1.PodDisruptionBudgetList:
	default:
		return fmt.Errorf("%s %T", unknown, list)
	}
	return nil
}

// unknown begins what is told of a kind that the fixture lacks. A judge that
// asks for one answers an error, by which nothing passes and nothing is shown.
const unknown = "the fixture does not know"

// IndexField keeps the indexes of snapshots.
func (f *fixture) IndexField(_ context.Context, _ client.Object, field string, index client.IndexerFunc) error {
	if f.indexes == nil {
		f.indexes = map[string]client.IndexerFunc{}
	}
	f.indexes[field] = index
	return nil
}

// nobody may do what is asked of it: each SubjectAccessReview answers no.
type nobody struct{ client.Writer }

func (nobody) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// asked is a question as a fuzz target has it.
type asked struct {
	op             admissionv1.Operation
	namespace, sub string
	name           string
	now, old       []byte // JSON, or what claims to be
}

// judged asks a judge; allowed is false where it answers an error.
func (f *fixture) judged(t *testing.T, path string, q asked) (allowed bool, status int, body []byte) {
	t.Helper()
	text := func(s string) string {
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(quoted)
	}
	// The objects go in as they are, so that what is no JSON makes the whole
	// body none.
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":` + text(string(q.op)) + `,"namespace":` + text(q.namespace) +
		`,"name":` + text(q.name) + `,"subResource":` + text(q.sub)
	if len(q.now) > 0 {
		review += `,"object":` + string(q.now)
	}
	if len(q.old) > 0 {
		review += `,"oldObject":` + string(q.old)
	}
	return f.post(t, path, []byte(review+`}}`))
}

// post sends a body to a judge, and holds that the answer has a right form.
func (f *fixture) post(t *testing.T, path string, body []byte) (allowed bool, status int, answer []byte) {
	t.Helper()
	w := &world.World{Cache: f, Live: f, Index: snapshots.NewIndex(f), Clock: clocktesting.NewFakePassiveClock(now)}
	handler := handlers(logr.Discard(), w, world.Authorizer{Client: nobody{}}, nil, true)[path]
	res := httptest.NewRecorder()
	handler.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
	answer = res.Body.Bytes()
	if strings.Contains(string(answer), unknown) {
		t.Fatalf("%s asks for more than there is: %s", path, answer)
	}
	if res.Code != http.StatusOK {
		return false, res.Code, answer
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &got); err != nil || got.Response == nil || got.Request != nil {
		t.Fatalf("answered %s: %v", answer, err)
	}
	if !got.Response.Allowed && (got.Response.Result == nil || got.Response.Result.Message == "") {
		t.Fatalf("refused without a reason: %s", answer)
	}
	if got.Response.Patch != nil && !json.Valid(got.Response.Patch) {
		t.Fatalf("the patch is %s", got.Response.Patch)
	}
	return got.Response.Allowed, res.Code, answer
}

// read decodes an object as a judge does; nil where there is none.
func read[T any](raw []byte) (*T, bool) {
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return nil, true
	}
	o := new(T)
	return o, json.Unmarshal(raw, o) == nil
}

// mustNotPass fails where a judge let through what rules deny.
func mustNotPass(t *testing.T, allowed bool, answer []byte, q asked, breaches []policy.Breach) {
	t.Helper()
	if allowed && len(breaches) > 0 {
		t.Fatalf("%s of %s (was %s) is let through though %+v; answered %s", q.op, q.now, q.old, breaches, answer)
	}
}

// fresh are the breaches that an object did not have before.
func fresh(before, after []policy.Breach) []policy.Breach {
	return slices.DeleteFunc(after, func(b policy.Breach) bool {
		return slices.ContainsFunc(before, func(o policy.Breach) bool { return o.Rule == b.Rule && o.Field == b.Field && o.Found == b.Found })
	})
}

// subject resolves the class of a claim by hand: the cluster has no default class.
func (f *fixture) subject(c *corev1.PersistentVolumeClaim, before *corev1.PersistentVolumeClaimSpec) claim.Subject {
	s := claim.Subject{Spec: c.Spec, Before: before}
	if name := world.ClassNameOf(c.Annotations, &c.Spec); name != nil {
		s.ClassName = *name
	}
	for i := range f.classes {
		if f.classes[i].Name == s.ClassName {
			s.Class = &f.classes[i]
		}
	}
	for i := range f.attributes {
		if name := c.Spec.VolumeAttributesClassName; name != nil && f.attributes[i].Name == *name {
			s.Attributes = &f.attributes[i]
		}
	}
	return s
}

var operationsFuzzed = []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "", "PATCH"}

// seeds gives a target hostile objects besides good ones of its own.
func seeds(f *testing.F, good ...string) {
	hostile := []string{
		``, `null`, `{}`, `[]`, `0`, `"x"`, `{`, `{"metadata":null,"spec":null,"status":null}`, `{"metadata":{"labels":{"a":null},"annotations":[]}}`,
		`{"spec":{"resources":{"requests":{"storage":"99999999999999999999999Ei"}}}}`, `{"spec":{"resources":{"requests":{"storage":-1}}}}`, `{"spec":{"resources":{"requests":{"storage":1e400}}}}`,
		`{"spec":{"replicas":2147483648}}`, `{"spec":{"replicas":2147483647,"ordinals":{"start":2147483647}}}`, `{"spec":{"replicas":-1}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"ein-größerer-Name-😀","annotations":{"holdfast.dev/override-deletion":" \u2003"}}}`,
		`{"a":` + strings.Repeat(`[`, 2000) + strings.Repeat(`]`, 2000) + `}`, `{"metadata":{"name":"` + strings.Repeat("x", 1<<12) + `"}}`, "{\"spec\":\"\xff\xfe\"}",
	}
	for op := range operationsFuzzed {
		for _, o := range append(hostile, good...) {
			f.Add(uint8(op), guarded, "data-pg-0", "", []byte(o), []byte(o))
			f.Add(uint8(op), guarded, "", "scale", []byte(o), []byte(nil))
			f.Add(uint8(op), "web", "pg", "status", []byte(nil), []byte(o))
		}
		for i := range good {
			f.Add(uint8(op), guarded, "pg", "", []byte(good[i]), []byte(good[(i+1)%len(good)]))
			f.Add(uint8(op), guarded, "pg", "scale", []byte(good[i]), []byte(good[(i+1)%len(good)]))
		}
	}
}

func question(op uint8, namespace, name, sub string, now, old []byte) asked {
	return asked{op: operationsFuzzed[int(op)%len(operationsFuzzed)], namespace: namespace, name: name, sub: sub, now: now, old: old}
}

// filledIn holds that a claim is given a class where it names none, and a size where
// that is more than it asks for and no more than a policy lets it have; that nothing
// else of it is changed, nothing of what is there already, and nothing elsewhere.
func filledIn(t *testing.T, x *fixture, q asked) {
	t.Helper()
	allowed, status, answer := x.judged(t, "/default/claims", q)
	if status != http.StatusOK {
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		t.Fatal(err)
	}
	if !allowed {
		t.Fatalf("what only fills in refuses %s: %s", q.now, answer)
	}
	if review.Response.Patch == nil {
		return
	}
	var patch []struct{ Op, Path, Value string }
	if err := json.Unmarshal(review.Response.Patch, &patch); err != nil {
		t.Fatalf("the patch is %s: %v", review.Response.Patch, err)
	}
	given, ok := read[corev1.PersistentVolumeClaim](q.now)
	if !ok || given == nil || q.op != admissionv1.Create || q.namespace != guarded {
		t.Fatalf("%s in %s of %s is changed: %s", q.op, q.namespace, q.now, review.Response.Patch)
	}
	for _, p := range patch {
		asks := given.Spec.Resources.Requests[corev1.ResourceStorage]
		size, err := resource.ParseQuantity(p.Value)
		switch {
		case p.Op == "add" && p.Path == "/spec/storageClassName" && p.Value == "good" && world.ClassNameOf(given.Annotations, &given.Spec) == nil:
		case p.Op == "replace" && p.Path == "/spec/resources/requests/storage" && err == nil && size.Cmp(asks) > 0 && size.Cmp(*x.policy.Spec.Guardrails.Claim.MaxSize) <= 0:
		default:
			t.Fatalf("%s is changed by %+v", q.now, p)
		}
	}
}

func FuzzClaims(f *testing.F) {
	seeds(f, `{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","resources":{"requests":{"storage":"20Gi"}}}}`,
		`{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteMany"],"storageClassName":"bad","volumeMode":"Block","resources":{"requests":{"storage":"2Ti"}}}}`,
		`{"metadata":{"name":"a","annotations":{"volume.beta.kubernetes.io/storage-class":"bad"}},"spec":{"volumeName":"pv","volumeAttributesClassName":"gold"},"status":{"phase":"Bound"}}`,
		`{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Pod","controller":true}]},"spec":{"volumeName":"pv"}}`,
		`{"metadata":{"name":"db-0-a","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"db-0","controller":true}]},"spec":{"volumeName":"pv"}}`,
		`{"metadata":{"name":"db-0-a"},"spec":{"volumeName":"pv"}}`,
		`{"metadata":{"name":"data-pg-2","labels":{"to-copy":"yes","copied":"yes"}},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"metadata":{"name":"data-pg-2","labels":{"app":"pg"}},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"flat","resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"metadata":{"name":"a","labels":{"to-copy":"yes"}},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"metadata":{"name":"a","labels":{"to-copy":"yes","copied":"yes"},"annotations":{"holdfast.dev/no-snapshots":"x"}},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"metadata":{"name":"a","annotations":{"holdfast.dev/override-deletion":"x"}},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"good","volumeAttributesClassName":"silver","resources":{"requests":{"storage":"1Gi"}}}}`)
	x := newFixture()
	// bare says whether a claim must be copied by a schedule, and is by none.
	bare := func(c *corev1.PersistentVolumeClaim) bool {
		_, out := c.Annotations[v1alpha1.AnnotationNoSnapshots]
		return c.Labels[toCopy] == "yes" && (out || c.Labels[copied] != "yes")
	}
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		filledIn(t, x, q)
		allowed, _, answer := x.judged(t, "/validate/claims", q)
		after, ok := read[corev1.PersistentVolumeClaim](now)
		before, was := read[corev1.PersistentVolumeClaim](old)
		if !ok || !was || namespace != guarded {
			return
		}
		g := x.policy.Spec.Guardrails
		if allowed && q.op != admissionv1.Delete && after != nil {
			if reason := after.Annotations[v1alpha1.AnnotationOverrideDeletion]; reason != "" && (before == nil || reason != before.Annotations[v1alpha1.AnnotationOverrideDeletion]) {
				t.Fatalf("somebody without the right writes an override: %s", now)
			}
			if bare(after) && (before == nil || before.Labels[toCopy] == "yes" && !bare(before)) {
				t.Fatalf("no schedule copies %s, which was %s", now, old)
			}
			if before != nil && before.Spec.VolumeName != "" && !claim.OfPod(before) && claim.OfPod(after) {
				t.Fatalf("somebody without the right makes a claim a Pod's: %s", now)
			}
		}
		switch {
		case q.op == admissionv1.Create && after != nil && before == nil:
			mustNotPass(t, allowed, answer, q, claim.Breaches(&policy.Policy{Guardrails: g}, x.subject(after, nil)))
		case q.op == admissionv1.Update && after != nil && before != nil:
			mustNotPass(t, allowed, answer, q, fresh(claim.Breaches(&policy.Policy{Guardrails: g}, x.subject(before, nil)), claim.Breaches(&policy.Policy{Guardrails: g}, x.subject(after, &before.Spec))))
		case q.op == admissionv1.Delete && before != nil && before.DeletionTimestamp == nil && !claim.OfPod(before) && !overridden(before):
			held := policy.Held{Bound: before.Spec.VolumeName != "" || before.Status.Phase == corev1.ClaimBound}
			mustNotPass(t, allowed, answer, q, policy.Deletion(g.Deletion, held, x.at()))
		}
	})
}

// at is the time of judging.
func (f *fixture) at() time.Time { return now }

// overridden says whether an object carries a reason to let it go.
func overridden(o client.Object) bool {
	return strings.TrimSpace(o.GetAnnotations()[v1alpha1.AnnotationOverrideDeletion]) != ""
}

func FuzzStatefulSets(f *testing.F) {
	template := `"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"storageClassName":"good","resources":{"requests":{"storage":"20Gi"}}}}]`
	seeds(f, `{"metadata":{"name":"pg"},"spec":{"replicas":2,`+template+`}}`, `{"metadata":{"name":"pg"},"spec":{"replicas":1,`+template+`,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Delete"}}}`,
		`{"metadata":{"name":"pg"},"spec":{"replicas":0,"ordinals":{"start":1},"template":{"spec":{"terminationGracePeriodSeconds":1}},`+template+`}}`, `{"metadata":{"name":"pg"},"spec":{"replicas":3}}`,
		`{"metadata":{"name":"pg","annotations":{"holdfast.dev/size":"data=2049Gi"}},"spec":{"replicas":2,`+template+`}}`, `{"metadata":{"name":"pg","annotations":{"holdfast.dev/size":"data=1Ti"}},"spec":{"replicas":2,`+template+`}}`,
		`{"metadata":{"name":"pg","annotations":{"holdfast.dev/size":"wal=5Gi,data"}},"spec":{"replicas":2,`+template+`}}`)
	x := newFixture()
	// hard is what is denied of a set: the budget only ever warns.
	hard := func(s *appsv1.StatefulSet) []policy.Breach {
		return slices.DeleteFunc(statefulset.Breaches(x.policy.Spec.Guardrails.StatefulSet, statefulset.Subject{Set: s}), func(b policy.Breach) bool { return b.Rule == v1alpha1.RuleSetDisruptionBudget })
	}
	// losing is what is denied of the claims that lose their Pod: neither has a snapshot.
	losing := func(name string, before, after *appsv1.StatefulSet) (all []policy.Breach) {
		for _, ordinal := range []int32{0, 1} {
			if name == "pg" && statefulset.Losing(before, after)(ordinal) &&
				slices.ContainsFunc(after.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == "data" }) {
				all = append(all, policy.ScaleDown(x.policy.Spec.Guardrails.ScaleDown, policy.Held{Bound: true}, x.at())...)
			}
		}
		return all
	}
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/statefulsets", q)
		if namespace != guarded {
			return
		}
		if sub == "scale" {
			after, ok := read[autoscalingv1.Scale](now)
			before, was := read[autoscalingv1.Scale](old)
			if ok && was && after != nil && before != nil {
				from, to := x.sets[0].DeepCopy(), x.sets[0].DeepCopy()
				from.Spec.Replicas, to.Spec.Replicas = &before.Spec.Replicas, &after.Spec.Replicas
				mustNotPass(t, allowed, answer, q, losing(name, from, to))
			}
			return
		}
		after, ok := read[appsv1.StatefulSet](now)
		before, was := read[appsv1.StatefulSet](old)
		if q.op == admissionv1.Delete && was && before != nil && before.DeletionTimestamp == nil {
			if doomed := statefulset.Doomed(before, x.claims); allowed && len(doomed) > 0 {
				t.Fatalf("%d protected claims go with set %s", len(doomed), old)
			}
		}
		if !ok || !was || after == nil {
			return
		}
		if allowed && q.op != admissionv1.Delete && (before == nil || before.Annotations[v1alpha1.AnnotationSize] != after.Annotations[v1alpha1.AnnotationSize]) {
			sizes, wrong := statefulset.Declared(after)
			for template, size := range sizes {
				if size.Cmp(sizeDeclared) > 0 {
					t.Fatalf("%s of %s are declared for %s", size.String(), sizeDeclared.String(), template)
				}
			}
			if len(wrong) > 0 {
				t.Fatalf("sizes that cannot be read are declared: %s: %v", now, wrong)
			}
		}
		switch {
		case q.op == admissionv1.Create && before == nil:
			mustNotPass(t, allowed, answer, q, hard(after))
		case q.op == admissionv1.Update && before != nil:
			mustNotPass(t, allowed, answer, q, append(fresh(hard(before), hard(after)), losing(after.Name, before, after)...))
		}
	})
}

func FuzzStorageClasses(f *testing.F) {
	seeds(f, `{"metadata":{"name":"a"},"provisioner":"ebs.csi.aws.com","parameters":{"encrypted":"true","iops":"99999999999999999999"},"reclaimPolicy":"Retain"}`,
		`{"metadata":{"name":"a"},"provisioner":"kubernetes.io/aws-ebs","allowVolumeExpansion":true,"volumeBindingMode":"WaitForFirstConsumer"}`, `{"provisioner":"efs.csi.aws.com"}`)
	x := newFixture()
	x.policy.Spec.Match = v1alpha1.PolicyMatch{} // one with a namespaceSelector does not judge classes
	rules := *x.policy.Spec.Guardrails.StorageClass
	rules.Allowed = nil
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/storageclasses", q)
		after, ok := read[storagev1.StorageClass](now)
		before, was := read[storagev1.StorageClass](old)
		if !ok || !was || after == nil {
			return
		}
		breaches := storageclass.Breaches(&rules, after, 0)
		if before != nil {
			breaches = fresh(storageclass.Breaches(&rules, before, 0), breaches)
		}
		mustNotPass(t, allowed, answer, q, breaches)
	})
}

func FuzzSnapshots(f *testing.F) {
	seeds(f, `{"metadata":{"name":"a"},"spec":{"volumeSnapshotClassName":"deletes","source":{"persistentVolumeClaimName":"data-pg-0"}}}`, `{"spec":{"source":{"volumeSnapshotContentName":"c"}}}`,
		`{"metadata":{"name":"a","annotations":{"holdfast.dev/override-deletion":"x"}},"spec":{"source":{"persistentVolumeClaimName":"data-pg-0"}},"status":{"readyToUse":true,"creationTime":"2026-12-01T11:00:00Z"}}`)
	x := newFixture()
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/volumesnapshots", q)
		after, ok := read[snapshotv1.VolumeSnapshot](now)
		before, was := read[snapshotv1.VolumeSnapshot](old)
		ofOurs := func(s *snapshotv1.VolumeSnapshot) bool {
			of := s.Spec.Source.PersistentVolumeClaimName
			return of != nil && (*of == "data-pg-0" || *of == "data-pg-1")
		}
		named := func(s *snapshotv1.VolumeSnapshot, class string) bool {
			return s.Spec.VolumeSnapshotClassName != nil && *s.Spec.VolumeSnapshotClassName == class
		}
		if ok && was && allowed && namespace == guarded && q.op != admissionv1.Delete && after != nil && ofOurs(after) {
			if reason := after.Annotations[v1alpha1.AnnotationOverrideDeletion]; reason != "" && (before == nil || reason != before.Annotations[v1alpha1.AnnotationOverrideDeletion]) {
				t.Fatalf("somebody without the right writes an override: %s", now)
			}
		}
		switch class := &x.ofCopies[0]; {
		case !ok || !was || namespace != guarded:
		case q.op == admissionv1.Create && after != nil && before == nil && ofOurs(after):
			if named(after, class.Name) {
				mustNotPass(t, allowed, answer, q, snapshot.Class(x.policy.Spec.Guardrails.SnapshotClass, class))
			}
		case q.op == admissionv1.Update && after != nil && before != nil && ofOurs(after):
			if named(after, class.Name) && !named(before, class.Name) {
				mustNotPass(t, allowed, answer, q, snapshot.Class(x.policy.Spec.Guardrails.SnapshotClass, class))
			}
		case q.op == admissionv1.Delete && before != nil && ofOurs(before) && before.DeletionTimestamp == nil:
			s := before.Status // it is the only one that the claim has
			ready := s != nil && s.ReadyToUse != nil && *s.ReadyToUse && s.CreationTime != nil
			if allowed && ready && !overridden(before) {
				t.Fatalf("the newest ready snapshot goes: %s", old)
			}
		}
	})
}

func FuzzGroups(f *testing.F) {
	seeds(f, `{"metadata":{"name":"group"}}`, `{"metadata":{"name":"group","annotations":{"holdfast.dev/override-deletion":"x"}}}`,
		`{"metadata":{"name":"group","deletionTimestamp":"2026-12-01T11:00:00Z"}}`, `{"metadata":{"name":"other"}}`)
	x := newFixture()
	member := snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: guarded, Name: "member"}}
	member.Spec.Source.PersistentVolumeClaimName = ptr("data-pg-0")
	member.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr(true), CreationTime: ptr(metav1.NewTime(now)), VolumeGroupSnapshotName: ptr("group")}
	x.snapshots = []snapshotv1.VolumeSnapshot{member}
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, _ := x.judged(t, "/validate/volumegroupsnapshots", q)
		after, ok := read[metav1.PartialObjectMetadata](now)
		before, was := read[metav1.PartialObjectMetadata](old)
		switch {
		case !ok || !was || !allowed || namespace != guarded:
		case q.op == admissionv1.Delete && before != nil && before.Name == "group" && before.DeletionTimestamp == nil && !overridden(before):
			t.Fatalf("the group of the newest ready snapshot goes: %s", old)
		case q.op != admissionv1.Delete && after != nil && after.Annotations[v1alpha1.AnnotationOverrideDeletion] != "" &&
			(before == nil || after.Annotations[v1alpha1.AnnotationOverrideDeletion] != before.Annotations[v1alpha1.AnnotationOverrideDeletion]):
			t.Fatalf("who may not override writes an override on a group: %s", now)
		}
	})
}

func FuzzNamespaces(f *testing.F) {
	seeds(f, `{"metadata":{"name":"db","labels":{"tier":"db","holdfast.dev/enforce":"strict"}}}`, `{"metadata":{"name":"db","labels":{"tier":"db"},"annotations":{"holdfast.dev/override-deletion":"x"}}}`, `{"metadata":{"name":"web"}}`)
	x := newFixture()
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/namespaces", q)
		after, ok := read[corev1.Namespace](now)
		before, was := read[corev1.Namespace](old)
		if !ok || !was {
			return
		}
		ours := func(n *corev1.Namespace) bool {
			return n.Labels["tier"] == "db" && !slices.Contains(v1alpha1.SystemNamespaces(), n.Name)
		}
		if allowed && q.op != admissionv1.Delete && after != nil && after.DeletionTimestamp == nil {
			if reason := after.Annotations[v1alpha1.AnnotationOverrideDeletion]; ours(after) && reason != "" && (before == nil || reason != before.Annotations[v1alpha1.AnnotationOverrideDeletion]) {
				t.Fatalf("somebody without the right writes an override: %s", now)
			}
			if before != nil && after.Name == guarded && before.Labels["tier"] == "db" && !ours(after) {
				t.Fatalf("somebody without the right takes protected claims from the policy: %s, was %s", now, old)
			}
		}
		if before == nil {
			return
		}
		strict := func(n *corev1.Namespace) bool { return n.Labels[v1alpha1.LabelEnforce] == v1alpha1.EnforceStrict }
		switch {
		case q.op == admissionv1.Delete && before.Name == guarded && before.DeletionTimestamp == nil && !overridden(before):
			mustNotPass(t, allowed, answer, q, policy.Deletion(x.policy.Spec.Guardrails.Deletion, policy.Held{Bound: true}, x.at()))
		case q.op == admissionv1.Update && after != nil && after.Name != "kube-system" && before.Labels["tier"] == "db" && strict(before) && !strict(after) && !slices.Contains(v1alpha1.SystemNamespaces(), after.Name):
			if allowed {
				t.Fatalf("somebody without the right takes the strict label off: %s", now)
			}
		}
	})
}

func FuzzPolicies(f *testing.F) {
	seeds(f, `{"metadata":{"name":"a"},"spec":{"match":{"claimSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}},"guardrails":{"claim":{"maxSize":"1e9999999"}}}}`,
		`{"spec":{"guardrails":{"claim":{"maxSize":"1e1.5"}}}}`, `{"spec":{"exemptions":[{"until":"0000-01-01T00:00:00Z"},{"until":"yesterday"}],"priority":99999999999}}`, `{"spec":{"match":{"namespaceSelector":{"matchLabels":{"/":"\u0000"}}}}}`,
		`{"metadata":{"name":"a"},"spec":{"snapshots":{"schedules":[{"name":"a","spec":{"schedule":"0 0 30 2 *"}},{"name":"b","spec":{"schedule":"TZ=UTC @daily","timeZone":"Mars"}}]}}}`,
		`{"metadata":{"name":"a"},"spec":{"match":{"claimSelector":{"matchLabels":{"a":"b"}}},"snapshots":{"schedules":[{"name":"a","spec":{"schedule":"@daily","target":{"claimSelector":{"matchLabels":{"a":"c"}}}}}]}}}`)
	x := newFixture()
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/storagepolicies", q)
		p, ok := read[v1alpha1.StoragePolicy](now)
		type part struct {
			Metadata metav1.ObjectMeta
			Spec     any
		}
		after, isObject := read[part](now)
		before, wasObject := read[part](old)
		stored := isObject && wasObject && after != nil && before != nil && (after.Metadata.DeletionTimestamp != nil || reflect.DeepEqual(after.Spec, before.Spec))
		brings := q.op == admissionv1.Create || q.op == admissionv1.Update && !stored
		if !ok && allowed && brings {
			t.Fatalf("a policy that cannot be read is let in: %s", now)
		}
		if ok && p != nil && brings {
			ready, errs := policy.Compile(p)
			if ready != nil {
				errs = policyschedule.Refusals(ready)
			}
			if allowed && len(errs) > 0 {
				t.Fatalf("a policy that cannot be applied is let in: %s: %v; answered %s", now, errs, answer)
			}
		}
	})
}

func FuzzSchedules(f *testing.F) {
	seeds(f, `{"metadata":{"name":"a"},"spec":{"schedule":"0 * * * *"}}`, `{"metadata":{"name":"a"},"spec":{"schedule":"TZ= * * * * *"}}`, `{"spec":{"schedule":"0 0 30 2 *","timeZone":"Local"}}`,
		`{"spec":{"schedule":"@every 0s","jitterSeconds":-1}}`, `{"spec":{"schedule":"* * 29 2 *","timeZone":"Pacific/Apia","jitterSeconds":2147483647}}`, `{"spec":{"schedule":"0-59/59 * * * *","timeZone":"../../etc/passwd"}}`,
		`{"spec":{"schedule":"30 2 * * *","timeZone":"Mars","target":{"claimSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}},"template":{"labels":{"holdfast.dev/slot":"x","\u0000":""}}}}`,
		`{"spec":{"schedule":"@daily","hooks":{"before":[{"command":["sync"]}]}}}`, `{"spec":{"schedule":"@daily","target":{"statefulSetName":"pg"},"hooks":{"before":[{"command":["sync"]}]}}}`)
	x := newFixture()
	f.Fuzz(func(t *testing.T, op uint8, namespace, name, sub string, now, old []byte) {
		q := question(op, namespace, name, sub, now, old)
		allowed, _, answer := x.judged(t, "/validate/snapshotschedules", q)
		s, ok := read[v1alpha1.SnapshotSchedule](now)
		if !ok && allowed && q.op != admissionv1.Delete {
			t.Fatalf("a schedule that cannot be read is let in: %s", now)
		}
		if ok && s != nil && s.DeletionTimestamp == nil && q.op == admissionv1.Create {
			if _, errs := schedule.Compile(&s.Spec); allowed && len(errs) > 0 {
				t.Fatalf("a schedule that cannot be acted on is let in: %s: %v; answered %s", now, errs, answer)
			}
		}
		was, wasRead := read[v1alpha1.SnapshotSchedule](old)
		if allowed && ok && wasRead && s != nil && s.DeletionTimestamp == nil && q.op != admissionv1.Delete {
			var stored *v1alpha1.SnapshotScheduleSpec
			if q.op == admissionv1.Update && was != nil {
				stored = &was.Spec
			}
			if errs := snapshotschedule.Refusals(&s.Spec, stored); len(errs) > 0 {
				t.Fatalf("what cannot be acted on is let in: %s, was %s: %v", now, old, errs)
			}
			if snapshotschedule.BringsHooks(&s.Spec, stored) {
				t.Fatalf("somebody who may run nothing in Pods brings hooks: %s, was %s", now, old)
			}
		}
		if ok && s != nil && wasRead && was != nil && q.op == admissionv1.Update && reflect.DeepEqual(s.Spec, was.Spec) && !allowed {
			t.Fatalf("an update that changes nothing of the spec is refused: %s", answer)
		}
	})
}

// FuzzBodies sends what need not be a review at all to every judge.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `{"request":null}`, `{"request":{}}`, `{"request":{"operation":"DELETE"}}`, `{"request":{"operation":"CREATE","object":{"spec":null}}}`, `{"request":{"oldObject":[]}}`,
		`{"request":{"operation":1}}`, `{"response":{"allowed":true}}`, `{"request":{"dryRun":true,"userInfo":{"extra":{"a":null}},"operation":"UPDATE","object":{},"oldObject":{}}}`, strings.Repeat("[", 20000),
	} {
		f.Add([]byte(body))
	}
	x := newFixture()
	paths := slices.Sorted(func(yield func(string) bool) {
		for path := range handlers(logr.Discard(), &world.World{}, world.Authorizer{}, nil, true) {
			if !yield(path) {
				return
			}
		}
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range paths {
			if _, status, answer := x.post(t, path, body); status != http.StatusOK && status != http.StatusBadRequest && status != http.StatusInternalServerError {
				t.Fatalf("%s: answered %d: %s", path, status, answer)
			}
		}
	})
}
