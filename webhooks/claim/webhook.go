package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges claims.
type Webhook struct {
	World      *world.World
	Authorizer world.Authorizer
	// SizeOf is the size that a new claim is given where it asks for less; nil:
	// what it asks for.
	SizeOf func(context.Context, *world.World, *corev1.PersistentVolumeClaim) (*resource.Quantity, error)
}

// Validate judges the creation, change or deletion of a claim.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	old, now, err := decode(req)
	if err != nil {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.delete(ctx, old)
	}
	// What is being deleted is protected no more, and whoever takes its finalizer off
	// may take labels off with it.
	if old != nil && now.DeletionTimestamp != nil && equality.Semantic.DeepEqual(old.Spec, now.Spec) {
		return admit.Answer{}, nil
	}
	findings, err := h.findings(ctx, now, old, old == nil)
	if err != nil {
		return admit.Answer{}, err
	}
	answer := admit.Answer{Findings: findings}
	if old != nil {
		before, err := h.findings(ctx, old, nil, false)
		if err != nil {
			return admit.Answer{}, err
		}
		answer.Findings = policy.Ratchet(copiedByNobody(before, old), findings)
	}
	answer.Forbidden, err = h.mayOverride(ctx, req, old, now)
	return answer, err
}

// copiedByNobody adds to what was wrong with a claim that opted out that no
// schedule covered it: whoever takes the opt-out off makes nothing worse, also
// where the schedule is still to come.
func copiedByNobody(before []policy.Finding, old *corev1.PersistentVolumeClaim) []policy.Finding {
	for _, f := range before {
		if f.Rule == v1alpha1.RuleSnapshotsRequired {
			f.Breach = notCovered(old.Name)
			before = append(before, f)
		}
	}
	return before
}

// decode reads the claims of a request; nil where there is none.
func decode(req *admit.Request) (old, now *corev1.PersistentVolumeClaim, err error) {
	if len(req.OldObject.Raw) > 0 {
		old = &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return nil, nil, fmt.Errorf("read the claim as it was: %w", err)
		}
	}
	if len(req.Object.Raw) > 0 && req.Operation != admissionv1.Delete {
		now = &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal(req.Object.Raw, now); err != nil {
			return nil, nil, fmt.Errorf("read the claim: %w", err)
		}
		now.Namespace = req.Namespace
	}
	if old != nil {
		old.Namespace = req.Namespace
	}
	return old, now, nil
}

// findings judges a claim as it is by every policy that it is under.
func (h *Webhook) findings(ctx context.Context, claim, before *corev1.PersistentVolumeClaim, isNew bool) ([]policy.Finding, error) {
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return nil, err
	}
	subject, of, err := Look(ctx, h.World, claim)
	if err != nil {
		return nil, err
	}
	if before != nil {
		subject.Before = &before.Spec
	}
	if subject.Cover, err = CoverOf(ctx, h.World, policies, claim, of, isNew); err != nil {
		return nil, err
	}
	var found []policy.Finding
	for _, p := range policies {
		if p.MatchesClaim(of) {
			found = append(found, p.Findings(Breaches(p, subject), claim.Labels, of.Namespace, h.World.Now())...)
		}
	}
	return found, nil
}

// Annotations that the volume controller gives a claim that is to be provisioned,
// with the provisioner of its class at that time.
// https://kubernetes.io/docs/reference/labels-annotations-taints/#volume-kubernetes-io-storage-provisioner
const (
	provisioner    = "volume.kubernetes.io/storage-provisioner"
	oldProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
)

// Look is all that is to be known of a claim to judge it. Where its class is gone
// the claim itself tells its provisioner: its volume is still there to protect.
func Look(ctx context.Context, w *world.World, claim *corev1.PersistentVolumeClaim) (Subject, policy.Claim, error) {
	namespace, err := w.Namespace(ctx, claim.Namespace)
	if err != nil {
		return Subject{}, policy.Claim{}, err
	}
	name, class, err := w.ClassOfClaim(ctx, claim.Annotations, &claim.Spec)
	if err != nil {
		return Subject{}, policy.Claim{}, err
	}
	of := policy.Claim{Namespace: namespace, Labels: claim.Labels, ClassName: name}
	if class != nil {
		of.Provisioner = class.Provisioner
	} else {
		of.Provisioner = ProvisionerOf(claim)
	}
	attributes, err := w.AttributesClass(ctx, claim.Spec.VolumeAttributesClassName)
	return Subject{Name: claim.Name, Spec: claim.Spec, ClassName: name, Class: class, Attributes: attributes}, of, err
}

// ProvisionerOf is the provisioner that the volume controller wrote on a claim;
// empty where it did not.
func ProvisionerOf(claim *corev1.PersistentVolumeClaim) string {
	return cmp.Or(claim.Annotations[provisioner], claim.Annotations[oldProvisioner])
}

// delete judges the deletion of a claim.
//
//	being deleted already                        nothing changes
//	its namespace is being deleted               was judged with the namespace
//	belongs to a Pod (generic ephemeral volume)  goes with the Pod, by design
//	else                                         as the policies protect it
func (h *Webhook) delete(ctx context.Context, claim *corev1.PersistentVolumeClaim) (admit.Answer, error) {
	if claim == nil || claim.DeletionTimestamp != nil || OfPod(claim) {
		return admit.Answer{}, nil
	}
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	findings, err := Deletion(ctx, h.World, policies, claim)
	return admit.Answer{Findings: findings}, err
}

