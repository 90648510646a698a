package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Given is a SnapshotSchedule that a policy gives to the namespaces it matches.
type Given struct {
	// Object is the name of the SnapshotSchedule.
	Object string
	// Asked is the spec as the policy has it.
	Asked *v1alpha1.SnapshotScheduleSpec
	// Target is that of Asked, narrowed to the claims that the policy is about, but
	// for its provisioners: a target knows classes by name only.
	Target v1alpha1.SnapshotTarget
	// Contradiction is why no claim can be of both; nil: there can be some.
	Contradiction *field.Error
}

// Given are the schedules that the policy gives, in its order.
func (p *Policy) Given() []Given { return p.given }

// Provisioners are those whose classes alone the policy is about; none: all.
func (p *Policy) Provisioners() []string { return p.provisioners }

// given makes the schedules of a policy ready.
func given(p *v1alpha1.StoragePolicy) []Given {
	if p.Spec.Snapshots == nil {
		return nil
	}
	var all []Given
	for i := range p.Spec.Snapshots.Schedules {
		s := &p.Spec.Snapshots.Schedules[i]
		g := Given{Object: GivenName(p.Name, s.Name), Asked: &s.Spec}
		var why string
		g.Target, why = narrow(s.Spec.Target, p.Spec.Match)
		if why != "" {
			g.Contradiction = field.Invalid(GivenPath(i).Child("target"), why, "no claim is of the target and under the policy's match: give the schedule to a policy of its own")
		}
		all = append(all, g)
	}
	return all
}

// GivenPath is where the spec of a policy's schedule stands.
func GivenPath(i int) *field.Path {
	return field.NewPath("spec", "snapshots", "schedules").Index(i).Child("spec")
}

// GivenName is the name of the SnapshotSchedule that a policy gives: a label as
// well, since its copies carry it.
func GivenName(policy, name string) string {
	full := policy + "-" + name
	if len(full) <= validation.DNS1123LabelMaxLength {
		return full
	}
	// The hash of a label's value is lower-case, and what it cuts are names.
	return copies.LabelValue(full)
}

// narrow is a target of whose claims each is under a match too, as far as a
// target can say it; why is not empty where there can be no such claim.
func narrow(t v1alpha1.SnapshotTarget, m v1alpha1.PolicyMatch) (out v1alpha1.SnapshotTarget, why string) {
	out = *t.DeepCopy()
	out.ClaimSelector = both(t.ClaimSelector, m.ClaimSelector)
	if key := unsatisfiable(out.ClaimSelector); key != "" {
		return out, fmt.Sprintf("claimSelector and match.claimSelector contradict each other on the label %s", key)
	}
	switch {
	case len(m.StorageClassNames) == 0:
	case len(t.StorageClassNames) == 0:
		out.StorageClassNames = slices.Clone(m.StorageClassNames)
	default:
		out.StorageClassNames = Common(t.StorageClassNames, m.StorageClassNames)
		if len(out.StorageClassNames) == 0 {
			return out, fmt.Sprintf("storageClassNames %s and match.storageClassNames %s have no class in common",
				strings.Join(t.StorageClassNames, ", "), strings.Join(m.StorageClassNames, ", "))
		}
	}
	return out, ""
}

// Common are the names that are in both lists, in the order of the first.
func Common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// both is a selector of what two selectors both pick; nil picks everything.
func both(a, b *metav1.LabelSelector) *metav1.LabelSelector {
	if a == nil || b == nil {
		if a == nil {
			a = b
		}
		return a.DeepCopy()
	}
	out := a.DeepCopy()
	for _, key := range slices.Sorted(maps.Keys(b.MatchLabels)) {
		value := b.MatchLabels[key]
		switch had, has := out.MatchLabels[key]; {
		case !has && out.MatchLabels == nil:
			out.MatchLabels = map[string]string{key: value}
		case !has:
			out.MatchLabels[key] = value
		case had != value: // said so that nothing is lost: no claim has both
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	for _, r := range b.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, *r.DeepCopy())
	}
	return out
}

// wants is what the requirements of a selector come to for one label.
type wants struct {
	there, absent bool
	some          bool     // one of in is wanted
	in, out       []string // values that it must have one of, and that it must not have
}

// unsatisfiable is a label that no object can have as a selector wants it, the
// first by name; empty: there is none, or the selector cannot be read. Labels do
// not hang on each other, so each is looked at by itself.
func unsatisfiable(s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	labels := map[string]*wants{}
	of := func(key string) *wants {
		if labels[key] == nil {
			labels[key] = &wants{}
		}
		return labels[key]
	}
	for key, value := range s.MatchLabels {
		of(key).oneOf([]string{value})
	}
	for _, r := range s.MatchExpressions {
		switch w := of(r.Key); r.Operator {
		case metav1.LabelSelectorOpIn:
			w.oneOf(r.Values)
		case metav1.LabelSelectorOpNotIn:
			w.out = append(w.out, r.Values...)
		case metav1.LabelSelectorOpExists:
			w.there = true
		case metav1.LabelSelectorOpDoesNotExist:
			w.absent = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if w := labels[key]; w.absent && (w.there || w.some) || w.some && !slices.ContainsFunc(w.in, func(v string) bool { return !slices.Contains(w.out, v) }) {
			return key
		}
	}
	return ""
}

func (w *wants) oneOf(values []string) {
	if w.some {
		values = Common(w.in, values)
	}
	w.some, w.in = true, values
}
