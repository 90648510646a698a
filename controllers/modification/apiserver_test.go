//go:build envtest

package modification

import (
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// TestModify sweeps by hand against one real API server.
func TestModify(t *testing.T) {
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
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(time.Now())
	recorder := events.NewFakeRecorder(100)
	m := New(Options{Client: c, World: &world.World{Cache: c, Live: c, Clock: clk}, Events: recorder, Clock: clk})
	claim := func(name, csi string, annotations map[string]string) *corev1.PersistentVolumeClaim {
		t.Helper()
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
		must(c.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csi, VolumeHandle: name}},
		}}))
		o := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: name, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		}}
		must(c.Create(t.Context(), o))
		o.Status.Phase, o.Status.Capacity = corev1.ClaimBound, size
		must(c.Status().Update(t.Context(), o))
		return o
	}
	classOf := func(name string) string {
		t.Helper()
		o := &corev1.PersistentVolumeClaim{}
		must(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o))
		return ptr.Deref(o.Spec.VolumeAttributesClassName, "")
	}
	classes := func() string {
		t.Helper()
		var list storagev1.VolumeAttributesClassList
		must(c.List(t.Context(), &list))
		var all []string
		for _, class := range list.Items {
			if class.DeletionTimestamp == nil {
				all = append(all, class.Name)
			}
		}
		return strings.Join(all, " ")
	}
	told := func() string {
		var all []string
		for {
			select {
			case e := <-recorder.Events:
				all = append(all, e)
			default:
				return strings.Join(all, "\n")
			}
		}
	}
	annotate := func(o *corev1.PersistentVolumeClaim, key, value string) {
		t.Helper()
		must(c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		before := o.DeepCopy()
		o.Annotations[key] = value
		must(c.Patch(t.Context(), o, client.MergeFrom(before)))
	}
	must(c.Create(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driver, Parameters: map[string]string{"iops": "9000"}}))

	fast := map[string]string{driver + "/volumeType": "gp3", driver + "/iops": "6000"}
	a, other := claim("a", driver, fast), claim("other", "csi.example.com", fast)
	claim("b", driver, fast)
	owned := claim("owned", driver, fast)
	before := owned.DeepCopy()
	owned.Spec.VolumeAttributesClassName = ptr.To("gold")
	must(c.Patch(t.Context(), owned, client.MergeFrom(before)))
	must(m.Sweep(t.Context()))
	const first, second = "holdfast-ebs-gp3-iops6000", "holdfast-ebs-gp3-iops7000"
	if got := fmt.Sprint(classOf("a"), " ", classOf("b"), " ", classOf("other"), " ", classOf("owned")); got != first+" "+first+"  gold" {
		t.Errorf("classes of claims: %s", got)
	}
	if got := classes(); got != "gold "+first {
		t.Errorf("classes are %s", got)
	}
	if got := told(); !strings.Contains(got, "ModificationSet") || !strings.Contains(got, `"gold", which its owner set`) {
		t.Errorf("told was\n%s", got)
	}
	must(m.Sweep(t.Context()))
	if got := told(); got != "" {
		t.Errorf("told again:\n%s", got)
	}

	// Within policy: by the guardrails, and within the budget of its growth.
	policy := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "bounds"}, Spec: v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{
		AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{first, second}}, StorageClass: &v1alpha1.StorageClassRules{MaxIOPS: 6500},
	}}}
	must(c.Create(t.Context(), policy))
	annotate(a, driver+"/iops", "7000")
	must(m.Sweep(t.Context()))
	if got := told(); classOf("a") != first || !strings.Contains(got, "ModificationBlocked") || !strings.Contains(got, "storageClass.maxIOPS") {
		t.Errorf("above maxIOPS the class is %s; told was\n%s", classOf("a"), got)
	}
	annotate(a, driver+"/iops", "5000")
	must(m.Sweep(t.Context()))
	if got := told(); classOf("a") != first || !strings.Contains(got, "attributesClass.allowed") {
		t.Errorf("not allowed, the class is %s; told was\n%s", classOf("a"), got)
	}
	must(c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	policy.Spec.Guardrails = nil
	policy.Spec.Expansion = &v1alpha1.PolicyExpansion{
		Trigger: v1alpha1.ExpansionTrigger{UsedPercent: 80}, MaxSize: resource.MustParse("1Ti"),
		Budget: &v1alpha1.ExpansionBudget{Modifications: 1, WindowSeconds: 3600},
	}
	must(c.Update(t.Context(), policy))
	annotate(a, v1alpha1.AnnotationModifications, fmt.Sprintf(`{"requestBytes":%d,"attributesClass":%q,"modifications":[{"at":%q}]}`,
		a.Spec.Resources.Requests.Storage().Value(), first, clk.Now().UTC().Format(time.RFC3339)))
	annotate(a, driver+"/iops", "7000")
	must(m.Sweep(t.Context()))
	if got := told(); classOf("a") != first || !strings.Contains(got, "budget") {
		t.Errorf("over budget the class is %s; told was\n%s", classOf("a"), got)
	}
	clk.Step(2 * time.Hour)
	must(m.Sweep(t.Context()))
	if got := classOf("a"); got != second {
		t.Errorf("with budget again the class is %s; told was\n%s", got, told())
	}

	// A class goes once nothing names it, and not sooner.
	must(m.Sweep(t.Context()))
	if got := classes(); got != "gold "+first+" "+second {
		t.Errorf("classes are %s", got)
	}
	b := &corev1.PersistentVolumeClaim{}
	must(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "b"}, b))
	before = b.DeepCopy()
	b.Annotations, b.Spec.VolumeAttributesClassName = nil, ptr.To("gold")
	must(c.Patch(t.Context(), b, client.MergeFrom(before)))
	left := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "left"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: b.Status.Capacity, AccessModes: b.Spec.AccessModes, VolumeAttributesClassName: ptr.To(first),
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "left"}},
	}}
	must(c.Create(t.Context(), left))
	must(m.Sweep(t.Context()))
	if got := classes(); got != "gold "+first+" "+second {
		t.Errorf("classes are %s: a volume that has outlived its claim names one", got)
	}
	left.Finalizers = nil // nobody protects volumes here
	must(c.Update(t.Context(), left))
	must(c.Delete(t.Context(), left))
	late := claim("late", driver, fast)
	must(m.Sweep(t.Context()))
	if got := classes(); classOf("late") != first || got != "gold "+first+" "+second {
		t.Errorf("a claim was given class %s by this sweep, and the classes are %s", classOf("late"), got)
	}
	must(c.Get(t.Context(), client.ObjectKeyFromObject(late), late))
	before = late.DeepCopy()
	late.Annotations, late.Spec.VolumeAttributesClassName = nil, ptr.To("gold")
	must(c.Patch(t.Context(), late, client.MergeFrom(before)))
	must(m.Sweep(t.Context()))
	if got := classes(); got != "gold "+second {
		t.Errorf("classes are %s: one is used by nobody", got)
	}

	// One of the name that is a stranger's, or that is on its way out, is told of.
	told()
	must(c.Create(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-ebs-iops5"}, DriverName: driver, Parameters: map[string]string{"iops": "9"}}))
	must(c.Create(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-ebs-iops6", Finalizers: []string{"a.b/c"}}, DriverName: driver, Parameters: map[string]string{"iops": "6"}}))
	must(c.Delete(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-ebs-iops6"}}))
	claim("strange", driver, map[string]string{driver + "/iops": "5"})
	claim("going", driver, map[string]string{driver + "/iops": "6"})
	must(m.Sweep(t.Context()))
	if got := told(); classOf("strange")+classOf("going") != "" || !strings.Contains(got, "is there already with driver") || !strings.Contains(got, "is being deleted, and is made again") {
		t.Errorf("claims have classes %q and %q; told was\n%s", classOf("strange"), classOf("going"), got)
	}
	if other.Spec.VolumeAttributesClassName != nil {
		t.Error("a volume of another driver is modified")
	}
}
