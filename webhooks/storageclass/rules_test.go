package storageclass

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

func ptr[T any](v T) *T { return &v }

func class(provisioner string, parameters map[string]string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{Provisioner: provisioner, Parameters: parameters}
	c.Name = "db"
	return c
}

func ebs(parameters map[string]string) *storagev1.StorageClass {
	return class("ebs.csi.aws.com", parameters)
}

func TestBreaches(t *testing.T) {
	encrypted := &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}}
	iops := &v1alpha1.StorageClassRules{MaxIOPS: 16000}
	for name, tc := range map[string]struct {
		why   string
		rules *v1alpha1.StorageClassRules
		class *storagev1.StorageClass
		size  int64
		want  []string // "rule field found"
	}{
		"no rules":             {"no rules, no breach", nil, ebs(nil), 0, nil},
		"allowed":              {"in the list", &v1alpha1.StorageClassRules{Allowed: []string{"web", "db"}}, ebs(nil), 0, nil},
		"not allowed":          {"not in the list", &v1alpha1.StorageClassRules{Allowed: []string{"web"}}, ebs(nil), 0, []string{`storageClass.allowed metadata.name "db"`}},
		"in-tree":              {"an in-tree driver", &v1alpha1.StorageClassRules{InTreeProvisioners: v1alpha1.Forbidden}, class("kubernetes.io/aws-ebs", nil), 0, []string{`storageClass.inTreeProvisioners provisioner "kubernetes.io/aws-ebs"`}},
		"no-provisioner":       {"is no in-tree driver", &v1alpha1.StorageClassRules{InTreeProvisioners: v1alpha1.Forbidden}, class("kubernetes.io/no-provisioner", nil), 0, nil},
		"in-tree permitted":    {"nothing is said of it", encrypted, class("kubernetes.io/aws-ebs", map[string]string{"encrypted": "true"}), 0, nil},
		"unencrypted":          {"the parameter has another value", encrypted, ebs(map[string]string{"encrypted": "false"}), 0, []string{`storageClass.parameters parameters.encrypted "false"`}},
		"encryption not said":  {"a parameter that is not there has none of the values", encrypted, ebs(nil), 0, []string{"storageClass.parameters parameters.encrypted not set"}},
		"key in another case":  {"drivers of EBS compare keys without case", encrypted, ebs(map[string]string{"Encrypted": "true"}), 0, nil},
		"true in another case": {"AWS's driver makes an unencrypted volume of any other spelling", encrypted, ebs(map[string]string{"encrypted": "True"}), 0, []string{`storageClass.parameters parameters.encrypted "True"`}},
		"a type in capitals":   {"is that type, or none that can be made", &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "type", Values: []string{"gp3"}}}}, ebs(map[string]string{"Type": "GP3"}), 0, nil},
		"an alias in capitals": {"is another key", &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "kmsKeyId", Values: []string{"alias/prod"}}}}, ebs(map[string]string{"kmsKeyId": "alias/PROD"}), 0, []string{`storageClass.parameters parameters.kmsKeyId "alias/PROD"`}},
		"key twice":            {"each spelling is judged: which one counts is the driver's to say", encrypted, ebs(map[string]string{"encrypted": "true", "ENCRYPTED": "false"}), 0, []string{`storageClass.parameters parameters.ENCRYPTED "false"`}},
		"key twice, other way": {"in any order", encrypted, ebs(map[string]string{"encrypted": "false", "ENCRYPTED": "true"}), 0, []string{`storageClass.parameters parameters.encrypted "false"`}},
		"efs":                  {"EBS's parameters are none of EFS's", encrypted, class("efs.csi.aws.com", map[string]string{"provisioningMode": "efs-ap"}), 0, nil},
		"ceph":                 {"nor of Ceph's", encrypted, class("rbd.csi.ceph.com", map[string]string{"encrypted": "false"}), 0, nil},
		"longhorn":             {"nor of Longhorn's", encrypted, class("driver.longhorn.io", map[string]string{"encrypted": "false"}), 0, nil},
		"named provisioner":    {"unless the policy names it, with values as that driver reads them", &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}, Provisioners: []string{"driver.longhorn.io"}}}}, class("driver.longhorn.io", map[string]string{"encrypted": "True"}), 0, []string{`storageClass.parameters parameters.encrypted "True"`}},
		"named, not EBS":       {"a rule for others is none for EBS", &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}, Provisioners: []string{"driver.longhorn.io"}}}}, ebs(nil), 0, nil},
		"immediate by default": {"absent is Immediate", &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer}, ebs(nil), 0, []string{"storageClass.volumeBindingMode volumeBindingMode Immediate"}},
		"waits": {"as wanted", &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer}, func() *storagev1.StorageClass {
			c := ebs(nil)
			c.VolumeBindingMode = ptr(storagev1.VolumeBindingWaitForFirstConsumer)
			return c
		}(), 0, nil},
		"no growth":         {"absent is false", &v1alpha1.StorageClassRules{AllowVolumeExpansion: v1alpha1.Required}, ebs(nil), 0, []string{"storageClass.allowVolumeExpansion allowVolumeExpansion false"}},
		"growth":            {"as wanted", &v1alpha1.StorageClassRules{AllowVolumeExpansion: v1alpha1.Required}, func() *storagev1.StorageClass { c := ebs(nil); c.AllowVolumeExpansion = ptr(true); return c }(), 0, nil},
		"delete by default": {"absent is Delete", &v1alpha1.StorageClassRules{ReclaimPolicy: corev1.PersistentVolumeReclaimRetain}, ebs(nil), 0, []string{"storageClass.reclaimPolicy reclaimPolicy Delete"}},
		"retains": {"as wanted", &v1alpha1.StorageClassRules{ReclaimPolicy: corev1.PersistentVolumeReclaimRetain}, func() *storagev1.StorageClass {
			c := ebs(nil)
			c.ReclaimPolicy = ptr(corev1.PersistentVolumeReclaimRetain)
			return c
		}(), 0, nil},
		"iops at most":          {"the bound itself is allowed", iops, ebs(map[string]string{"iops": "16000"}), 0, nil},
		"iops":                  {"one more is not", iops, ebs(map[string]string{"IOPS": "16001"}), 0, []string{"storageClass.maxIOPS parameters.IOPS 16001"}},
		"iops per GiB":          {"by the size of the claim", iops, ebs(map[string]string{"iopsPerGB": "50"}), 321, []string{"storageClass.maxIOPS parameters.iopsPerGB 50 for each of 321 GiB"}},
		"iops per GiB, small":   {"which may be small enough", iops, ebs(map[string]string{"iopsPerGB": "50"}), 320, nil},
		"iops per GiB, huge":    {"and no number is too large to multiply", iops, ebs(map[string]string{"iopsPerGB": "9223372036854775807"}), 2, []string{"storageClass.maxIOPS parameters.iopsPerGB 9223372036854775807 for each of 2 GiB"}},
		"iops per GiB, no size": {"a class by itself has no size", iops, ebs(map[string]string{"iopsPerGB": "500"}), 0, nil},
		"iops of others":        {"others' parameters are theirs", iops, class("pd.csi.storage.gke.io", map[string]string{"iops": "99999"}), 0, nil},
		"no number":             {"the driver refuses it", iops, ebs(map[string]string{"iops": "many"}), 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, brief(Breaches(tc.rules, tc.class, tc.size))); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestAllowedByName(t *testing.T) {
	rules := &v1alpha1.StorageClassRules{Allowed: []string{"gp3"}, ReclaimPolicy: corev1.PersistentVolumeReclaimRetain}
	if got := brief(Allowed(rules, "gone")); len(got) != 1 {
		t.Errorf("a class that does not exist: %v, want the one rule that its name breaks", got)
	}
	if got := Allowed(rules, "gp3"); got != nil {
		t.Errorf("an allowed name: %v", got)
	}
	if got := Allowed(nil, "gp3"); got != nil {
		t.Errorf("no rules: %v", got)
	}
}

