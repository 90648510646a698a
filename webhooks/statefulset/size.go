package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Declared are the sizes that a set's annotation holdfast.dev/size declares for
// the claims of its templates, by template; and all that is wrong with it. It is
// written "data=20Gi,wal=5Gi".
func Declared(set *appsv1.StatefulSet) (map[string]resource.Quantity, []string) {
	text, is := set.Annotations[v1alpha1.AnnotationSize]
	if !is {
		return nil, nil
	}
	sizes := map[string]resource.Quantity{}
	var wrong []string
	fail := func(part, found, wanted string) {
		wrong = append(wrong, fmt.Sprintf("annotation %s: %q %s: %s", v1alpha1.AnnotationSize, part, found, wanted))
	}
	for part := range strings.SplitSeq(text, ",") {
		template, size, pair := strings.Cut(strings.TrimSpace(part), "=")
		q, err := resource.ParseQuantity(strings.TrimSpace(size))
		_, twice := sizes[template]
		switch {
		case !pair:
			fail(part, "is no template and size", `write it as "data=20Gi", and several with commas between them`)
		case templateNamed(set, template) == nil:
			fail(part, "names no volumeClaimTemplate of the set", "it has "+strings.Join(templateNames(set), ", "))
		case twice:
			fail(part, "names its template for the second time", "give each one size")
		case err != nil:
			fail(part, "has no quantity as its size", "write it as 20Gi")
		case q.Sign() <= 0:
			fail(part, "asks for no bytes", "write it as 20Gi")
		case q.Value() <= 0:
			fail(part, "asks for more bytes than there are", "write it as 20Gi")
		default:
			sizes[template] = q
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return sizes, nil
}

func templateNamed(set *appsv1.StatefulSet, name string) *corev1.PersistentVolumeClaim {
	at := slices.IndexFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool { return t.Name == name })
	if at < 0 {
		return nil
	}
	return &set.Spec.VolumeClaimTemplates[at]
}

func templateNames(set *appsv1.StatefulSet) []string {
	names := []string{}
	for _, t := range set.Spec.VolumeClaimTemplates {
		names = append(names, t.Name)
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}

// Growing is the policy by which the claims of a set's template grow; nil: they
// are under none that has an expansion. doubt says which policy that cannot be read
// may have another say; empty: none.
func Growing(ctx context.Context, w *world.World, set *appsv1.StatefulSet, template string) (p *policy.Policy, doubt string, err error) {
	at := slices.IndexFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool { return t.Name == template })
	if at < 0 {
		return nil, "", nil
	}
	policies, err := w.Policies(ctx)
	if err != nil {
		return nil, "", err
	}
	c, err := claimOf(ctx, w, policies, set, at)
	if err != nil {
		return nil, "", err
	}
	return GrowingOf(ctx, w, c)
}

// GrowingOf is the same of a claim.
func GrowingOf(ctx context.Context, w *world.World, c *corev1.PersistentVolumeClaim) (p *policy.Policy, doubt string, err error) {
	ready, unready, err := w.AllPolicies(ctx)
	if err != nil || len(ready) == 0 && len(unready) == 0 {
		return nil, "", err
	}
	_, of, err := claim.Look(ctx, w, c)
	if err != nil {
		return nil, "", err
	}
	p = policy.Growing(ready, of)
	return p, policy.GrowthInDoubt(unready, p, of), nil
}

// ActionOf is what a policy has become of templates that claims have outgrown;
// nil is no policy.
func ActionOf(p *policy.Policy) v1alpha1.TemplateAction {
	if p == nil || p.Expansion == nil || p.Expansion.StatefulSetTemplate == "" {
		return v1alpha1.RaiseAtCreate
	}
	return p.Expansion.StatefulSetTemplate
}

// SizeOf is the size that a new claim of a living set is given, where that is more
// than it asks for:
//
//	of no set, or of two, by name and labels          none
//	its policy has no expansion, and the set declares none
//	no size for the template
//	its policy says Report                            none
//	a policy that cannot be read may bound it         none: it grows later
//	else  the largest of its siblings, which carry the set's stamp, and of what is
//	      declared; at most the policy's maxSize, what guardrails that deny let it have,
//	      and its own annotation holdfast.dev/max-size
//	that cannot be read, or guardrails refuse the     none
//	IOPS that come with the size
//
// Where no webhook answers, the claim is made as it asks, and grows later.
func SizeOf(ctx context.Context, w *world.World, c *corev1.PersistentVolumeClaim) (*resource.Quantity, error) {
	set, template, err := setOf(ctx, w, c)
	if err != nil || set == nil {
		return nil, err
	}
	policies, unready, err := w.AllPolicies(ctx)
	if err != nil {
		return nil, err
	}
	subject, of, err := claim.Look(ctx, w, c)
	if err != nil {
		return nil, err
	}
	p := policy.Growing(policies, of)
	if policy.GrowthInDoubt(unready, p, of) != "" {
		return nil, nil
	}
	declared, _ := Declared(set)
	size, isDeclared := declared[template]
	if p == nil && !isDeclared || ActionOf(p) == v1alpha1.ReportTemplate {
		return nil, nil
	}
	claims, err := w.Claims(ctx, c.Namespace)
	if err != nil {
		return nil, err
	}
	for i := range claims {
		if !isSibling(set, template, &claims[i]) {
			continue
		}
		if q := sizeAhead(&claims[i]); q.Cmp(size) > 0 {
			size = q
		}
	}
	denies := func(p *policy.Policy, rule v1alpha1.Rule) bool {
		return p.MatchesClaim(of) && p.ActionOf(rule) == v1alpha1.Deny && !p.Exempts(rule, c.Labels, of.Namespace, w.Now())
	}
	if size = bounded(size, p, policies, denies); held(c, &size) || dearer(policies, subject, denies, size) {
		return nil, nil
	}
	if asked, is := c.Spec.Resources.Requests[corev1.ResourceStorage]; !is || size.Cmp(asked) <= 0 {
		return nil, nil
	}
	if limit, is := c.Spec.Resources.Limits[corev1.ResourceStorage]; is && limit.Cmp(size) < 0 {
		return nil, nil // the API server would refuse it
	}
	return &size, nil
}

// setOf is the living set that a claim is of by its name and its labels, and the
// template; nil where there is none, or two.
func setOf(ctx context.Context, w *world.World, c *corev1.PersistentVolumeClaim) (*appsv1.StatefulSet, string, error) {
	sets, err := w.StatefulSets(ctx, c.Namespace)
	if err != nil {
		return nil, "", err
	}
	var found *appsv1.StatefulSet
	var template string
	for i := range sets {
		set := &sets[i]
		if set.DeletionTimestamp != nil || !Selects(set, c) {
			continue
		}
		for _, t := range set.Spec.VolumeClaimTemplates {
			if _, is := OrdinalOf(c.Name, t.Name, set.Name); !is {
				continue
			}
			if found != nil {
				return nil, "", nil
			}
			found, template = set, t.Name
		}
	}
	return found, template, nil
}

// Selects says whether a claim carries the labels that the StatefulSet controller
// gives: those of the set's selector.
func Selects(set *appsv1.StatefulSet, c *corev1.PersistentVolumeClaim) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(c.Labels))
}