// OfPod says whether a claim is a generic ephemeral volume of a Pod: the Pod
// controls it, and its name begins with the Pod's. The StatefulSet controller too
// makes a Pod control the claims that it is about to let go, which are named
// otherwise, and which the manager has stamped.
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming
func OfPod(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" &&
		strings.HasPrefix(claim.Name, owner.Name+"-") && claim.Annotations[v1alpha1.AnnotationSetUID] == ""
}

// Deletion judges the deletion of a claim by every policy that it is under.
func Deletion(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim) ([]policy.Finding, error) {
	return DeletionWith(ctx, w, policies, claim, time.Time{})
}

// DeletionWith judges the deletion of a claim as if a snapshot of it that was cut
// at some time were ready; zero: none besides those that are.
func DeletionWith(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim, cut time.Time) ([]policy.Finding, error) {
	_, of, err := Look(ctx, w, claim)
	if err != nil || of.Namespace.Terminating {
		return nil, err
	}
	return protection(ctx, w, policies, claim, of, func(g *v1alpha1.Guardrails, held policy.Held) []policy.Breach {
		if cut.After(held.NewestCut) {
			held.NewestCut = cut
		}
		return policy.Deletion(g.Deletion, held, w.Now())
	})
}

// ScaleDown judges that a claim loses its Pod.
func ScaleDown(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim) ([]policy.Finding, error) {
	_, of, err := Look(ctx, w, claim)
	if err != nil {
		return nil, err
	}
	return protection(ctx, w, policies, claim, of, func(g *v1alpha1.Guardrails, held policy.Held) []policy.Breach {
		return policy.ScaleDown(g.ScaleDown, held, w.Now())
	})
}

func protection(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim, of policy.Claim,
	judge func(*v1alpha1.Guardrails, policy.Held) []policy.Breach,
) ([]policy.Finding, error) {
	var found []policy.Finding
	var held *policy.Held // read once, and only where a policy asks
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.Deletion == nil && p.Guardrails.ScaleDown == nil || !p.MatchesClaim(of) {
			continue
		}
		if held == nil {
			snapshots, err := w.ReadySnapshots(ctx, claim.Namespace, claim.Name)
			if err != nil {
				return nil, err
			}
			held = &policy.Held{
				Name: claim.Namespace + "/" + claim.Name, Bound: isBound(claim),
				NewestCut: world.NewestCut(snapshots, claim),
			}
		}
		found = append(found, p.Findings(judge(p.Guardrails, *held), claim.Labels, of.Namespace, w.Now())...)
	}
	return policy.Override(found, claim.Annotations[v1alpha1.AnnotationOverrideDeletion]), nil
}

// mayOverride refuses who has not the right to override and writes the override
// annotation, or takes a claim from the protection of a policy by its labels, its
// class or its owner.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, old, now *corev1.PersistentVolumeClaim) (string, error) {
	if old == nil && now.Annotations[v1alpha1.AnnotationOverrideDeletion] == "" {
		return "", nil
	}
	policies, err := h.World.Policies(ctx)
	if err != nil {
		return "", err
	}
	if policies = slices.DeleteFunc(policies, func(p *policy.Policy) bool { return !Guards(p) }); len(policies) == 0 {
		return "", nil
	}
	after, err := StateOf(ctx, h.World, now)
	if err != nil {
		return "", err
	}
	var before *State
	if old != nil {
		was, err := StateOf(ctx, h.World, old)
		if err != nil {
			return "", err
		}
		before = &was
	}
	var names []string
	for _, p := range policies {
		if TakesOverride(p, before, after, h.World.Now()) {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names), nil
}

// Default fills in a new claim: the class where it names none, and the size of its
// siblings where it is one of a set's.
func (h *Webhook) Default(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	_, claim, err := decode(req)
	if err != nil || claim == nil || req.Operation != admissionv1.Create {
		return admit.Answer{}, err
	}
	var patch []map[string]any
	policies, err := h.World.Policies(ctx)
	if err != nil {
		return admit.Answer{}, err
	}
	class, err := DefaultClass(ctx, h.World, policies, claim)
	if err != nil {
		return admit.Answer{}, err
	}
	if class != "" {
		patch = append(patch, map[string]any{"op": "add", "path": "/spec/storageClassName", "value": class})
		claim.Spec.StorageClassName = &class
	}
	var size *resource.Quantity
	if h.SizeOf != nil {
		if size, err = h.SizeOf(ctx, h.World, claim); err != nil {
			return admit.Answer{}, err
		}
	}
	if size != nil {
		patch = append(patch, map[string]any{"op": "replace", "path": "/spec/resources/requests/storage", "value": size.String()})
	}
	if len(patch) == 0 {
		return admit.Answer{}, nil
	}
	raw, err := json.Marshal(patch)
	return admit.Answer{Patch: raw}, err
}

// DefaultClass is the class that a claim which names none is given: that of the
// policy with the highest priority that has one, unless the cluster has a default
// class: the API server gives that one itself, before or after us.
func DefaultClass(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim) (string, error) {
	if world.ClassNameOf(claim.Annotations, &claim.Spec) != nil || !slices.ContainsFunc(policies, givesClass) {
		return "", nil
	}
	marked, err := w.DefaultClass(ctx)
	if err != nil || marked != nil {
		return "", err
	}
	namespace, err := w.Namespace(ctx, claim.Namespace)
	if err != nil {
		return "", err
	}
	for _, p := range policies {
		if givesClass(p) && p.MatchesClaim(policy.Claim{Namespace: namespace, Labels: claim.Labels}) {
			return p.Defaults.StorageClassName, nil
		}
	}
	return "", nil
}

func givesClass(p *policy.Policy) bool { return p.Defaults != nil && p.Defaults.StorageClassName != "" }
