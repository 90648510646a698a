package storageclass

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// The provisioners of EBS volumes. Rules on EBS's parameters hold for their
// classes and no others, unless the policy names others.
const (
	ebsProvisioner    = "ebs.csi.aws.com"
	inTreeProvisioner = "kubernetes.io/aws-ebs"
)

// Keys of EBS's parameters.
const (
	iops      = "iops"
	iopsPerGB = "iopsPerGB"

	volumeType = "type"
)

var ebsProvisioners = []string{ebsProvisioner, inTreeProvisioner}

// noProvisioner is the provisioner of classes for hand-made volumes. It looks
// like an in-tree driver and is none.
// https://kubernetes.io/docs/concepts/storage/storage-classes/#local
const noProvisioner = "kubernetes.io/no-provisioner"

// Breaches judges a class by all rules. sizeGiB is the size of the claim that
// names the class, 0 where the class is judged by itself.
func Breaches(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass, sizeGiB int64) []policy.Breach {
	if r == nil {
		return nil
	}
	var found []policy.Breach
	for _, judge := range []func(*v1alpha1.StorageClassRules, *storagev1.StorageClass) []policy.Breach{
		allowed, inTree, parameters, bindingMode, expansion, reclaimPolicy,
	} {
		found = append(found, judge(r, class)...)
	}
	return append(found, MaxIOPS(r, class.Provisioner, class.Parameters, sizeGiB)...)
}

// Allowed judges a class by its name alone, for a class that does not exist.
func Allowed(r *v1alpha1.StorageClassRules, name string) []policy.Breach {
	if r == nil {
		return nil
	}
	class := &storagev1.StorageClass{}
	class.Name = name
	return allowed(r, class)
}

func allowed(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	if len(r.Allowed) == 0 || slices.Contains(r.Allowed, class.Name) {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClassAllowed, Field: "metadata.name", Found: strconv.Quote(class.Name), Wanted: oneOf(r.Allowed),
		Todo: "use one of the allowed classes, or let the platform team add this one",
	}}
}

func inTree(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	if r.InTreeProvisioners != v1alpha1.Forbidden || !strings.HasPrefix(class.Provisioner, "kubernetes.io/") || class.Provisioner == noProvisioner {
		return nil
	}
	wanted, todo := "a CSI driver", "use the class of a CSI driver"
	if class.Provisioner == inTreeProvisioner {
		wanted, todo = strconv.Quote(ebsProvisioner), "make a class with provisioner "+ebsProvisioner+"; volumes of the old class go on through the migration"
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClassInTree, Field: "provisioner", Found: strconv.Quote(class.Provisioner), Wanted: wanted, Todo: todo,
	}}
}

// parameters judges each rule on the classes that it is about.
func parameters(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	var found []policy.Breach
	for _, rule := range r.Parameters {
		about := rule.Provisioners
		if len(about) == 0 {
			about = ebsProvisioners
		}
		if !slices.Contains(about, class.Provisioner) {
			continue
		}
		field, is := "parameters."+rule.Key, "not set"
		keys := spelled(class.Parameters, rule.Key)
		wrong := slices.IndexFunc(keys, func(key string) bool {
			return !slices.ContainsFunc(rule.Values, sameValue(class, key))
		})
		switch {
		case wrong >= 0:
			field, is = "parameters."+keys[wrong], strconv.Quote(class.Parameters[keys[wrong]])
		case len(keys) > 0:
			continue
		}
		found = append(found, policy.Breach{
			Rule: v1alpha1.RuleClassParameters, Field: field, Found: is, Wanted: oneOf(rule.Values),
			Todo: "set it: parameters cannot be changed, so make a class with the wanted value and move to it",
		})
	}
	return found
}

// spelled are the keys that are a wanted one in some case, sorted.
func spelled(parameters map[string]string, wanted ...string) []string {
	var keys []string
	for key := range parameters {
		if slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(key, w) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// sameValue compares a parameter with a wanted value as it is written. Only an EBS
// class's type may be in another case: it is that type, or none that can be made.
// Of encrypted, AWS's own driver takes every spelling but "true" for false; and
// aliases of keys differ by their case.
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
func sameValue(class *storagev1.StorageClass, key string) func(string) bool {
	value := class.Parameters[key]
	if strings.EqualFold(key, volumeType) && slices.Contains(ebsProvisioners, class.Provisioner) {
		return func(wanted string) bool { return strings.EqualFold(value, wanted) }
	}
	return func(wanted string) bool { return value == wanted }
}

func bindingMode(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	is := storagev1.VolumeBindingImmediate // the API's default
	if class.VolumeBindingMode != nil {
		is = *class.VolumeBindingMode
	}
	if r.VolumeBindingMode == "" || is == r.VolumeBindingMode {
		return nil
	}
	todo := "make a class with the wanted binding mode"
	if r.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		todo += ": a volume that is made before its Pod is placed can end where the Pod cannot run"
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClassBindingMode, Field: "volumeBindingMode", Found: string(is), Wanted: string(r.VolumeBindingMode), Todo: todo,
	}}
}

func expansion(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	if r.AllowVolumeExpansion != v1alpha1.Required || class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClassExpansion, Field: "allowVolumeExpansion", Found: "false", Wanted: "true",
		Todo: "set allowVolumeExpansion: true on the class, so that its volumes can grow",
	}}
}

func reclaimPolicy(r *v1alpha1.StorageClassRules, class *storagev1.StorageClass) []policy.Breach {
	is := corev1.PersistentVolumeReclaimDelete // the API's default
	if class.ReclaimPolicy != nil {
		is = *class.ReclaimPolicy
	}
	if r.ReclaimPolicy == "" || is == r.ReclaimPolicy {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClassReclaimPolicy, Field: "reclaimPolicy", Found: string(is), Wanted: string(r.ReclaimPolicy),
		Todo: "make a class with the wanted reclaim policy; volumes that exist have a policy of their own",
	}}
}

// MaxIOPS judges what the parameters of an EBS class, a StorageClass or a
// VolumeAttributesClass, give a volume: iops, or iopsPerGB times its size. A
// value that is no number is the driver's to refuse. sizeGiB is 0 where the
// size is not known.
func MaxIOPS(r *v1alpha1.StorageClassRules, provisioner string, parameters map[string]string, sizeGiB int64) []policy.Breach {
	if r == nil || r.MaxIOPS == 0 || !slices.Contains(ebsProvisioners, provisioner) {
		return nil
	}
	var found []policy.Breach
	for _, key := range spelled(parameters, iops, iopsPerGB) {
		perGiB := strings.EqualFold(key, iopsPerGB)
		n, err := strconv.ParseInt(parameters[key], 10, 64)
		if err != nil {
			continue
		}
		is := strconv.FormatInt(n, 10)
		if perGiB && sizeGiB > 0 && n > int64(r.MaxIOPS)/sizeGiB {
			is = fmt.Sprintf("%d for each of %d GiB", n, sizeGiB)
			n = int64(r.MaxIOPS) + 1
		}
		if n > int64(r.MaxIOPS) {
			found = append(found, policy.Breach{
				Rule: v1alpha1.RuleClassMaxIOPS, Field: "parameters." + key, Found: is, Wanted: fmt.Sprintf("at most %d IOPS", r.MaxIOPS),
				Todo: "use a class with fewer IOPS",
			})
		}
	}
	return found
}

// oneOf lists what is allowed.
func oneOf(values []string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, strconv.Quote(v))
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "one of " + strings.Join(quoted, ", ")
}