// isSibling says whether a claim is one of a template of a set, by its stamp and its
// name: whoever copies a claim's manifest copies its stamp.
func isSibling(set *appsv1.StatefulSet, template string, c *corev1.PersistentVolumeClaim) bool {
	_, fits := OrdinalOf(c.Name, template, set.Name)
	return fits && c.DeletionTimestamp == nil && c.Annotations[v1alpha1.AnnotationSetUID] == string(set.UID) && c.Annotations[v1alpha1.AnnotationSetTemplate] == template
}

// sizeAhead is the size that a claim has or comes to: what it asks for, or what it
// has where the driver found that impossible. A new claim could not have it either.
func sizeAhead(c *corev1.PersistentVolumeClaim) resource.Quantity {
	if Infeasible(c) {
		return c.Status.Capacity[corev1.ResourceStorage]
	}
	return c.Spec.Resources.Requests[corev1.ResourceStorage]
}

// Infeasible says whether the driver has given up on the size that a claim asks for.
// Then Kubernetes lets another one be asked for, above what the claim has.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#recovering-from-failure-when-expanding-volumes
func Infeasible(c *corev1.PersistentVolumeClaim) bool {
	of := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	return of == corev1.PersistentVolumeClaimControllerResizeInfeasible || of == corev1.PersistentVolumeClaimNodeResizeInfeasible
}

