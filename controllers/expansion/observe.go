package expansion

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
)

// guarded is a claim that is under a policy's expansion.
type guarded struct {
	object *corev1.PersistentVolumeClaim // as the informer has it: only to be read
	rules  Rules
	claim  Claim
	nodes  []string // those that have its volume
	// everywhere: its driver attaches nothing, so any node may have it.
	everywhere bool
}

// observed is what one round judges.
type observed struct {
	claims []guarded
	nodes  []usage.Node
	// left are claims that are under no expansion any more, and carry a condition of one.
	left []guarded
	// failed are those that could not be looked at.
	failed map[types.UID]error
}

// observe gathers the claims that are under an expansion, and the nodes that can
// tell of them.
func (g *Grower) observe(ctx context.Context) (observed, error) {
	ready, unready, err := g.world.AllPolicies(ctx)
	if err != nil {
		return observed{}, err
	}
	all := policies{expanding(ready), unready}
	var claims corev1.PersistentVolumeClaimList
	if err := g.client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return observed{}, fmt.Errorf("list claims: %w", err)
	}
	var at places
	if len(all.expanding) > 0 { // else no volume is looked at either
		if at, err = g.places(ctx); err != nil {
			return observed{}, err
		}
	}
	seen := observed{failed: map[types.UID]error{}}
	siblings := map[family]int64{}
	for i := range claims.Items {
		object := &claims.Items[i]
		c, err := g.guard(ctx, all, object, at)
		if err != nil {
			seen.failed[object.UID] = fmt.Errorf("claim %s/%s: %w", object.Namespace, object.Name, err)
			continue
		}
		if c == nil {
			if conditionOf(object, v1alpha1.ConditionExpansionBlocked) != nil || conditionOf(object, v1alpha1.ConditionExpansionProposed) != nil {
				seen.left = append(seen.left, guarded{object: object})
			}
			continue
		}
		if f, is := familyOf(c.object); is && c.claim.Ready {
			siblings[f] = max(siblings[f], c.claim.CapacityBytes)
		}
		seen.claims = append(seen.claims, *c)
	}
	for i := range seen.claims {
		if f, is := familyOf(seen.claims[i].object); is {
			seen.claims[i].claim.SiblingBytes = siblings[f]
		}
	}
	seen.nodes, err = g.ask(ctx, seen.claims)
	return seen, err
}

// policies are those by which claims grow, and those that cannot be read.
type policies struct {
	expanding []*policy.Policy
	unready   []*policy.Unready
}

// expanding are the policies that have an expansion.
func expanding(policies []*policy.Policy) []*policy.Policy {
	var with []*policy.Policy
	for _, p := range policies {
		if p.Expansion != nil {
			with = append(with, p)
		}
	}
	return with
}

// guard is what is to be judged of a claim; nil: it is under no expansion.
func (g *Grower) guard(ctx context.Context, all policies, c *corev1.PersistentVolumeClaim, at places) (*guarded, error) {
	if len(all.expanding) == 0 {
		return nil, nil
	}
	namespace, err := g.world.Namespace(ctx, c.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil || namespace.Terminating {
		return nil, nil
	}
	className, class, err := g.world.ClassOfClaim(ctx, c.Annotations, &c.Spec)
	if err != nil {
		return nil, err
	}
	driver := claim.ProvisionerOf(c)
	if class != nil {
		driver = class.Provisioner
	}
	of := policy.Claim{Namespace: namespace, Labels: c.Labels, ClassName: className, Provisioner: driver}
	p := policy.Growing(all.expanding, of)
	if p == nil {
		return nil, nil
	}
	volume := &corev1.PersistentVolume{}
	if c.Spec.VolumeName != "" {
		if err := g.client.Get(ctx, types.NamespacedName{Name: c.Spec.VolumeName}, volume, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look up PersistentVolume %s: %w", c.Spec.VolumeName, err)
		}
	}
	if volume.Spec.CSI != nil {
		driver = volume.Spec.CSI.Driver
	}
	out := &guarded{object: c, rules: rulesOf(p.Name, p.Expansion, driver), claim: claimOf(c), nodes: at.attached[c.Spec.VolumeName], everywhere: at.unattaching[driver]}
	out.rules.Between = g.every
	out.claim.ClassName, out.claim.ClassGone = className, class == nil
	out.claim.Expandable = class != nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
	out.claim.Doubt = policy.GrowthInDoubt(all.unready, p, of)
	out.claim.Mounted = len(out.nodes) > 0 || out.everywhere
	return out, nil
}

// claimOf is what the claim tells itself.
func claimOf(c *corev1.PersistentVolumeClaim) Claim {
	out := Claim{
		Ready:        c.DeletionTimestamp == nil && c.Status.Phase == corev1.ClaimBound,
		Block:        c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock,
		RequestBytes: bytesOf(c.Spec.Resources.Requests.Storage()), CapacityBytes: bytesOf(c.Status.Capacity.Storage()),
		Class: deref(c.Spec.VolumeAttributesClassName), CurrentClass: deref(c.Status.CurrentVolumeAttributesClassName),
		Infeasible: infeasibleOf(c),
		MaxSize:    c.Annotations[v1alpha1.AnnotationMaxSize], Approved: c.Annotations[v1alpha1.AnnotationApproveSize],
	}
	out.Modifying = statefulset.Modifying(c)
	out.InFlight = inFlight(c, out)
	out.Record, out.BadRecord = parseRecord(c.Annotations)
	return out
}

// infeasibleOf says whether the resizer or kubelet has given up on the size asked for.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#recovering-from-failure-when-expanding-volumes
func infeasibleOf(c *corev1.PersistentVolumeClaim) Infeasible {
	switch c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimControllerResizeInfeasible:
		return ControllerInfeasible
	case corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return NodeInfeasible
	}
	return Feasible
}

