//go:build envtest

package webhooks_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// atWork are the controllers that write on claims what has become of them: the
// volume that was bound, the node that was chosen, the size that was reached.
var atWork = []string{
	"system:serviceaccount:kube-system:persistent-volume-binder", "system:serviceaccount:kube-system:pvc-protection-controller",
	"system:kube-scheduler", "system:kube-controller-manager", "system:serviceaccount:holdfast-system:holdfast-controller", "system:node:node-a",
}

// work is what controllers do in a strict namespace.
type work struct {
	claim *corev1.PersistentVolumeClaim
	set   *appsv1.StatefulSet
	held  []client.Object // all kinds, by a finalizer each
	by    map[string]client.Client
}

// newWork makes the claim, and lets the controllers write it.
func newWork(t *testing.T, strict string) work {
	t.Helper()
	w := work{claim: claimOf(strict, "worked-on", "1Gi", nil), by: map[string]client.Client{}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "works"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: []string{"*"},
	}}}
	bind := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}}
	for _, user := range append([]string{"somebody"}, atWork...) {
		bind.Subjects = append(bind.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
		cfg := rest.CopyConfig(server.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
		c, err := client.New(cfg, client.Options{Scheme: scheme()})
		if err != nil {
			t.Fatal(err)
		}
		w.by[user] = c
	}
	w.set = setOf(strict, "pg", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr[int32](2) })
	p := place{namespace: strict}
	w.held = []client.Object{w.claim, w.set, p.snapshot(nil), p.group(), p.schedule("daily", nil)}
	for _, o := range w.held {
		o.SetFinalizers([]string{"example.com/held"})
	}
	create(t, append([]client.Object{role, bind}, w.held...)...)
	for user := range w.by {
		eventually(t, user+" may write claims", func() error { return w.note(t, user) })
	}
	return w
}

// note has a user write an annotation, as the scheduler names the node.
func (w work) note(t *testing.T, user string) error {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":%q}}}`, "node of "+user)
	return w.by[user].Patch(t.Context(), w.claim.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
}

// goesOn holds that without a manager a strict namespace does not keep controllers
// from writing claims, nor anybody from making sets larger and taking finalizers
// off; and that what controllers make and delete waits like anybody's: the claims of
// sets are made by one of them.
func (w work) goesOn(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	waits := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s: %v; want that it waits for a manager", what, err)
		}
	}
	waits("somebody changes a claim", w.note(t, "somebody"))
	for _, user := range atWork {
		accepted(t, user+" changes a claim", w.note(t, user))
		waits(user+" makes a claim", w.by[user].Create(ctx, claimOf(w.claim.Namespace, "made", "1Gi", nil), client.DryRunAll))
		waits(user+" deletes a claim", w.by[user].Delete(ctx, w.claim.DeepCopy(), client.DryRunAll))
	}
	reached := w.claim.DeepCopy()
	reached.Status.Phase = corev1.ClaimLost
	accepted(t, "somebody writes the status of a claim", w.by["somebody"].Status().Update(ctx, reached))
	scale := func(replicas int32) error {
		return server.client.SubResource("scale").Update(ctx, w.set.DeepCopy(), client.DryRunAll, client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
	}
	waits("a set is made smaller", scale(1))
	accepted(t, "a set is made larger", scale(3))
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for _, o := range w.held {
		accepted(t, fmt.Sprintf("somebody takes the finalizers off %T", o), server.client.Patch(ctx, o, free))
		if len(o.GetFinalizers()) > 0 {
			t.Errorf("%T keeps %v", o, o.GetFinalizers())
		}
	}
}
