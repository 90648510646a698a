package statefulset

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// twoTemplates is a set with the templates data (10Gi) and wal (2Gi).
func twoTemplates(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	return set(func(s *appsv1.StatefulSet) {
		s.Namespace, s.Name, s.UID = "db", "pg", "set"
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}}
		s.Spec.VolumeClaimTemplates = nil
		for _, name := range []string{"data", "wal"} {
			t := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
			t.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(map[string]string{"data": "10Gi", "wal": "2Gi"}[name])}
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, t)
		}
		if change != nil {
			change(s)
		}
	})
}

func declares(sizes string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{v1alpha1.AnnotationSize: sizes} }
}

func TestDeclared(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		text  string
		want  string // template=size
		wrong []string
	}{
		"both":        {"one size for each template", "data=20Gi,wal=5Gi", "data=20Gi wal=5Gi", nil},
		"spaces":      {"people write them", " data=20Gi, wal=5Gi ", "data=20Gi wal=5Gi", nil},
		"one":         {"the other is as it is", "data=20Gi", "data=20Gi", nil},
		"no template": {"a bare size does not say whose", "20Gi", "", []string{`"20Gi" is no template and size`}},
		"other":       {"a slip of the finger would do nothing, unseen", "date=20Gi", "", []string{`"date=20Gi" names no volumeClaimTemplate`, "data, wal"}},
		"no size":     {"likewise", "data=", "", []string{`"data=" has no quantity`}},
		"no quantity": {"likewise", "data=20 GB", "", []string{`"data=20 GB" has no quantity`}},
		"nothing":     {"likewise", "data=0", "", []string{"asks for no bytes"}},
		"negative":    {"likewise", "data=-5Gi", "", []string{"asks for no bytes"}},
		"twice":       {"which of them?", "data=20Gi,data=30Gi", "", []string{"for the second time"}},
		"all wrong":   {"all at once", "x=1Gi,data=y", "", []string{`"x=1Gi"`, `"data=y"`}},
		"empty":       {"an empty annotation is no declaration of anything", "", "", []string{"is no template and size"}},
		"comma":       {"a part is missing", "data=20Gi,", "", []string{"is no template and size"}},
	} {
		t.Run(name, func(t *testing.T) {
			sizes, wrong := Declared(twoTemplates(declares(tc.text)))
			var got []string
			for _, template := range []string{"data", "wal"} {
				if q, is := sizes[template]; is {
					got = append(got, template+"="+q.String())
				}
			}
			if strings.Join(got, " ") != tc.want || (len(wrong) > 0) != (len(tc.wrong) > 0) {
				t.Errorf("%s: %v, wrong is %v; want %q", tc.why, got, wrong, tc.want)
			}
			for _, says := range tc.wrong {
				if !strings.Contains(strings.Join(wrong, "; "), says) {
					t.Errorf("%s: %q does not say %q", tc.why, wrong, says)
				}
			}
		})
	}
	if sizes, wrong := Declared(twoTemplates(nil)); sizes != nil || wrong != nil {
		t.Errorf("a set without the annotation declares %v, wrong %v", sizes, wrong)
	}
}

// growing is a policy of namespace db with an expansion.
func growing(maxSize string, action v1alpha1.TemplateAction) *v1alpha1.StoragePolicy {
	return &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases", UID: "p"}, Spec: v1alpha1.StoragePolicySpec{
		Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "db"}}},
		Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse(maxSize), StatefulSetTemplate: action},
	}}
}

// unreadable is a policy that no selector can be made of.
func unreadable(change func(*v1alpha1.StoragePolicySpec)) *v1alpha1.StoragePolicy {
	p := growing("5Gi", "")
	p.Name, p.UID, p.Spec.Priority = "broken", "b", 9
	p.Spec.Match.ClaimSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// claimNamed is a claim of namespace db, with the stamp of a set unless its UID is "".
func claimNamed(name, uid, template, size string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name, Labels: map[string]string{"app": "pg"}}}
	if uid != "" {
		c.Annotations = map[string]string{v1alpha1.AnnotationSetUID: uid, v1alpha1.AnnotationSetTemplate: template}
	}
	c.Spec.StorageClassName = ptr("")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return c
}

