package claim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
)

// Subject is a claim with what its rules need to know besides.
type Subject struct {
	Name string
	Spec corev1.PersistentVolumeClaimSpec
	// ClassName is the class, the default class resolved; empty: static.
	ClassName string
	// Class is the class itself; nil where it does not exist, or for a static claim.
	Class *storagev1.StorageClass
	// Attributes is the VolumeAttributesClass that the claim names; nil where it
	// names none or the class does not exist.
	Attributes *storagev1.VolumeAttributesClass
	// Before is the spec before the update; nil at a creation and for what exists.
	Before *corev1.PersistentVolumeClaimSpec
	// Cover is whether a schedule copies it.
	Cover Cover
}

// Breaches judges a claim by all rules of a policy.
func Breaches(p *policy.Policy, s Subject) []policy.Breach {
	return append(guarded(p.Guardrails, s), snapshots(p, s)...)
}

// guarded judges a claim by the rules of the guardrails.
func guarded(g *v1alpha1.Guardrails, s Subject) []policy.Breach {
	if g == nil {
		return nil
	}
	found := class(g, s)
	found = append(found, attributesClass(g, s)...)
	found = append(found, attributesIOPS(g, s)...)
	if g.Claim == nil {
		return found
	}
	for _, judge := range []func(*v1alpha1.ClaimRules, Subject) []policy.Breach{minSize, maxSize, maxGrowth, accessModes, volumeModes} {
		found = append(found, judge(g.Claim, s)...)
	}
	return found
}

// class judges the class that the claim names, in the claim's words.
func class(g *v1alpha1.Guardrails, s Subject) []policy.Breach {
	var found []policy.Breach
	switch {
	case s.ClassName == "": // static: nothing is provisioned by it
		return nil
	case s.Class == nil:
		found = storageclass.Allowed(g.StorageClass, s.ClassName)
	default:
		found = storageclass.Breaches(g.StorageClass, s.Class, sizeGiB(s.Spec))
	}
	for i, b := range found {
		if b.Rule != v1alpha1.RuleClassAllowed {
			found[i].Found = fmt.Sprintf("%q, whose %s is %s", s.ClassName, b.Field, b.Found)
			found[i].Wanted = fmt.Sprintf("a class whose %s is %s", b.Field, b.Wanted)
			found[i].Todo = "name another class; `kubectl get storagepolicy -o yaml` lists those that keep the policy under compliantStorageClasses"
		}
		found[i].Field = "spec.storageClassName"
	}
	return found
}

// sizeGiB is the size asked for, rounded up as EBS does.
func sizeGiB(spec corev1.PersistentVolumeClaimSpec) int64 {
	size := bytes(sizeOf(spec))
	const gib = 1 << 30
	return size/gib + min(1, size%gib)
}

// bytes is a size as a number, the largest there is for one that has none: a
// Quantity such as 10E says that it is of 0 bytes.
func bytes(size resource.Quantity) int64 {
	if size.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return size.Value()
}

func sizeOf(spec corev1.PersistentVolumeClaimSpec) resource.Quantity {
	return spec.Resources.Requests[corev1.ResourceStorage]
}

func attributesClass(g *v1alpha1.Guardrails, s Subject) []policy.Breach {
	if g.AttributesClass == nil || s.Spec.VolumeAttributesClassName == nil || *s.Spec.VolumeAttributesClassName == "" {
		return nil
	}
	name := *s.Spec.VolumeAttributesClassName
	if slices.Contains(g.AttributesClass.Allowed, name) {
		return nil
	}
	wanted := "none"
	if len(g.AttributesClass.Allowed) > 0 {
		wanted = "none, or one of " + strings.Join(g.AttributesClass.Allowed, ", ")
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleAttributesClass, Field: "spec.volumeAttributesClassName", Found: strconv.Quote(name), Wanted: wanted,
		Todo: "name an allowed class, or let the platform team add this one",
	}}
}