// ClaimsOf are the claims of a set's template, by their stamp, whose ordinals it
// has; sorted by name.
func ClaimsOf(set *appsv1.StatefulSet, template string, claims []corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	var own []*corev1.PersistentVolumeClaim
	for i := range claims {
		c := &claims[i]
		if c.Annotations[v1alpha1.AnnotationSetUID] != string(set.UID) || c.Annotations[v1alpha1.AnnotationSetTemplate] != template {
			continue
		}
		if ordinal, is := OrdinalOf(c.Name, template, set.Name); is && InRange(set, ordinal) {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b *corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return own
}

// Resizing says whether a change of a claim's size or attributes is not over.
func Resizing(c *corev1.PersistentVolumeClaim) bool {
	return len(c.Status.AllocatedResourceStatuses) > 0 || Modifying(c) ||
		isTrue(c, corev1.PersistentVolumeClaimResizing) || isTrue(c, corev1.PersistentVolumeClaimFileSystemResizePending)
}

// Modifying says whether a change of a claim's attributes is not over. From when
// its class is named until somebody takes that up, only the spec tells of it. One
// that the driver finds impossible is over, unless another class was named since:
// its volume can grow.
// https://kubernetes.io/docs/concepts/storage/volume-attributes-classes/
func Modifying(c *corev1.PersistentVolumeClaim) bool {
	if isTrue(c, corev1.PersistentVolumeClaimVolumeModifyingVolume) {
		return true
	}
	asked, has := nameOf(c.Spec.VolumeAttributesClassName), nameOf(c.Status.CurrentVolumeAttributesClassName)
	if m := c.Status.ModifyVolumeStatus; m != nil {
		return m.Status != corev1.PersistentVolumeClaimModifyVolumeInfeasible || asked != "" && asked != m.TargetVolumeAttributesClassName
	}
	return asked != "" && asked != has
}

func isTrue(c *corev1.PersistentVolumeClaim, condition corev1.PersistentVolumeClaimConditionType) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(of corev1.PersistentVolumeClaimCondition) bool {
		return of.Type == condition && of.Status == corev1.ConditionTrue
	})
}

func nameOf(class *string) string {
	if class == nil {
		return ""
	}
	return *class
}

// bounded is a size, or less where policies let a claim have no more: one that only
// warns, or lets the claim off, would not refuse it. Drivers round up to whole GiB, so
// maxSize is taken down to them, as growth does.
func bounded(size resource.Quantity, growing *policy.Policy, policies []*policy.Policy, denies func(*policy.Policy, v1alpha1.Rule) bool) resource.Quantity {
	if growing != nil && growing.Expansion.MaxSize.Cmp(size) < 0 {
		const gib = 1 << 30
		size = *resource.NewQuantity(growing.Expansion.MaxSize.Value()/gib*gib, resource.BinarySI)
	}
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.Claim == nil || p.Guardrails.Claim.MaxSize == nil || !denies(p, v1alpha1.RuleClaimMaxSize) {
			continue
		}
		if p.Guardrails.Claim.MaxSize.Cmp(size) < 0 {
			size = *p.Guardrails.Claim.MaxSize
		}
	}
	return size
}

// held takes a size down to what the claim's own annotation holds it to, as a
// template may have it; true: that cannot be read, and nobody knows.
func held(c *corev1.PersistentVolumeClaim, size *resource.Quantity) bool {
	text, is := c.Annotations[v1alpha1.AnnotationMaxSize]
	if !is {
		return false
	}
	most, err := resource.ParseQuantity(text)
	if err == nil && most.Cmp(*size) < 0 {
		*size = most
	}
	return err != nil
}

// dearer says whether a claim is refused at a size for the IOPS that come with it, by
// the GiB: then the set would have no new replica at all.
func dearer(policies []*policy.Policy, s claim.Subject, denies func(*policy.Policy, v1alpha1.Rule) bool, size resource.Quantity) bool {
	s.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	return slices.ContainsFunc(policies, func(p *policy.Policy) bool {
		return denies(p, v1alpha1.RuleClassMaxIOPS) &&
			slices.ContainsFunc(claim.Breaches(p, s), func(b policy.Breach) bool { return b.Rule == v1alpha1.RuleClassMaxIOPS })
	})
}

// judgeSizes says what is wrong with the sizes that a set declares, where it has
// not declared the same before.
//
//	unreadable, or of no template   refused
//	above the policy's maxSize      refused
//	below what the template asks    warned of: claims never shrink
func judgeSizes(ctx context.Context, w *world.World, old, now *appsv1.StatefulSet) (forbidden string, warnings []string, err error) {
	if old != nil && old.Annotations[v1alpha1.AnnotationSize] == now.Annotations[v1alpha1.AnnotationSize] {
		return "", nil, nil
	}
	sizes, wrong := Declared(now)
	for _, template := range slices.Sorted(maps.Keys(sizes)) {
		size := sizes[template]
		part := fmt.Sprintf("annotation %s: %s=%s", v1alpha1.AnnotationSize, template, size.String())
		if asked := templateNamed(now, template).Spec.Resources.Requests[corev1.ResourceStorage]; size.Cmp(asked) < 0 {
			warnings = append(warnings, fmt.Sprintf("%s is less than the %s of the volumeClaimTemplate, and does nothing: claims never shrink", part, asked.String()))
		}
		p, _, err := Growing(ctx, w, now, template) // what is in doubt is told when claims are to grow
		if err != nil {
			return "", nil, err
		}
		if p != nil && size.Cmp(p.Expansion.MaxSize) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s is above the expansion.maxSize of StoragePolicy %s, which is %s: declare at most that, or have the policy raised", part, p.Name, p.Expansion.MaxSize.String()))
		}
	}
	return strings.Join(wrong, "; "), warnings, nil
}
