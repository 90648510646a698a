package claim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

func ptr[T any](v T) *T { return &v }

func quantity(s string) *resource.Quantity { return ptr(resource.MustParse(s)) }

func asking(size string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
	}}
}

func TestGuarded(t *testing.T) {
	gp2 := &storagev1.StorageClass{Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"iopsPerGB": "10"}}
	gp2.Name = "gp2"
	sizes := &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: quantity("5Gi"), MaxSize: quantity("10Gi")}}
	growth := &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxGrowthPercent: 50}}
	classes := &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{
		Allowed: []string{"gp3"}, MaxIOPS: 100, ReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
	}}
	attributes := &v1alpha1.Guardrails{AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{"gold"}}}
	named := func(size, driver string, parameters map[string]string) Subject {
		class := &storagev1.VolumeAttributesClass{DriverName: driver, Parameters: parameters}
		class.Name = "gold"
		return Subject{Spec: asking(size), Attributes: class}
	}
	modes := &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock},
	}}
	for name, tc := range map[string]struct {
		why   string
		rules *v1alpha1.Guardrails
		claim Subject
		want  []string // "rule field found"
	}{
		"no guardrails": {"no rules, no breach", nil, Subject{Spec: asking("1Gi")}, nil},
		"too small":     {"below the least", sizes, Subject{Spec: asking("4Gi")}, []string{"claim.minSize spec.resources.requests.storage 4Gi"}},
		"bounds":        {"the bounds themselves are allowed", sizes, Subject{Spec: asking("10Gi")}, nil},
		"too large":     {"above the most", sizes, Subject{Spec: asking("10241Mi")}, []string{"claim.maxSize spec.resources.requests.storage 10241Mi"}},
		"growing":       {"growing towards the least is no breach", sizes, Subject{Spec: asking("3Gi"), Before: ptr(asking("2Gi"))}, nil},
		"shrinking":     {"shrinking away from it is", sizes, Subject{Spec: asking("3Gi"), Before: ptr(asking("4Gi"))}, []string{"claim.minSize spec.resources.requests.storage 3Gi"}},
		"fast":          {"more than the rule's share at once", growth, Subject{Spec: asking("151Gi"), Before: ptr(asking("100Gi"))}, []string{"claim.maxGrowthPercent spec.resources.requests.storage 151Gi after 100Gi"}},
		"slow":          {"the share itself is allowed", growth, Subject{Spec: asking("150Gi"), Before: ptr(asking("100Gi"))}, nil},
		"new":           {"a new claim has not grown", growth, Subject{Spec: asking("150Gi")}, nil},
		"exabytes":      {"sizes near the end of int64 are compared too", growth, Subject{Spec: asking("7Ei"), Before: ptr(asking("6Ei"))}, nil},
		"beyond int64":  {"and beyond it", growth, Subject{Spec: asking("10E"), Before: ptr(asking("100Gi"))}, []string{"claim.maxGrowthPercent spec.resources.requests.storage 10E after 100Gi"}},
		"less too much": {"what stays above the most after it is made smaller is made better", sizes, Subject{Spec: asking("11Gi"), Before: ptr(asking("12Gi"))}, nil},
		"more too much": {"what grows further is made worse", sizes, Subject{Spec: asking("13Gi"), Before: ptr(asking("12Gi"))}, []string{"claim.maxSize spec.resources.requests.storage 13Gi"}},
		"mode":          {"each mode that is not in the list, and the default volume mode", modes, Subject{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}}}, []string{"claim.accessModes spec.accessModes[1] ReadWriteMany", "claim.volumeModes spec.volumeMode Filesystem"}},
		"static":        {"a static claim has no class to judge", classes, Subject{Spec: asking("1Gi")}, nil},
		"bad class":     {"the class is judged in the claim's words, with the claim's size", classes, Subject{Spec: asking("11Gi"), ClassName: "gp2", Class: gp2}, []string{`storageClass.allowed spec.storageClassName "gp2"`, `storageClass.reclaimPolicy spec.storageClassName "gp2", whose reclaimPolicy is Delete`, `storageClass.maxIOPS spec.storageClassName "gp2", whose parameters.iopsPerGB is 10 for each of 11 GiB`}},
		"part of a GiB": {"EBS rounds up", classes, Subject{Spec: asking("10241Mi"), ClassName: "gp3", Class: func() *storagev1.StorageClass {
			c := gp2.DeepCopy()
			c.Name = "gp3"
			c.ReclaimPolicy = ptr(corev1.PersistentVolumeReclaimRetain)
			return c
		}()}, []string{`storageClass.maxIOPS spec.storageClassName "gp3", whose parameters.iopsPerGB is 10 for each of 11 GiB`}},
		"size beyond int64": {"is not one that is not known", classes, Subject{Spec: asking("10E"), ClassName: "gp3", Class: func() *storagev1.StorageClass {
			c := gp2.DeepCopy()
			c.Name = "gp3"
			c.ReclaimPolicy = ptr(corev1.PersistentVolumeReclaimRetain)
			return c
		}()}, []string{`storageClass.maxIOPS spec.storageClassName "gp3", whose parameters.iopsPerGB is 10 for each of 8589934592 GiB`}},
		"class not there":          {"its name is judged", classes, Subject{Spec: asking("1Gi"), ClassName: "gone"}, []string{`storageClass.allowed spec.storageClassName "gone"`}},
		"no attributes":            {"a claim that names none keeps the rule", attributes, Subject{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr("")}}, nil},
		"attributes":               {"an allowed one", attributes, Subject{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr("gold")}}, nil},
		"bad attributes":           {"another one", attributes, Subject{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr("iron")}}, []string{`attributesClass.allowed spec.volumeAttributesClassName "iron"`}},
		"few attributes IOPS":      {"the bound itself is allowed", classes, named("1Gi", "ebs.csi.aws.com", map[string]string{"iops": "100"}), nil},
		"many attributes IOPS":     {"IOPS come by a class of attributes too", classes, named("1Gi", "ebs.csi.aws.com", map[string]string{"IOPS": "101"}), []string{`storageClass.maxIOPS spec.volumeAttributesClassName "gold", whose parameters.IOPS is 101`}},
		"attributes IOPS per GiB":  {"by the size of the claim", classes, named("11Gi", "ebs.csi.aws.com", map[string]string{"iopsPerGB": "10"}), []string{`storageClass.maxIOPS spec.volumeAttributesClassName "gold", whose parameters.iopsPerGB is 10 for each of 11 GiB`}},
		"others' attributes":       {"of EBS's classes alone", classes, named("1Gi", "pd.csi.storage.gke.io", map[string]string{"iops": "101"}), nil},
		"attributes IOPS, no rule": {"no rule, no breach", attributes, named("1Gi", "ebs.csi.aws.com", map[string]string{"iops": "101"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, brief(guarded(tc.rules, tc.claim))); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestNoAttributesClassAllowed(t *testing.T) {
	g := &v1alpha1.Guardrails{AttributesClass: &v1alpha1.AttributesClassRules{}}
	got := guarded(g, Subject{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr("gold")}})
	if len(got) != 1 || !strings.Contains(got[0].Wanted, "none") {
		t.Errorf("an empty list lets claims name none: %+v", got)
	}
}

func brief(breaches []policy.Breach) []string {
	var lines []string
	for _, b := range breaches {
		lines = append(lines, string(b.Rule)+" "+b.Field+" "+b.Found)
	}
	return lines
}
