//go:build e2e

package guardrails

import (
	"context"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// deletions are the ways in which a claim goes.
var deletions = map[string]func(context.Context, client.Client, string, string, ...client.DeleteOption) error{
	"by name": func(ctx context.Context, c client.Client, namespace, name string, o ...client.DeleteOption) error {
		return c.Delete(ctx, claim(namespace, name, "1Gi"), o...)
	},
	"with all claims": func(ctx context.Context, c client.Client, namespace, _ string, o ...client.DeleteOption) error {
		all := []client.DeleteAllOfOption{client.InNamespace(namespace)}
		for _, option := range o {
			all = append(all, option.(client.DeleteAllOfOption))
		}
		return c.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, all...)
	},
	"with its namespace": func(ctx context.Context, c client.Client, namespace, _ string, o ...client.DeleteOption) error {
		return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, o...)
	},
}

// testProtection tries to delete a claim with data in every way, and with every
// kind of snapshot that is no permission.
func testProtection(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	name := policy(s, "", "", "deletion: {protect: WhenBound, allow: RecentSnapshot, snapshotNotOlderThanSeconds: 600}")
	class, copies := s.Class("gp3", nil), s.SnapshotClass("copies", nil)
	s.Claim("data", class, "1Gi")
	s.Pod("writer", "data")
	s.Ready("writer")
	id := s.VolumeID("data")
	s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "beside"}})
	unmoved(s, "without a snapshot", "not there")
	s.Create(snapshotOf(s, "never", "data", "no-such-class"))
	s.Eventually("a snapshot that does not become ready", func(ctx context.Context) (string, error) {
		snap := snapshotOf(s, "never", "", "")
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(snap), snap); err != nil {
			return "", err
		}
		if snap.Status == nil || snap.Status.Error == nil {
			return "it says nothing of it", nil
		}
		return "", nil
	})
	unmoved(s, "with a snapshot that is not ready", "not there")
	s.Delete(snapshotOf(s, "never", "", "")) // it would keep the claim from going
	s.Step("volume %s is held without a snapshot", id)

	s.Snapshot("copy", "data", copies)
	permitted(s)
	s.Run("patch", "storagepolicy", name, "--type=merge", "-p", `{"spec":{"guardrails":{"deletion":{"snapshotNotOlderThanSeconds":60}}}}`)
	s.Eventually("a snapshot of more than a minute is too old", func(ctx context.Context) (string, error) {
		if err := deletions["by name"](ctx, s.Client, s.Namespace, "data", client.DryRunAll); err == nil {
			return "the claim may go", nil
		}
		return "", nil
	})
	unmoved(s, "with a snapshot that is too old", " old (cut at ", "at most 1m0s old")
	s.Run("patch", "storagepolicy", name, "--type=merge", "-p", `{"spec":{"guardrails":{"deletion":{"snapshotNotOlderThanSeconds":3600}}}}`)
	permitted(s)
	s.DeletePod("writer")
	accepted(s, "a claim with a fresh snapshot", deletions["by name"](ctx, s.Client, s.Namespace, "data"))
	s.VolumeGone(id)
	s.Step("a fresh snapshot is permission")

	s.Must(s.WaitGone(ctx, claim(s.Namespace, "data", "1Gi"), stage.Patience))
	s.Claim("data", class, "1Gi")
	s.Pod("writer", "data")
	s.Ready("writer")
	unmoved(s, "with a snapshot of an earlier claim of the name", "not there")
	s.Snapshot("again", "data", copies)
	permitted(s)
	s.Run("patch", "storagepolicy", name, "--type=merge", "-p", `{"spec":{"guardrails":{"deletion":{"allow":"OverrideOnly","snapshotNotOlderThanSeconds":null}}}}`)
	s.Eventually("a fresh snapshot is no permission any more", func(ctx context.Context) (string, error) {
		if err := deletions["by name"](ctx, s.Client, s.Namespace, "data", client.DryRunAll); err == nil {
			return "the claim may go", nil
		}
		return "", nil
	})
	testOverride(s, name)
}

// testOverride has somebody who may not, and somebody who may, override the
// deletion of claim data.
func testOverride(s *stage.Stage, policy string) {
	s.T.Helper()
	ctx := s.T.Context()
	unmoved(s, "under OverrideOnly", "not overridden", "holdfast.dev/override-deletion")
	developer, lead := "dev-"+s.Namespace, "lead-"+s.Namespace
	apply(s, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[2]s}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: %[3]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[3]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: holdfast-policy-override}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[3]s}]