// inFlight says whether a resize or a change of attributes is under way.
func inFlight(c *corev1.PersistentVolumeClaim, of Claim) bool {
	return of.RequestBytes > of.CapacityBytes || statefulset.Resizing(c)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// family are the claims of one StatefulSet's template, by their stamps. A stamp that
// does not fit the claim's name is one that was copied with another claim's manifest.
type family struct{ namespace, set, template string }

func familyOf(c *corev1.PersistentVolumeClaim) (family, bool) {
	f := family{c.Namespace, c.Annotations[v1alpha1.AnnotationSetUID], c.Annotations[v1alpha1.AnnotationSetTemplate]}
	_, fits := statefulset.OrdinalOf(c.Name, f.template, c.Annotations[v1alpha1.AnnotationSetName])
	return f, fits && f.set != "" && f.template != ""
}

// places tell where volumes are.
type places struct {
	attached    map[string][]string // nodes by PersistentVolume
	unattaching map[string]bool     // drivers that attach nothing
}

func (g *Grower) places(ctx context.Context) (places, error) {
	at := places{attached: map[string][]string{}, unattaching: map[string]bool{}}
	var attachments storagev1.VolumeAttachmentList
	if err := g.client.List(ctx, &attachments, client.UnsafeDisableDeepCopy); err != nil {
		return at, fmt.Errorf("list VolumeAttachments: %w", err)
	}
	for i := range attachments.Items {
		if a := &attachments.Items[i]; a.Status.Attached && a.Spec.Source.PersistentVolumeName != nil {
			volume := *a.Spec.Source.PersistentVolumeName
			at.attached[volume] = append(at.attached[volume], a.Spec.NodeName)
		}
	}
	var drivers storagev1.CSIDriverList
	if err := g.client.List(ctx, &drivers, client.UnsafeDisableDeepCopy); err != nil {
		return at, fmt.Errorf("list CSIDrivers: %w", err)
	}
	for i := range drivers.Items {
		if d := &drivers.Items[i]; d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired {
			at.unattaching[d.Name] = true
		}
	}
	return at, nil
}

// ask are the nodes that can tell of the claims: those that have their volumes,
// or all of them where a driver attaches nothing.
func (g *Grower) ask(ctx context.Context, claims []guarded) ([]usage.Node, error) {
	on, anywhere := map[string]map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	for _, c := range claims {
		if !c.claim.Ready || c.claim.Block {
			continue
		}
		key := client.ObjectKeyFromObject(c.object)
		if c.everywhere {
			anywhere[key] = true
		}
		for _, n := range c.nodes {
			if on[n] == nil {
				on[n] = map[types.NamespacedName]bool{}
			}
			on[n][key] = true
		}
	}
	if len(on) == 0 && len(anywhere) == 0 {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := g.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var ask []usage.Node
	for i := range nodes.Items {
		has := on[nodes.Items[i].Name]
		if len(anywhere) == 0 && has == nil {
			continue
		}
		n := usage.NodeOf(&nodes.Items[i])
		n.Has = func(claim types.NamespacedName) bool { return has[claim] || anywhere[claim] }
		ask = append(ask, n)
	}
	return ask, nil
}

// SlimNode is the transform of the informer of Nodes: a node's status is large,
// and all that is read is where its kubelet answers.
func SlimNode(o any) (any, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return o, nil
	}
	kept := &corev1.Node{ObjectMeta: slimMeta(&n.ObjectMeta)}
	kept.Status.Addresses, kept.Status.DaemonEndpoints = n.Status.Addresses, n.Status.DaemonEndpoints
	return kept, nil
}

// SlimAttachment is the transform of the informer of VolumeAttachments, of which
// there is one a volume: all that is read is which volume is on which node.
func SlimAttachment(o any) (any, error) {
	a, is := o.(*storagev1.VolumeAttachment)
	if !is {
		return o, nil
	}
	kept := &storagev1.VolumeAttachment{ObjectMeta: slimMeta(&a.ObjectMeta)}
	kept.Spec.Attacher, kept.Spec.NodeName = slim.Text(a.Spec.Attacher), slim.Text(a.Spec.NodeName)
	kept.Spec.Source.PersistentVolumeName = a.Spec.Source.PersistentVolumeName
	kept.Status.Attached = a.Status.Attached
	return kept, nil
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp}
}