// attributesIOPS judges what the claim's VolumeAttributesClass gives, which
// comes before what its StorageClass does.
func attributesIOPS(g *v1alpha1.Guardrails, s Subject) []policy.Breach {
	if s.Attributes == nil {
		return nil
	}
	found := storageclass.MaxIOPS(g.StorageClass, s.Attributes.DriverName, s.Attributes.Parameters, sizeGiB(s.Spec))
	for i, b := range found {
		found[i].Field = "spec.volumeAttributesClassName"
		found[i].Found = fmt.Sprintf("%q, whose %s is %s", s.Attributes.Name, b.Field, b.Found)
		found[i].Wanted = fmt.Sprintf("a class whose %s is %s", b.Field, b.Wanted)
		found[i].Todo = "name a class with fewer IOPS, or none"
	}
	return found
}

const sizeField = "spec.resources.requests.storage"

// minSize is judged where the claim is made or made smaller: growing towards
// the bound is no breach.
func minSize(r *v1alpha1.ClaimRules, s Subject) []policy.Breach {
	size := sizeOf(s.Spec)
	if r.MinSize == nil || size.Cmp(*r.MinSize) >= 0 {
		return nil
	}
	if s.Before != nil {
		if before := sizeOf(*s.Before); size.Cmp(before) >= 0 {
			return nil
		}
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClaimMinSize, Field: sizeField, Found: size.String(), Wanted: "at least " + r.MinSize.String(), Todo: "ask for more",
	}}
}

// maxSize is not judged where the claim is made smaller, which Kubernetes allows
// after a growth that failed, down to what the volume has: that may be more than
// the bound.
func maxSize(r *v1alpha1.ClaimRules, s Subject) []policy.Breach {
	size := sizeOf(s.Spec)
	if r.MaxSize == nil || size.Cmp(*r.MaxSize) <= 0 {
		return nil
	}
	if s.Before != nil {
		if before := sizeOf(*s.Before); size.Cmp(before) < 0 {
			return nil
		}
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClaimMaxSize, Field: sizeField, Found: size.String(), Wanted: "at most " + r.MaxSize.String(),
		Todo: "ask for less, or let the platform team raise the bound",
	}}
}

func maxGrowth(r *v1alpha1.ClaimRules, s Subject) []policy.Breach {
	if r.MaxGrowthPercent == 0 || s.Before == nil {
		return nil
	}
	size, before := sizeOf(s.Spec), sizeOf(*s.Before)
	most := float64(bytes(before)) * (1 + float64(r.MaxGrowthPercent)/100)
	if before.Sign() <= 0 || float64(bytes(size)) <= most {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClaimMaxGrowth, Field: sizeField, Found: fmt.Sprintf("%s after %s", size.String(), before.String()),
		Wanted: fmt.Sprintf("at most %d %% more at once, which is %s", r.MaxGrowthPercent, resource.NewQuantity(int64(math.Floor(most)), resource.BinarySI)),
		Todo:   "grow in steps, and check that the number has no digit too many: a claim cannot be made smaller again",
	}}
}

func accessModes(r *v1alpha1.ClaimRules, s Subject) []policy.Breach {
	var found []policy.Breach
	for i, mode := range s.Spec.AccessModes {
		if len(r.AccessModes) > 0 && !slices.Contains(r.AccessModes, mode) {
			found = append(found, policy.Breach{
				Rule: v1alpha1.RuleClaimAccessModes, Field: fmt.Sprintf("spec.accessModes[%d]", i), Found: string(mode), Wanted: oneOf(r.AccessModes),
				Todo: "ask for an allowed access mode",
			})
		}
	}
	return found
}

func volumeModes(r *v1alpha1.ClaimRules, s Subject) []policy.Breach {
	mode := corev1.PersistentVolumeFilesystem // the API's default
	if s.Spec.VolumeMode != nil {
		mode = *s.Spec.VolumeMode
	}
	if len(r.VolumeModes) == 0 || slices.Contains(r.VolumeModes, mode) {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleClaimVolumeModes, Field: "spec.volumeMode", Found: string(mode), Wanted: oneOf(r.VolumeModes), Todo: "ask for an allowed volume mode",
	}}
}

// oneOf lists what is allowed.
func oneOf[T ~string](values []T) string {
	var names []string
	for _, v := range values {
		names = append(names, string(v))
	}
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}
