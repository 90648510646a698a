package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
)

// ValidateGroup judges the creation, change or deletion of a VolumeGroupSnapshot.
func (h *Webhook) ValidateGroup(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	old, err := decodeGroup(req.OldObject.Raw, req.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.deleteGroup(ctx, policies, old)
	}
	now, err := decodeGroup(req.Object.Raw, req.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	var answer admit.Answer
	if req.Operation == admissionv1.Create {
		if answer.Findings, err = h.classOfGroup(ctx, policies, req); err != nil {
			return admit.Answer{}, err
		}
	}
	answer.Forbidden, err = h.mayOverrideGroup(ctx, req, policies, old, now)
	return answer, err
}

// classOfGroup judges the class of a new group, once by each policy that is about
// one of its claims. Its members would be judged too late: the driver cuts them all
// before the snapshot-controller makes the first, and is refused again and again.
// The claims are read live, since their labels may be of this moment.
func (h *Webhook) classOfGroup(ctx context.Context, policies []*policy.Policy, req *admit.Request) ([]policy.Finding, error) {
	group := &groupv1.VolumeGroupSnapshot{}
	if err := json.Unmarshal(req.Object.Raw, group); err != nil {
		return nil, fmt.Errorf("read the VolumeGroupSnapshot: %w", err)
	}
	class, err := h.World.GroupClass(ctx, group)
	if err != nil || class == nil || group.Spec.Source.Selector == nil {
		return nil, err
	}
	breaks := slices.DeleteFunc(slices.Clone(policies), func(p *policy.Policy) bool {
		return p.Guardrails == nil || len(GroupClass(p.Guardrails.SnapshotClass, group.Name, class)) == 0
	})
	picks, err := metav1.LabelSelectorAsSelector(group.Spec.Source.Selector)
	if err != nil || len(breaks) == 0 { // one that is no selector is the snapshot-controller's to report
		return nil, nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := h.World.Live.List(ctx, &claims, client.InNamespace(req.Namespace), client.MatchingLabelsSelector{Selector: picks}); err != nil {
		return nil, fmt.Errorf("list the claims of VolumeGroupSnapshot %s/%s: %w", req.Namespace, group.Name, err)
	}
	var found []policy.Finding
	for i := range claims.Items {
		of, err := h.look(ctx, &claims.Items[i])
		if err != nil {
			return nil, err
		}
		breaks = slices.DeleteFunc(breaks, func(p *policy.Policy) bool {
			if !p.MatchesClaim(of) {
				return false
			}
			breaches := GroupClass(p.Guardrails.SnapshotClass, group.Name, class)
			breaches[0].Field = "spec.volumeGroupSnapshotClassName"
			found = append(found, p.Findings(breaches, group.Labels, of.Namespace, h.World.Now())...)
			return true
		})
	}
	return found, nil
}

// decodeGroup reads what is asked about a group; nil where there is none.
func decodeGroup(raw []byte, namespace string) (*metav1.PartialObjectMetadata, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	g := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, g); err != nil {
		return nil, fmt.Errorf("read the VolumeGroupSnapshot: %w", err)
	}
	g.Namespace = namespace
	return g, nil
}

// deleteGroup judges every member that would go with a group. What lets the group
// go is the override annotation on it, or on each member that is to stay.
func (h *Webhook) deleteGroup(ctx context.Context, policies []*policy.Policy, g *metav1.PartialObjectMetadata) (admit.Answer, error) {
	if g == nil || g.DeletionTimestamp != nil {
		return admit.Answer{}, nil
	}
	members, err := h.World.Members(ctx, g.Namespace, g.Name)
	if err != nil {
		return admit.Answer{}, err
	}
	var answer admit.Answer
	for i := range members {
		on, err := admit.GoesOn(ctx, policy.Denied(answer.Findings), admit.Told)
		if err != nil {
			return admit.Answer{}, err
		}
		if !on {
			break
		}
		m := &members[i]
		source, of, err := h.source(ctx, m)
		if err != nil {
			return admit.Answer{}, err
		}
		if source == nil {
			continue
		}
		found, err := h.lost(ctx, policies, m, source, of)
		if err != nil {
			return admit.Answer{}, err
		}
		for j := range found {
			found[j].Field += " with VolumeGroupSnapshot " + g.Name
		}
		answer.Findings = append(answer.Findings, policy.Override(found, g.Annotations[v1alpha1.AnnotationOverrideDeletion])...)
	}
	return answer, nil
}

// mayOverrideGroup refuses who has not the right to override and writes the
// override annotation. Which claims a group is of shows only when it is cut, so
// it takes the right for every policy that protects claims of the namespace.
func (h *Webhook) mayOverrideGroup(ctx context.Context, req *admit.Request, policies []*policy.Policy, old, now *metav1.PartialObjectMetadata) (string, error) {
	reason := now.Annotations[v1alpha1.AnnotationOverrideDeletion]
	if reason == "" || old != nil && old.Annotations[v1alpha1.AnnotationOverrideDeletion] == reason {
		return "", nil
	}
	namespace, err := h.World.Namespace(ctx, now.Namespace)
	if err != nil {
		return "", err
	}
	var names []string
	for _, p := range policies {
		if claim.GuardsDeletion(p) && p.MatchesNamespace(namespace) {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names), nil
}

// goesWithGroup says whether a snapshot is a member of a group that is being
// deleted. The API server is asked: the deletion of a member follows that of its
// group within moments. Both owner and status must name the group: whoever may
// write the one may not write the other.
func (h *Webhook) goesWithGroup(ctx context.Context, snap *snapshotv1.VolumeSnapshot) (bool, error) {
	if snap.Status == nil || snap.Status.VolumeGroupSnapshotName == nil {
		return false, nil
	}
	group := &groupv1.VolumeGroupSnapshot{}
	err := h.World.Live.Get(ctx, client.ObjectKey{Namespace: snap.Namespace, Name: *snap.Status.VolumeGroupSnapshotName}, group)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up VolumeGroupSnapshot %s/%s: %w", snap.Namespace, *snap.Status.VolumeGroupSnapshotName, err)
	}
	owned := slices.ContainsFunc(snap.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == group.UID })
	return owned && group.DeletionTimestamp != nil, nil
}