// annotated is the claim of a new replica that is held to a size by its annotation.
func annotated(most string) *corev1.PersistentVolumeClaim {
	c := claimNamed("data-pg-2", "", "", "10Gi")
	c.Annotations = map[string]string{v1alpha1.AnnotationMaxSize: most}
	return c
}

// ofClass is the claim of a new replica of a class.
func ofClass(name string) *corev1.PersistentVolumeClaim {
	c := claimNamed("data-pg-2", "", "", "10Gi")
	c.Spec.StorageClassName = ptr(name)
	return c
}

// fast is a class that gives IOPS by the GiB.
func fast(iopsPerGB string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"iopsPerGB": iopsPerGB}}
}

// iops gives a policy a guardrail of 4000 IOPS.
func iops(p *v1alpha1.StoragePolicy, action v1alpha1.Action) *v1alpha1.StoragePolicy {
	p.Spec.Guardrails = &v1alpha1.Guardrails{Action: action, StorageClass: &v1alpha1.StorageClassRules{MaxIOPS: 4000}}
	return p
}

func worldOf(t *testing.T, objects ...client.Object) *world.World {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{"kind": "db"}}})
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &world.World{Cache: reader, Live: reader, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
}

func TestSizeOf(t *testing.T) {
	siblings := []client.Object{claimNamed("data-pg-0", "set", "data", "20Gi"), claimNamed("data-pg-1", "set", "data", "25Gi"), claimNamed("wal-pg-0", "set", "wal", "2Gi")}
	with := func(more ...client.Object) []client.Object { return append(more, siblings...) }
	tight := growing("50Gi", "")
	tight.Spec.Guardrails = &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("22Gi"))}}
	warns, exempts := tight.DeepCopy(), tight.DeepCopy()
	warns.Spec.Guardrails.Action = v1alpha1.Warn
	exempts.Spec.Exemptions = []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}}, Reason: "x", Until: metav1.NewTime(time.Unix(60, 0))}}
	namesake := twoTemplates(func(s *appsv1.StatefulSet) {
		s.Name, s.UID = "x-pg", "b"
		s.Spec.VolumeClaimTemplates = s.Spec.VolumeClaimTemplates[:1]
		s.Spec.VolumeClaimTemplates[0].Name = "data"
	})
	twin := twoTemplates(func(s *appsv1.StatefulSet) {
		s.UID = "c"
		s.Spec.VolumeClaimTemplates = s.Spec.VolumeClaimTemplates[:1]
		s.Spec.VolumeClaimTemplates[0].Name = "data-x"
	})
	dying := twoTemplates(func(s *appsv1.StatefulSet) {
		s.Finalizers = []string{"x/y"}
		s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	})
	for name, tc := range map[string]struct {
		why   string
		there []client.Object
		claim *corev1.PersistentVolumeClaim
		want  string // empty: as it asks
	}{
		"new replica": {"the largest of its siblings", with(twoTemplates(nil), growing("50Gi", "")), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"infeasible": {"what the driver cannot make of a sibling it cannot make of a new one", with(twoTemplates(nil), growing("50Gi", ""), func() *corev1.PersistentVolumeClaim {
			c := claimNamed("data-pg-3", "set", "data", "40Gi")
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("26Gi")}
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}
			return c
		}()), claimNamed("data-pg-2", "", "", "10Gi"), "26Gi"},
		"other template":          {"each template by itself", with(twoTemplates(nil), growing("50Gi", "")), claimNamed("wal-pg-2", "", "", "2Gi"), ""},
		"asks for more":           {"never less than it asks for", with(twoTemplates(nil), growing("50Gi", "")), claimNamed("data-pg-2", "", "", "30Gi"), ""},
		"Recreate":                {"until the template has the size", with(twoTemplates(nil), growing("50Gi", v1alpha1.RecreateSet)), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"Report":                  {"report only", with(twoTemplates(nil), growing("50Gi", v1alpha1.ReportTemplate)), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"maxSize":                 {"at most the policy's", with(twoTemplates(nil), growing("22Gi", "")), claimNamed("data-pg-2", "", "", "10Gi"), "22Gi"},
		"maxSize of no whole GiB": {"the driver would round up above it", with(twoTemplates(nil), growing("22900Mi", "")), claimNamed("data-pg-2", "", "", "10Gi"), "22Gi"},
		"guardrail":               {"a raised claim must not be refused", with(twoTemplates(nil), tight), claimNamed("data-pg-2", "", "", "10Gi"), "22Gi"},
		"guardrail that warns":    {"which refuses nothing", with(twoTemplates(nil), warns), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"guardrail, exempted":     {"which does not hold for it", with(twoTemplates(nil), exempts), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"held":                    {"its template holds its claims to less", with(twoTemplates(nil), growing("50Gi", "")), annotated("22Gi"), "22Gi"},
		"held, to more":           {"which is no bound", with(twoTemplates(nil), growing("50Gi", "")), annotated("40Gi"), "25Gi"},
		"held, unreadable":        {"nobody knows to what", with(twoTemplates(nil), growing("50Gi", "")), annotated("lots"), ""},
		"IOPS by the GiB":         {"it would be refused, and the set have no new replica", with(twoTemplates(nil), fast("200"), iops(growing("50Gi", ""), "")), ofClass("fast"), ""},
		"IOPS that suffice":       {"nothing refuses it", with(twoTemplates(nil), fast("100"), iops(growing("50Gi", ""), "")), ofClass("fast"), "25Gi"},
		"IOPS warned of":          {"likewise", with(twoTemplates(nil), fast("200"), iops(growing("50Gi", ""), v1alpha1.Warn)), ofClass("fast"), "25Gi"},
		"unreadable":              {"the policy that bounds it may be the one that cannot be read", with(twoTemplates(nil), growing("50Gi", ""), unreadable(nil)), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"unreadable elsewhere": {"that policy is surely not about it", with(twoTemplates(nil), growing("50Gi", ""), unreadable(func(s *v1alpha1.StoragePolicySpec) {
			s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "web"}}
		})), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"declared, unreadable": {"likewise", with(twoTemplates(declares("data=40Gi")), unreadable(nil)), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"no policy":            {"nobody asked for it", with(twoTemplates(nil)), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"declared":             {"also without a policy", with(twoTemplates(declares("data=40Gi"))), claimNamed("data-pg-2", "", "", "10Gi"), "40Gi"},
		"declared less":        {"its siblings have more", with(twoTemplates(declares("data=15Gi"))), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"declared over max":    {"at most the policy's", with(twoTemplates(declares("data=90Gi")), growing("50Gi", "")), claimNamed("data-pg-2", "", "", "10Gi"), "50Gi"},
		"declared another":     {"each template by itself", with(twoTemplates(declares("wal=4Gi"))), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"no stamp": {"names alone do not tell whose a sibling is", []client.Object{twoTemplates(nil), growing("50Gi", ""), claimNamed("data-pg-0", "", "", "20Gi"), claimNamed("data-pg-1", "older", "data", "20Gi")},
			claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"copied":    {"a claim made from a sibling's manifest carries its stamp, and is none", with(twoTemplates(nil), growing("50Gi", ""), claimNamed("data-pg-0-copy", "set", "data", "40Gi")), claimNamed("data-pg-2", "", "", "10Gi"), "25Gi"},
		"no set":    {"a claim made by hand", with(growing("50Gi", "")), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"dying set": {"it has no new replicas", with(dying, growing("50Gi", "")), claimNamed("data-pg-2", "", "", "10Gi"), ""},
		"labels": {"a claim made by hand", with(twoTemplates(nil), growing("50Gi", "")), func() *corev1.PersistentVolumeClaim {
			c := claimNamed("data-pg-2", "", "", "10Gi")
			c.Labels = nil
			return c
		}(), ""},
		"two sets": {"nothing tells whose it is", with(namesake, twin, growing("50Gi", "")), claimNamed("data-x-pg-2", "", "", "10Gi"), ""},
		"ordinal":  {"exactly an ordinal", with(twoTemplates(nil), growing("50Gi", "")), claimNamed("data-pg-02", "", "", "10Gi"), ""},
		"limit": {"the API server would refuse it", with(twoTemplates(nil), growing("50Gi", "")), func() *corev1.PersistentVolumeClaim {
			c := claimNamed("data-pg-2", "", "", "10Gi")
			c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("12Gi")}
			return c
		}(), ""},
		"no request": {"the API server refuses it anyway", with(twoTemplates(nil), growing("50Gi", "")), func() *corev1.PersistentVolumeClaim {
			c := claimNamed("data-pg-2", "", "", "10Gi")
			c.Spec.Resources.Requests = nil
			return c
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SizeOf(t.Context(), worldOf(t, tc.there...), tc.claim)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got != nil {
				text = got.String()
			}
			if text != tc.want {
				t.Errorf("%s: %q, want %q", tc.why, text, tc.want)
			}
		})
	}
}

func TestJudgeSizes(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		policy   []client.Object
		old, now *appsv1.StatefulSet
		refused  string
		warned   string
	}{
		"good":            {"it is taken", []client.Object{growing("50Gi", "")}, nil, twoTemplates(declares("data=20Gi")), "", ""},
		"without policy":  {"it is taken", nil, nil, twoTemplates(declares("data=20Gi")), "", ""},
		"unreadable":      {"at creation", nil, nil, twoTemplates(declares("data")), `"data" is no template and size`, ""},
		"changed":         {"at a change", nil, twoTemplates(nil), twoTemplates(declares("data")), "is no template and size", ""},
		"as it was":       {"what is broken stays editable", nil, twoTemplates(declares("data")), twoTemplates(declares("data")), "", ""},
		"taken off":       {"so does it go", nil, twoTemplates(declares("data")), twoTemplates(nil), "", ""},
		"above maxSize":   {"the policy is named", []client.Object{growing("50Gi", "")}, nil, twoTemplates(declares("data=51Gi")), "data=51Gi is above the expansion.maxSize of StoragePolicy databases, which is 50Gi", ""},
		"at maxSize":      {"the bound itself is allowed", []client.Object{growing("50Gi", "")}, nil, twoTemplates(declares("data=50Gi")), "", ""},
		"below the templ": {"claims never shrink", nil, nil, twoTemplates(declares("data=5Gi")), "", "less than the 10Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			forbidden, warnings, err := judgeSizes(t.Context(), worldOf(t, tc.policy...), tc.old, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(forbidden, tc.refused) || (forbidden != "") != (tc.refused != "") {
				t.Errorf("%s: refused with %q, want %q", tc.why, forbidden, tc.refused)
			}
			if all := strings.Join(warnings, ";"); !strings.Contains(all, tc.warned) || (all != "") != (tc.warned != "") {
				t.Errorf("%s: warned of %q, want %q", tc.why, all, tc.warned)
			}
		})
	}
}

// TestSizesAreJudgedWithoutPolicies: a declaration does not need a policy to be
// wrong, nor is anything else judged without one.
func TestSizesAreJudgedWithoutPolicies(t *testing.T) {
	h := &Webhook{World: worldOf(t)}
	raw, err := runtime.Encode(clientgoscheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion), twoTemplates(declares("data=x")))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.Validate(t.Context(), &admit.Request{Operation: admissionv1.Create, Namespace: "db", Object: runtime.RawExtension{Raw: raw}})
	if err != nil || !strings.Contains(answer.Forbidden, "has no quantity") {
		t.Errorf("answer %+v, %v", answer, err)
	}
	answer, err = h.Validate(t.Context(), &admit.Request{Operation: admissionv1.Delete, Namespace: "db", OldObject: runtime.RawExtension{Raw: raw}})
	if diff := cmp.Diff(admit.Answer{}, answer); err != nil || diff != "" {
		t.Errorf("deletion: %v\n%s", err, diff)
	}
}
