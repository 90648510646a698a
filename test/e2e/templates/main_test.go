//go:build e2e

package templates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

const (
	namespace = "example-26"
	setName   = "database"
	// recreatedFrom is on a set that was made anew, as docs/statefulsets.md tells.
	recreatedFrom = "holdfast.dev/recreated-from"
)

// apply applies manifests of the example.
func apply(s *stage.Stage, files ...string) {
	s.T.Helper()
	for _, f := range files {
		s.Run("apply", "-f", filepath.Join(s.Root, "examples", "26-grown-statefulset", f))
	}
}

// applyText applies a manifest.
func applyText(s *stage.Stage, manifest string) {
	s.T.Helper()
	name := filepath.Join(s.T.TempDir(), "manifest.yaml")
	s.Must(os.WriteFile(name, []byte(manifest), 0o600))
	s.Run("apply", "-f", name)
}

// theSet is the set as it is; nil: there is none.
func theSet(ctx context.Context, s *stage.Stage) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: setName}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	return set, nil
}

// sizeOf is what the set's template asks for.
func sizeOf(set *appsv1.StatefulSet) string {
	return set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String()
}

// life is what must not change of a Pod: its UID, when its container was started,
// and how often; and the UID of its claim, of which no deletion can be taken back.
type life struct {
	uid, claim types.UID
	started    time.Time
	restarts   int32
}

// lives are those of the set's Pods.
func lives(s *stage.Stage, replicas int) map[string]life {
	s.T.Helper()
	all := map[string]life{}
	for i := range replicas {
		name := fmt.Sprintf("%s-%d", setName, i)
		pod := s.Ready(name)
		c := pod.Status.ContainerStatuses[0]
		if c.State.Running == nil {
			s.T.Fatalf("the container of Pod %s does not run: %+v", name, c.State)
		}
		claim := &corev1.PersistentVolumeClaim{}
		s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: namespace, Name: "data-" + name}, claim))
		if claim.DeletionTimestamp != nil {
			s.T.Errorf("claim %s is deleted, at %v", claim.Name, claim.DeletionTimestamp)
		}
		all[name] = life{pod.UID, claim.UID, c.State.Running.StartedAt.Time, c.RestartCount}
	}
	return all
}

// event waits for an event on the set.
func event(s *stage.Stage, reason, says string) {
	s.T.Helper()
	s.Eventually("event "+reason+" on the set that says "+says, func(ctx context.Context) (string, error) {
		var list eventsv1.EventList
		if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		var all []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "StatefulSet" && e.Reason == reason {
				if strings.Contains(e.Note, says) {
					return "", nil
				}
				all = append(all, e.Note)
			}
		}
		return fmt.Sprintf("there are %q", all), nil
	})
}

// records are the saved sets.
func records(ctx context.Context, s *stage.Stage) ([]corev1.Secret, error) {
	var list corev1.SecretList
	err := s.Client.List(ctx, &list, client.InNamespace(testenv.Namespace), client.MatchingLabels{"holdfast.dev/record": "statefulset"})
	return list.Items, err
}

// anew waits until the set is another than before, at a size, with its policy, and
// nothing of it is saved any more.
func anew(s *stage.Stage, before types.UID, size string) {
	s.T.Helper()
	s.Eventually("the set is back at "+size+" with its Delete policy", func(ctx context.Context) (string, error) {
		set, err := theSet(ctx, s)
		if err != nil || set == nil {
			return "there is none", err
		}
		saved, err := records(ctx, s)
		if set.UID == before || sizeOf(set) != size || set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != "Delete" || len(saved) > 0 || set.Status.ReadyReplicas != *set.Spec.Replicas {
			return fmt.Sprintf("UID %s, was %s; size %s; %v; %d saved; %d ready", set.UID, before, sizeOf(set), set.Spec.PersistentVolumeClaimRetentionPolicy, len(saved), set.Status.ReadyReplicas), err
		}
		if set.Annotations[recreatedFrom] != string(before) {
			return fmt.Sprintf("made anew from %q, want %s", set.Annotations[recreatedFrom], before), err
		}
		return "", err
	})
}

// killLeader ends the leading manager's process as a crash would. Its Pod goes too,
// so that another comes at once: kubelet waits longer after each crash.
func killLeader(s *stage.Stage) {
	s.T.Helper()
	lease := &coordinationv1.Lease{}
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: testenv.Namespace, Name: "holdfast-manager"}, lease))
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	pod := &corev1.Pod{}
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: testenv.Namespace, Name: name}, pod))
	s.KillContainer(*pod, pod.Spec.Containers[0].Name)
	s.Must(client.IgnoreNotFound(s.Client.Delete(s.T.Context(), pod, client.GracePeriodSeconds(0))))
}

// whole waits until the claims of the set name it as their owner, as Delete has it.
func whole(s *stage.Stage, claims int) {
	s.T.Helper()
	s.Eventually("the claims are the set's", func(ctx context.Context) (string, error) {
		set, err := theSet(ctx, s)
		if err != nil || set == nil {
			return "no set", err
		}
		for i := range claims {
			c := &corev1.PersistentVolumeClaim{}
			if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("data-%s-%d", setName, i)}, c); err != nil {
				return "", err
			}
			if !slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == set.UID }) || c.DeletionTimestamp != nil {
				return fmt.Sprintf("claim %s: owners %v, deleted at %v", c.Name, c.OwnerReferences, c.DeletionTimestamp), nil
			}
		}
		return "", nil
	})
}
