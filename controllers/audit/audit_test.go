//go:build envtest

package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestAudit scans what was there before the policies.
func TestAudit(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testenv.APIServer(t)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	claim := func(name, size, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			},
		}
	}
	policy := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: guarded(v1alpha1.Guardrails{
		Overrides:    []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleClaimMaxSize, Action: v1alpha1.Audit}},
		StorageClass: &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}},
		Claim:        &v1alpha1.ClaimRules{MaxSize: size("4Gi")},
	})}
	labels := map[string]string{"app": "pg"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pg"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim("data", "1Gi", "bad")},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	for _, o := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "good"}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"encrypted": "true"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Provisioner: "ebs.csi.aws.com"},
		claim("fits", "1Gi", "good"), claim("large", "5Gi", "good"), claim("plain", "1Gi", "bad"), set, policy,
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(now)
	a := New(c, &world.World{Cache: c, Live: c, Index: snapshots.NewIndex(noSnapshots{}), Clock: clk}, clk, prometheus.NewRegistry())
	if err := a.Audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.StoragePolicy{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(policy), got); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, v := range got.Status.Violations {
		lines = append(lines, v.Kind+" "+v.Name+" "+string(v.Rule)+" "+string(v.Action))
	}
	want := []string{
		"PersistentVolumeClaim large claim.maxSize Audit", "PersistentVolumeClaim plain storageClass.parameters Deny", "StatefulSet pg storageClass.parameters Warn", "StorageClass bad storageClass.parameters Deny",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("violations are %q, want %q", lines, want)
	}
	if s := got.Status; s.MatchedClaims != 3 || s.ViolationCount != 4 || len(s.CompliantStorageClasses) != 1 || s.CompliantStorageClasses[0] != "good" || s.ObservedGeneration != got.Generation {
		t.Errorf("status is %+v", s)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("conditions are %+v", got.Status.Conditions)
	}
	if n := testutil.CollectAndCount(a.violations); n != 3 {
		t.Errorf("%d series of holdfast_policy_violations, want one for each rule and action: 3", n)
	}

	printed := columns(t, cfg, got.Name)
	for column, want := range map[string]string{"Ready": "True", "Action": "Deny", "Claims": "3", "Violations": "4", "Priority": "0", "Reason": "Scanned", "Scanned": "", "Age": ""} {
		if is := printed[column]; is == "" || is == "<nil>" || want != "" && is != want {
			t.Errorf("kubectl prints %q under %s, want %q; of %v", is, column, want, printed)
		}
	}

	version := got.ResourceVersion
	clk.Step(Every)
	if err := a.Audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(policy), got); err != nil {
		t.Fatal(err)
	}
	if got.ResourceVersion != version {
		t.Error("a scan that found the same wrote the status again")
	}
}

// TestAuditOfMany: 300 policies that no claim can all keep, more classes than a
// status lists, and a rule whose text is as long as it can be: each status is one
// that a real API server takes.
func TestAuditOfMany(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(testenv.APIServer(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	const many, claims = 300, 60
	long := v1alpha1.ParameterRule{Key: "kmsKeyId"}
	for i := range 32 {
		long.Values = append(long.Values, fmt.Sprintf("%02d", i)+strings.Repeat("k", 2046))
	}
	var all []client.Object
	for i := range many {
		class := fmt.Sprintf("class-%03d", i)
		p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%03d", i)}, Spec: guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: size("5Gi")}})}
		p.Spec.Defaults = &v1alpha1.PolicyDefaults{StorageClassName: class}
		if i%2 == 1 {
			p.Spec.Guardrails.Claim = &v1alpha1.ClaimRules{MaxSize: size("4Gi")}
		}
		if i == 0 {
			p.Spec.Guardrails = &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{long}}}
		}
		all = append(all, p, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "ebs.csi.aws.com"})
	}
	for i := range claims {
		class := "class-000"
		all = append(all, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("data-%03d", i)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4608Mi")}},
			},
		})
	}
	for _, o := range all {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(now)
	if err := New(c, &world.World{Cache: c, Live: c, Index: snapshots.NewIndex(noSnapshots{}), Clock: clk}, clk, prometheus.NewRegistry()).Audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.StoragePolicyList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != many {
		t.Fatalf("%d policies, %v", len(list.Items), err)
	}
	for i := range list.Items {
		p, s := &list.Items[i], &list.Items[i].Status
		broken, compliant := int32(claims), maxCompliant
		if i == 0 { // whose rule is on classes
			broken, compliant = claims+many, 0
		}
		if s.MatchedClaims != claims || s.ViolationCount != broken || len(s.Violations) != maxViolations || len(s.CompliantStorageClasses) != compliant {
			t.Errorf("%s: %d claims, %d violations of which %d are listed, %d classes; want %d, %d, %d, %d", p.Name,
				s.MatchedClaims, s.ViolationCount, len(s.Violations), len(s.CompliantStorageClasses), claims, broken, maxViolations, compliant)
		}
		if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionConflicting) {
			t.Errorf("%s: conditions %+v, want Ready and Conflicting", p.Name, s.Conditions)
		}
	}
}

// columns is what kubectl prints of a policy: the API server makes the table.
func columns(t *testing.T, cfg *rest.Config, policy string) map[string]string {
	t.Helper()
	c, err := rest.RESTClientFor(&rest.Config{
		Host: cfg.Host, TLSClientConfig: cfg.TLSClientConfig, APIPath: "/apis",
		ContentConfig: rest.ContentConfig{GroupVersion: &v1alpha1.GroupVersion, NegotiatedSerializer: clientgoscheme.Codecs},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Get().Resource("storagepolicies").Name(policy).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%d rows, %v: %s", len(table.Rows), err, raw)
	}
	printed := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		printed[column.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return printed
}

// noSnapshots is the index in a cluster that does not have the kind VolumeSnapshot.
type noSnapshots struct{}

func (noSnapshots) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return &meta.NoKindMatchError{}
}