func brief(breaches []policy.Breach) []string {
	var lines []string
	for _, b := range breaches {
		lines = append(lines, string(b.Rule)+" "+b.Field+" "+b.Found)
	}
	return lines
}

// TestOtherDriversAreNotToldOfEBS: where a class of another driver breaks rules,
// nothing of what it is told is EBS's alone.
func TestOtherDriversAreNotToldOfEBS(t *testing.T) {
	const driver = "block.example.com"
	rules := &v1alpha1.StorageClassRules{
		Allowed: []string{"fast"}, InTreeProvisioners: v1alpha1.Forbidden, MaxIOPS: 100, VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer,
		AllowVolumeExpansion: v1alpha1.Required, ReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}, {Key: "media", Values: []string{"ssd"}, Provisioners: []string{driver}}},
	}
	var broken []v1alpha1.Rule
	for _, b := range Breaches(rules, class(driver, map[string]string{"media": "disk", "iops": "64000"}), 10) {
		broken = append(broken, b.Rule)
		text := strings.Join([]string{b.Field, b.Found, b.Wanted, b.Todo}, " ")
		for _, word := range []string{"EBS", "ebs", "AWS", "IOPS", "zone", "encrypted"} {
			if strings.Contains(text, word) {
				t.Errorf("%s tells a class of %s of %s: %s", b.Rule, driver, word, text)
			}
		}
	}
	want := []v1alpha1.Rule{v1alpha1.RuleClassAllowed, v1alpha1.RuleClassParameters, v1alpha1.RuleClassBindingMode, v1alpha1.RuleClassExpansion, v1alpha1.RuleClassReclaimPolicy}
	if diff := cmp.Diff(want, broken); diff != "" {
		t.Errorf("rules that are broken (-want +got)\n%s", diff)
	}
}
