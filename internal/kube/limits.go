package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Limits answers what EC2 says of instance types; types that EC2 does not know
// are not in the answer.
type Limits func(ctx context.Context, types []string) (map[string]ebs.InstanceLimit, error)

// How often EC2 is asked: about each type once a day, about new types soon
// after their first node, and after a failure (most likely a policy that does
// not allow it) not again for an hour.
const (
	lookInterval = 5 * time.Minute
	askInterval  = 24 * time.Hour
	askAgain     = time.Hour
)

// reasonLimitDiffers is the reason of the event about a type.
const reasonLimitDiffers = "AttachLimitDiffers"

// limitWatch compares the table of attachment limits with EC2.
type limitWatch struct {
	Chores
	nodes cache.SharedInformer
	due   map[string]time.Time // by type: when it is asked about again
}

func newLimitWatch(c Chores, nodes cache.SharedInformer) *limitWatch {
	return &limitWatch{Chores: c, nodes: nodes, due: map[string]time.Time{}}
}

func (w *limitWatch) run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), w.nodes.HasSynced) {
		return nil // ctx ended
	}
	for {
		if err := w.compare(ctx); err != nil && ctx.Err() == nil {
			w.Log.Info("attachment limits are not compared with EC2", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.Clock.After(lookInterval):
		}
	}
}

// compare asks about the types that are due, in one call, and reports those
// that differ.
func (w *limitWatch) compare(ctx context.Context) error {
	seen := instanceTypes(w.nodes.GetStore().List())
	now := w.Clock.Now()
	due := dueTypes(seen, w.due, now)
	if len(due) == 0 {
		return nil
	}
	says, err := w.Limits(ctx, due)
	next := now.Add(askInterval)
	if err != nil {
		next = now.Add(askAgain)
	}
	for _, t := range due {
		w.due[t] = next
	}
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range slices.Sorted(maps.Keys(says)) {
		if ebs.LimitOf(t).Agrees(says[t]) {
			continue
		}
		event := limitEvent(seen[t], t, ebs.LimitOf(t), says[t], now)
		w.Log.Info("attachment limit differs", "instanceType", t, "message", event.Message)
		if err := w.Client.createEvent(ctx, event); err != nil {
			w.due[t] = now.Add(askAgain) // untold: the other types do not wait for it
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// instanceTypes returns the types of nodes, each with the first node by name.
func instanceTypes(nodes []any) map[string]*corev1.Node {
	out := map[string]*corev1.Node{}
	for _, o := range nodes {
		n, ok := o.(*corev1.Node)
		if !ok || n.Labels[corev1.LabelInstanceTypeStable] == "" {
			continue
		}
		t := n.Labels[corev1.LabelInstanceTypeStable]
		if first := out[t]; first == nil || n.Name < first.Name {
			out[t] = n
		}
	}
	return out
}

// dueTypes are the types to ask about now, sorted.
func dueTypes(seen map[string]*corev1.Node, due map[string]time.Time, now time.Time) []string {
	var out []string
	for t := range seen {
		if !now.Before(due[t]) {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// limitEvent tells of a type whose limit differs, on a node of it. Its name says
// type and day, so that replicas and restarts tell it once.
func limitEvent(node *corev1.Node, instanceType string, table, says ebs.InstanceLimit, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	return &corev1.Event{
		// Events about what is in no namespace are in "default" (ValidateEvent
		// of the API server).
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("attach-limit.%s.%s", instanceType, now.UTC().Format(time.DateOnly)),
		},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Type:           corev1.EventTypeWarning,
		Reason:         reasonLimitDiffers,
		Message: fmt.Sprintf("EC2 says that an instance of type %s takes %s volumes, the driver's table says %s: set --volume-attach-limit on nodes of this type, or update the driver",
			instanceType, says, table),
		Source:         corev1.EventSource{Component: "holdfast-driver"},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: "holdfast.dev/driver",
	}
}

// createEvent makes an event; one of that name is the same.
func (c *Client) createEvent(ctx context.Context, e *corev1.Event) error {
	err := c.core.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create event %s: %w", e.Name, err)
	}
	return nil
}
