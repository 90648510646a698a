package policyschedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Observed is what there is to plan by.
type Observed struct {
	// Label is the policy's name as its schedules carry it.
	Label string
	// Policy is ready to judge with; nil: there is none of that name.
	Policy     *policy.Policy
	Namespaces []policy.Namespace
	// Schedules are those of the whole cluster.
	Schedules []v1alpha1.SnapshotSchedule
	// Classes are the StorageClasses of the policy's provisioners, and Gone by
	// namespace those that claims name whose class is gone and that are of one of
	// the provisioners. Both count only where the policy names provisioners.
	Classes []string
	Gone    map[string][]string
}

// Plan is what is to be done.
type Plan struct {
	Create []*v1alpha1.SnapshotSchedule
	Change []Change
	Delete []*v1alpha1.SnapshotSchedule
	// Edited are schedules that their owners have edited, Taken names that are
	// somebody else's; each as namespace/name, sorted.
	Edited, Taken []string
	// Problems are why schedules cannot be given.
	Problems []Problem
}

// Change is a schedule as it is and as it is to be.
type Change struct{ From, To *v1alpha1.SnapshotSchedule }

// Problem is why a schedule of a policy cannot be given.
type Problem struct {
	Reason string
	// Message names the field, what was found and what to do.
	Message string
}

// key is the full name of a schedule.
type key struct{ namespace, name string }

// Decide says what is to be done for one policy, as the table in doc.go has it.
func Decide(seen Observed) Plan {
	there := map[key]*v1alpha1.SnapshotSchedule{}
	for i := range seen.Schedules {
		s := &seen.Schedules[i]
		there[key{s.Namespace, s.Name}] = s
	}
	var p Plan
	wanted := map[key]bool{}
	namespaces := map[string]policy.Namespace{}
	refused := refusedOf(seen.Policy)
	for _, problem := range refused {
		p.problem(problem)
	}
	for _, n := range seen.Namespaces {
		namespaces[n.Name] = n
		if seen.Policy == nil || n.Terminating || !seen.Policy.MatchesNamespace(n) {
			continue
		}
		for i, g := range seen.Policy.Given() {
			k := key{n.Name, g.Object}
			wanted[k] = true
			if refused[i].Reason != "" {
				continue // what is there stays as it is
			}
			spec, problem := specOf(seen, g, n.Name)
			if problem.Reason != "" {
				p.problem(problem)
				continue
			}
			p.give(seen.Label, k, spec, there[k])
		}
	}
	for k, s := range there {
		n, known := namespaces[k.namespace]
		if s.Labels[v1alpha1.LabelPolicy] == seen.Label && !wanted[k] && known && !n.Terminating && s.DeletionTimestamp == nil && !edited(s) {
			p.Delete = append(p.Delete, s)
		}
	}
	slices.SortFunc(p.Delete, func(a, b *v1alpha1.SnapshotSchedule) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(p.Edited)
	slices.Sort(p.Taken)
	return p
}

// refusedOf are the schedules of a policy that can be given nowhere, by their
// place in it; the others are empty.
func refusedOf(p *policy.Policy) []Problem {
	if p == nil {
		return nil
	}
	all := make([]Problem, len(p.Given()))
	for i, g := range p.Given() {
		errs := refusals(p, i)
		switch {
		case len(errs) == 0:
		case len(errs) == 1 && g.Contradiction != nil:
			all[i] = Problem{v1alpha1.ReasonContradictoryTarget, errs.ToAggregate().Error()}
		default:
			all[i] = Problem{v1alpha1.ReasonInvalidSchedule, errs.ToAggregate().Error()}
		}
	}
	return all
}

// problem is told once, in how many namespaces it may be.
func (p *Plan) problem(problem Problem) {
	if problem.Reason != "" && !slices.Contains(p.Problems, problem) {
		p.Problems = append(p.Problems, problem)
	}
}

// give plans one schedule in one namespace; there is nil where it is not there.
func (p *Plan) give(label string, k key, spec v1alpha1.SnapshotScheduleSpec, there *v1alpha1.SnapshotSchedule) {
	full := k.namespace + "/" + k.name
	switch {
	case there == nil:
		p.Create = append(p.Create, &v1alpha1.SnapshotSchedule{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: k.namespace, Name: k.name,
				Labels:      map[string]string{v1alpha1.LabelPolicy: label},
				Annotations: map[string]string{v1alpha1.AnnotationPolicyGeneration: generation(1)},
			},
			Spec: spec,
		})
	case there.Labels[v1alpha1.LabelPolicy] != label:
		p.Taken = append(p.Taken, full)
	case there.DeletionTimestamp != nil: // it is made again when it has gone
	case equality.Semantic.DeepEqual(there.Spec, spec):
		if edited(there) || handedBack(there) { // an edit that was taken back
			p.Change = append(p.Change, Change{there, written(there, spec, there.Generation)})
		}
	case edited(there) && !handedBack(there):
		p.Edited = append(p.Edited, full)
	default:
		p.Change = append(p.Change, Change{there, written(there, spec, there.Generation+1)})
	}
}

// edited says whether somebody has changed the spec since we wrote it.
func edited(s *v1alpha1.SnapshotSchedule) bool {
	return s.Annotations[v1alpha1.AnnotationPolicyGeneration] != generation(s.Generation)
}

// handedBack says whether the owner of an edited schedule wants the policy's back.
func handedBack(s *v1alpha1.SnapshotSchedule) bool {
	_, is := s.Annotations[v1alpha1.AnnotationFollowPolicy]
	return is
}

func generation(n int64) string { return strconv.FormatInt(n, 10) }

// written is a schedule with a spec, and with the generation that it has then.
func written(s *v1alpha1.SnapshotSchedule, spec v1alpha1.SnapshotScheduleSpec, then int64) *v1alpha1.SnapshotSchedule {
	out := s.DeepCopy()
	out.Spec = spec
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[v1alpha1.AnnotationPolicyGeneration] = generation(then)
	delete(out.Annotations, v1alpha1.AnnotationFollowPolicy)
	return out
}

// maxClasses is how many StorageClasses a target can name.
const maxClasses = 64

// specOf is the spec that a namespace is given. A target knows classes and no
// provisioners, so those are resolved to the classes of theirs.
func specOf(seen Observed, g policy.Given, namespace string) (v1alpha1.SnapshotScheduleSpec, Problem) {
	spec := *g.Asked.DeepCopy()
	spec.Target = *g.Target.DeepCopy()
	provisioners := seen.Policy.Provisioners()
	if len(provisioners) == 0 {
		return spec, Problem{}
	}
	classes := append(slices.Clone(seen.Classes), seen.Gone[namespace]...)
	if len(spec.Target.StorageClassNames) > 0 {
		classes = policy.Common(classes, spec.Target.StorageClassNames)
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	of := fmt.Sprintf("spec.match.provisioners: %s", strings.Join(provisioners, ", "))
	switch {
	case len(classes) == 0: // an empty list would be every class
		return spec, Problem{v1alpha1.ReasonNoStorageClass, fmt.Sprintf("%s: there is no StorageClass of these that schedule %s may copy claims of; it is given when there is one", of, g.Object)}
	case len(classes) > maxClasses:
		return spec, Problem{v1alpha1.ReasonTooManyClasses, fmt.Sprintf("%s: %d StorageClasses are of these, and schedule %s can name %d: name classes in match.storageClassNames", of, len(classes), g.Object, maxClasses)}
	}
	spec.Target.StorageClassNames = classes
	return spec, Problem{}
}

// LabelOf is the name of a policy as its schedules carry it.
func LabelOf(name string) string { return copies.LabelValue(name) }