`, s.Namespace, developer, lead))
	s.T.Cleanup(func() {
		if _, err := s.Kubectl(context.Background(), "delete", "clusterrolebinding", lead); err != nil {
			s.T.Error(err)
		}
	})
	const reason = "moved to the new cluster, ticket 4711"
	override := func(user string) error {
		c, _ := as(s, user)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"holdfast.dev/override-deletion":%q}}}`, reason)
		return c.Patch(ctx, claim(s.Namespace, "data", "1Gi"), client.RawPatch(types.MergePatchType, patch))
	}
	s.Eventually("the roles are bound", func(context.Context) (string, error) {
		if err := override(developer); err == nil || !strings.Contains(err.Error(), "may not override StoragePolicy") {
			return fmt.Sprintf("a developer's override: %v", err), nil
		}
		return "", nil
	})
	refused(s, "an override by who may not", override(developer), developer, policy, `the verb "override"`)
	unmoved(s, "whose override was refused", "not overridden")
	accepted(s, "an override by who may", override(lead))
	c, _ := as(s, developer)
	accepted(s, "a dry run", deletions["by name"](ctx, c, s.Namespace, "data", client.DryRunAll))
	if told := overridden(ctx, s, policy); told != "" {
		s.T.Errorf("a dry run is recorded: %s", told)
	}
	s.DeletePod("writer")
	accepted(s, "an overridden deletion", deletions["by name"](ctx, c, s.Namespace, "data"))
	s.Must(s.WaitGone(ctx, claim(s.Namespace, "data", "1Gi"), stage.Patience))
	s.Eventually("the override is recorded on the policy", func(ctx context.Context) (string, error) {
		for _, part := range []string{s.Namespace + "/data", developer, reason} {
			if told := overridden(ctx, s, policy); !strings.Contains(told, part) {
				return fmt.Sprintf("an event with %q: %s", part, told), nil
			}
		}
		return "", nil
	})
	s.Step("who may, overrides, and it is recorded")
}

// overridden are the events that tell of overrides of a policy; not of an earlier
// one of its name, whose events outlive it.
func overridden(ctx context.Context, s *stage.Stage, policy string) string {
	s.T.Helper()
	uid := s.Run("get", "storagepolicy", policy, "-o", "jsonpath={.metadata.uid}")
	out, err := s.Kubectl(ctx, "get", "events", "-A", "--field-selector", "reason=Overridden,involvedObject.uid="+uid, "-o", "jsonpath={.items[*].message}")
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// unmoved holds that claim data can be deleted in no way, that a dry run says so
// in the same words, and that nothing has changed.
func unmoved(s *stage.Stage, when string, parts ...string) {
	s.T.Helper()
	before := state(s)
	parts = append(parts, "rule deletion", s.Namespace+"/data")
	for how, del := range deletions {
		dry := del(s.T.Context(), s.Client, s.Namespace, "data", client.DryRunAll)
		real := del(s.T.Context(), s.Client, s.Namespace, "data")
		refused(s, how+" "+when+", as a dry run", dry, parts...)
		refused(s, how+" "+when, real, parts...)
		if d, r := withoutAge(dry), withoutAge(real); d != r {
			s.T.Errorf("%s %s: the dry run answers %s\nand the deletion %s", how, when, d, r)
		}
	}
	if after := state(s); after != before {
		s.T.Errorf("deletions %s have changed something:\n%s\nbefore\n%s", when, after, before)
	}
}

// withoutAge is an answer but for how old a snapshot is at that moment.
func withoutAge(err error) string {
	if err == nil {
		return ""
	}
	before, after, found := strings.Cut(err.Error(), " old (cut at ")
	if !found {
		return before
	}
	return before[:strings.LastIndex(before, " ")] + after
}

// state is that of what deletions could have touched: the claim, its namespace,
// and something that nothing protects.
func state(s *stage.Stage) string {
	s.T.Helper()
	var all []string
	for _, o := range []client.Object{
		claim(s.Namespace, "data", "1Gi"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "beside"}},
	} {
		s.Must(s.Client.Get(s.T.Context(), client.ObjectKeyFromObject(o), o))
		all = append(all, fmt.Sprintf("%T %s, %v, %v, going: %v", o, o.GetUID(), o.GetLabels(), o.GetAnnotations(), o.GetDeletionTimestamp()))
	}
	return strings.Join(all, "\n")
}

// permitted waits until claim data may be deleted in every way, by dry runs.
func permitted(s *stage.Stage) {
	s.T.Helper()
	s.Eventually("the claim may go in every way", func(ctx context.Context) (string, error) {
		for how, del := range deletions {
			if err := del(ctx, s.Client, s.Namespace, "data", client.DryRunAll); err != nil {
				return how + ": " + err.Error(), nil
			}
		}
		return "", nil
	})
}

// snapshotOf is a snapshot of a claim, by a class.
func snapshotOf(s *stage.Stage, name, of, class string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &class,
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &of},
		},
	}
}
