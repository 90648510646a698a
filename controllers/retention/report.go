package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// owner is the field manager of the conditions that are written here. All else
// in the status is the schedule controller's.
const owner = "holdfast-retention"

// Bounds of the conditions' texts.
const (
	maxMessage = 1024
	maxNamed   = 5 // copies that a message names
	maxWhy     = 240
)

// healthy says whether a schedule is known to take the copies that it should.
func healthy(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionDegraded)
}

// overdueCondition tells of copies that are still there though the rules keep
// them no longer, by reason.
func overdueCondition(kept, refused []Verdict) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCopiesOverdue, Status: metav1.ConditionTrue}
	switch {
	case len(refused) > 0:
		c.Reason = v1alpha1.ReasonDeletionRefused
	case len(kept) > 0:
		c.Reason = v1alpha1.ReasonHeldOrInUse
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoneOverdue, "each copy that is there is one that the rules of retention keep, or is about to be deleted"
		return c
	}
	all := slices.Concat(refused, kept)
	var told []string
	for _, v := range all[:min(len(all), maxNamed)] {
		told = append(told, v.Name+": "+cut(v.Why, maxWhy))
	}
	if more := len(all) - maxNamed; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	c.Message = fmt.Sprintf("%d copies that the rules of retention keep no longer are still there; %s", len(all), strings.Join(told, "; "))
	return c
}

// retainedCondition tells how many cloud snapshots are left behind.
func retainedCondition(s *v1alpha1.SnapshotSchedule, retained int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionContentsRetained, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoneRetained, Message: "no cloud snapshot of a copy that aged out is left behind"}
	if retained > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonFollowClass
		c.Message = fmt.Sprintf("%d cloud snapshots of copies that aged out are still there and cost money, since contents is FollowClass and their deletionPolicy Retain; they are those of the VolumeSnapshotContents with the labels %s=%s,%s=%s",
			retained, v1alpha1.LabelSchedule, copies.LabelValue(s.Name), v1alpha1.LabelContents, v1alpha1.FollowClass)
	}
	return c
}

// save writes conditions where they differ, and nothing else of the status.
func (r *Reconciler) save(ctx context.Context, s *v1alpha1.SnapshotSchedule, conditions ...metav1.Condition) error {
	all := slices.Clone(s.Status.Conditions)
	var mine []metav1.Condition
	for _, c := range conditions {
		c.Message, c.ObservedGeneration, c.LastTransitionTime = cut(c.Message, maxMessage), s.Generation, metav1.NewTime(r.Clock.Now())
		meta.SetStatusCondition(&all, c)
		mine = append(mine, *meta.FindStatusCondition(all, c.Type))
	}
	if equality.Semantic.DeepEqual(all, s.Status.Conditions) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "SnapshotSchedule",
		"metadata": map[string]any{"namespace": s.Namespace, "name": s.Name, "uid": s.UID},
		"status":   map[string]any{"conditions": mine},
	})
	if err != nil {
		return fmt.Errorf("write down the conditions of schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	target := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	err = r.Client.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), client.FieldOwner(owner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the conditions of schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// cut shortens a text at a whole character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
