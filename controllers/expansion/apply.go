package expansion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// apply writes what a decision says of one claim, where it differs, and tells.
func (g *Grower) apply(ctx context.Context, now time.Time, c *guarded, memory *remembered, d Decision) error {
	written, refused, err := g.patch(ctx, c, d)
	switch {
	case d.TargetBytes > 0 && apierrors.IsInternalError(err): // most often a webhook that does not answer
		d.Blocked = &Note{v1alpha1.ReasonRefused, fmt.Sprintf("growing the claim to %s fails, and is tried again each time: %v", text(d.TargetBytes), err)}
		return errors.Join(err, g.note(ctx, now, c, d))
	case err != nil:
		return err
	case refused != nil:
		memory.Refusal = Refusal{TargetBytes: d.TargetBytes, At: now, Message: refused.Error()}
		d.History = memory.History
		g.metrics.results.WithLabelValues(resultRefused).Inc()
		d.Blocked = d.refused(now, d.TargetBytes)
	case !written: // it has changed since: the next round looks again
		return nil
	}
	for _, m := range d.Completed {
		g.metrics.results.WithLabelValues(resultCompleted).Inc()
		g.tellCompleted(c, m)
	}
	if d.Unknown != "" && d.Unknown != memory.said {
		g.tellUnknown(c, d.Unknown)
	}
	memory.said = d.Unknown
	if d.Keep {
		return nil
	}
	return g.note(ctx, now, c, d)
}

// patch writes the size and the record. A size that somebody refuses is not an
// error of ours, and the record is left as it was.
func (g *Grower) patch(ctx context.Context, c *guarded, d Decision) (written bool, refused, err error) {
	annotations, spec := map[string]any{}, map[string]any{}
	if record := d.Record; record != nil && (c.claim.Record == nil || record.String() != c.claim.Record.String()) {
		annotations[v1alpha1.AnnotationModifications] = record.String()
	}
	if d.TargetBytes > 0 {
		spec["resources"] = map[string]any{"requests": map[string]any{string(corev1.ResourceStorage): text(d.TargetBytes)}}
	}
	if len(annotations) == 0 && len(spec) == 0 {
		return true, nil, nil
	}
	body := map[string]any{"metadata": map[string]any{"resourceVersion": c.object.ResourceVersion, "annotations": annotations}}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	data, err := json.Marshal(body)
	if err != nil {
		return false, nil, err
	}
	target := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.object.Namespace, Name: c.object.Name}}
	err = g.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, data))
	switch {
	case err == nil:
		return true, nil, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil, nil
	case d.TargetBytes > 0 && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		return false, err, nil
	}
	return false, nil, fmt.Errorf("ask for %s: %w", text(d.TargetBytes), err)
}

// note writes the conditions that differ. They are merged by their type, so that
// those of others stay.
func (g *Grower) note(ctx context.Context, now time.Time, c *guarded, d Decision) error {
	var changes []any
	for _, of := range []struct {
		kind corev1.PersistentVolumeClaimConditionType
		note *Note
	}{{v1alpha1.ConditionExpansionBlocked, d.Blocked}, {v1alpha1.ConditionExpansionProposed, d.Proposed}} {
		old := conditionOf(c.object, of.kind)
		switch {
		case of.note == nil && old == nil, of.note != nil && old != nil && old.Status == corev1.ConditionTrue && old.Reason == of.note.Reason && old.Message == of.note.Message:
			continue
		case of.note == nil:
			changes = append(changes, map[string]string{"$patch": "delete", "type": string(of.kind)})
		default:
			since := metav1.NewTime(now)
			if old != nil && old.Status == corev1.ConditionTrue {
				since = old.LastTransitionTime
			}
			changes = append(changes, corev1.PersistentVolumeClaimCondition{Type: of.kind, Status: corev1.ConditionTrue, Reason: of.note.Reason, Message: of.note.Message, LastTransitionTime: since})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": changes}})
	if err != nil {
		return err
	}
	target := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.object.Namespace, Name: c.object.Name, UID: c.object.UID}}
	if err := g.client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, data)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write its conditions: %w", err)
	}
	g.tellNotes(c, d)
	return nil
}

func conditionOf(c *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == kind {
			return &c.Status.Conditions[i]
		}
	}
	return nil
}
