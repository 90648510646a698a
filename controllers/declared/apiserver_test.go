//go:build envtest

package declared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestReconcile holds what the API server makes of a declaration: its own rules
// for the growth of claims included. The resizer is played by the test.
func TestReconcile(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(testenv.APIServer(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com"}
	must(c.Create(ctx, class))
	must(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}}))
	must(c.Create(ctx, &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}, Spec: v1alpha1.StoragePolicySpec{
		Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("8Gi")},
	}}))
	spec := corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("gp3"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	labels := map[string]string{"app": "pg"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg", Annotations: map[string]string{v1alpha1.AnnotationSize: "data=2Gi"}}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: spec}},
	}}
	must(c.Create(ctx, set))
	name := func(i int) client.ObjectKey {
		return client.ObjectKey{Namespace: "db", Name: fmt.Sprintf("data-pg-%d", i)}
	}
	for i := range 2 {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name(i).Name, Labels: labels, Annotations: map[string]string{
			v1alpha1.AnnotationSetUID: string(set.UID), v1alpha1.AnnotationSetName: "pg", v1alpha1.AnnotationSetTemplate: "data",
		}}, Spec: spec}
		must(c.Create(ctx, claim))
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, spec.Resources.Requests
		must(c.Status().Update(ctx, claim))
	}
	sizes := func() string {
		t.Helper()
		var all []string
		for i := range 2 {
			claim := &corev1.PersistentVolumeClaim{}
			must(c.Get(ctx, name(i), claim))
			all = append(all, claim.Spec.Resources.Requests.Storage().String())
		}
		return strings.Join(all, " ")
	}
	recorder, clock := events.NewFakeRecorder(100), clocktesting.NewFakePassiveClock(time.Now())
	r := New(Options{Client: c, World: &world.World{Cache: c, Live: c, Clock: clock}, Events: recorder, Clock: clock})
	// look reconciles and answers the events of it.
	look := func() string {
		t.Helper()
		must(c.Get(ctx, client.ObjectKeyFromObject(set), set))
		_, err := r.Reconcile(ctx, set)
		must(err)
		var all []string
		for len(recorder.Events) > 0 {
			all = append(all, <-recorder.Events)
		}
		return strings.Join(all, "; ")
	}
	says := func(what, got string, parts ...string) {
		t.Helper()
		if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(got, p) }) || len(parts) == 0 && got != "" {
			t.Errorf("%s: told %q, want %q", what, got, parts)
		}
	}
	is := func(what, want string) {
		t.Helper()
		if got := sizes(); got != want {
			t.Errorf("%s: the claims ask for %s, want %s", what, got, want)
		}
	}
	declare := func(size string) {
		t.Helper()
		must(c.Get(ctx, client.ObjectKeyFromObject(set), set))
		set.Annotations[v1alpha1.AnnotationSize] = size
		must(c.Update(ctx, set))
	}
	resized := func() {
		t.Helper()
		for i := range 2 {
			claim := &corev1.PersistentVolumeClaim{}
			must(c.Get(ctx, name(i), claim))
			claim.Status.Capacity = claim.Spec.Resources.Requests
			must(c.Status().Update(ctx, claim))
		}
	}

	says("a class that does not let volumes grow", look(), "Warning GrowthBlocked", "claim data-pg-0", "claim data-pg-1", "set its allowVolumeExpansion to true")
	says("the same again", look())
	is("blocked", "1Gi 1Gi")

	class.AllowVolumeExpansion = ptr.To(true)
	must(c.Update(ctx, class))
	for i := range 2 {
		claim := &corev1.PersistentVolumeClaim{}
		must(c.Get(ctx, name(i), claim))
		m := fmt.Sprintf(`{"at":%q}`, clock.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		claim.Annotations[v1alpha1.AnnotationModifications] = fmt.Sprintf(`{"requestBytes":%d,"modifications":[%s,%s,%s]}`, 1<<30, m, m, m)
		must(c.Update(ctx, claim))
	}
	says("no budget", look(), "claim data-pg-0: 3 modifications of the volume within 86400 s", `the budget of StoragePolicy "databases" is 4`)
	is("no budget", "1Gi 1Gi")

	for i := range 2 {
		claim := &corev1.PersistentVolumeClaim{}
		must(c.Get(ctx, name(i), claim))
		delete(claim.Annotations, v1alpha1.AnnotationModifications)
		must(c.Update(ctx, claim))
	}
	says("now they grow", look(), "Normal ClaimsGrow", "data-pg-0 to 2Gi, data-pg-1 to 2Gi")
	is("growing", "2Gi 2Gi")
	for i := range 2 {
		claim := &corev1.PersistentVolumeClaim{}
		must(c.Get(ctx, name(i), claim))
		if record := claim.Annotations[v1alpha1.AnnotationModifications]; strings.Count(record, `"at"`) != 1 || !strings.Contains(record, fmt.Sprintf(`"toBytes":%d`, 2<<30)) {
			t.Errorf("the record of claim %s is %q, want one modification, to 2Gi", claim.Name, record)
		}
	}
	declare("data=4Gi")
	says("not while they grow", look())
	is("not while they grow", "2Gi 2Gi")
	resized()
	says("then further", look(), "data-pg-0 to 4Gi, data-pg-1 to 4Gi")
	resized()
	says("at last", look(), "Normal ClaimsGrown", "data-pg-0, data-pg-1")
	says("and that is told once", look())
	is("grown", "4Gi 4Gi")

	broken := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: v1alpha1.StoragePolicySpec{
		Priority: 1, Match: v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}},
		Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("4Gi")},
	}}
	must(c.Create(ctx, broken))
	declare("data=5Gi")
	says("a policy that cannot be read", look(), "Warning GrowthBlocked", "claim data-pg-0", `StoragePolicy "broken" is not valid`)
	is("a policy that cannot be read", "4Gi 4Gi")
	must(c.Delete(ctx, broken))

	declare("data=3Gi")
	says("less does nothing", look())
	is("less does nothing", "4Gi 4Gi")
	declare("data=9Gi")
	says("above the policy", look(), "Warning GrowthBlocked", "data=9Gi is above the expansion.maxSize of StoragePolicy databases, which is 8Gi")
	is("above the policy", "4Gi 4Gi")

	must(c.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.storage": resource.MustParse("9Gi")}}}))
	quota := &corev1.ResourceQuota{}
	must(c.Get(ctx, client.ObjectKey{Namespace: "db", Name: "q"}, quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"requests.storage": resource.MustParse("8Gi")}
	must(c.Status().Update(ctx, quota))
	must(testenv.Eventually(ctx, time.Minute, "the API server holds to the quota", func(ctx context.Context) (string, error) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(ctx, name(0), claim); err != nil {
			return "", err
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("100Gi")
		if err := c.Update(ctx, claim, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("100Gi are answered with %v", err), nil
		}
		return "", nil
	}))
	declare("data=5Gi")
	says("a quota", look(), "data-pg-0 to 5Gi", "claim data-pg-1: growing it to 5Gi was refused", "exceeded quota")
	is("a quota", "5Gi 4Gi")
	says("not asked again at once", look())
	clock.SetTime(clock.Now().Add(refusedFor))
	says("asked again later, and told once", look())

	// Without a policy there is what EC2 takes: data-pg-0 was modified three times,
	// data-pg-1 twice.
	must(c.Delete(ctx, &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}}))
	must(c.Delete(ctx, quota))
	must(testenv.Eventually(ctx, time.Minute, "the API server forgets the quota", func(ctx context.Context) (string, error) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(ctx, name(0), claim); err != nil {
			return "", err
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("100Gi")
		if err := c.Update(ctx, claim, client.DryRunAll); err != nil {
			return fmt.Sprintf("100Gi are answered with %v", err), nil
		}
		return "", nil
	}))
	clock.SetTime(clock.Now().Add(refusedFor))
	resized()
	declare("data=6Gi")
	says("a fourth modification", look(), "data-pg-0 to 6Gi, data-pg-1 to 6Gi")
	resized()
	declare("data=7Gi")
	says("a fifth one", look(), "data-pg-1 to 7Gi", "claim data-pg-0: 4 modifications of the volume within 86400 s, and EC2 takes no more than 4")
	is("a fifth one", "6Gi 7Gi")
	clock.SetTime(clock.Now().Add(24 * time.Hour))
	resized()
	says("a day later", look(), "data-pg-0 to 7Gi")
	resized()

	// One claim's trouble is not the other's, and what was not asked for is not said
	// to have grown.
	declare("data=8Gi")
	r.Client = lags{Client: c, conflict: name(0).Name}
	says("a claim that has changed since", look(), "data-pg-1 to 8Gi")
	is("a claim that has changed since", "7Gi 8Gi")
	resized()
	says("and again", look())
	declare("data=9Gi")
	r.Client = lags{Client: c, fails: name(0).Name}
	must(c.Get(ctx, client.ObjectKeyFromObject(set), set))
	if _, err := r.Reconcile(ctx, set); err == nil || !strings.Contains(err.Error(), "the API server is away") {
		t.Errorf("a patch that fails is answered with %v", err)
	}
	is("a patch that fails", "7Gi 9Gi")
	r.Client = c
	says("at last", look(), "data-pg-0 to 9Gi")
	resized()
	look()

	// By its own labels a claim may be under another policy than its template.
	claim := &corev1.PersistentVolumeClaim{}
	must(c.Get(ctx, name(1), claim))
	claim.Labels["tier"] = "small"
	must(c.Update(ctx, claim))
	must(c.Create(ctx, &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: v1alpha1.StoragePolicySpec{
		Match:     v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "small"}}},
		Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("9Gi")},
	}}))
	declare("data=10Gi")
	says("a policy of its own", look(), "data-pg-0 to 10Gi", "claim data-pg-1: it is under StoragePolicy small, whose expansion.maxSize is 9Gi")
	is("a policy of its own", "10Gi 9Gi")
}

// lags answers the patch of one claim with a conflict, as if it had changed since,
// and that of another with an error.
type lags struct {
	client.Client
	conflict, fails string
}

func (l lags) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	switch o.GetName() {
	case l.conflict:
		return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("changed since"))
	case l.fails:
		return errors.New("the API server is away")
	}
	return l.Client.Patch(ctx, o, p, opts...)
}
