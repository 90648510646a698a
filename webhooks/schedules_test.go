//go:build envtest

package webhooks_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

func scheduleOf(ns, name, when string, change func(*v1alpha1.SnapshotSchedule)) *v1alpha1.SnapshotSchedule {
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.SnapshotScheduleSpec{Schedule: when}}
	if change != nil {
		change(s)
	}
	return s
}

// testSchedules holds C02 at admission, and that what was stored before stays
// editable.
func testSchedules(t *testing.T) {
	ctx, c := t.Context(), server.client
	for _, labels := range []map[string]string{nil, {v1alpha1.LabelEnforce: v1alpha1.EnforceStrict}} {
		ns := namespace(t, labels)
		zone := func(name string) func(*v1alpha1.SnapshotSchedule) {
			return func(s *v1alpha1.SnapshotSchedule) { s.Spec.TimeZone = name }
		}
		for _, tc := range []struct {
			when, zone string
			says       []string
		}{
			{"TZ=UTC", "", []string{"spec.schedule", "begins with TZ=", "timeZone"}},
			{"TZ=Asia/Tokyo 0 3 * * *", "", []string{"spec.schedule", "begins with TZ="}},
			{"CRON_TZ=", "", []string{"spec.schedule", "begins with CRON_TZ="}},
			{"CRON_TZ=Europe/Paris 0 * * * *", "", []string{"spec.schedule", "begins with CRON_TZ="}},
			{"0 0 30 2 *", "", []string{"spec.schedule", "a day that no year has"}},
			{"0 0 31 4,6,9,11 *", "", []string{"spec.schedule", "a day that no year has"}},
			{"60 * * * *", "", []string{"spec.schedule", `minute "60"`, "0 to 59"}},
			{"* 24 * * *", "", []string{"spec.schedule", `hour "24"`, "0 to 23"}},
			{"0 0 * * * *", "", []string{"spec.schedule", "6 fields", "no field for seconds"}},
			{"* * * *", "", []string{"spec.schedule", "4 fields", "want 5"}},
			{"@every 1h", "", []string{"spec.schedule", "@every"}},
			{"*/0 * * * *", "", []string{"spec.schedule", "step 0"}},
			{"0 * * * *", "Mars/Olympus", []string{"spec.timeZone", `"Mars/Olympus"`, "IANA"}},
			{"0 * * * *", "Local", []string{"spec.timeZone", "whichever machine"}},
			{"0 * * * *", "../UTC", []string{"spec.timeZone", "is not a known time zone"}},
		} {
			err := c.Create(ctx, scheduleOf(ns, "bad", tc.when, zone(tc.zone)))
			refused(t, tc.when+" in "+tc.zone, err, append(tc.says, `SnapshotSchedule "bad"`)...)
		}
	}
	ns := namespace(t, nil)
	server.warnings.taken()
	good := scheduleOf(ns, "good", "0 3 * * *", func(s *v1alpha1.SnapshotSchedule) {
		s.Spec.TimeZone, s.Finalizers = "Asia/Tokyo", []string{"example.com/held"}
	})
	create(t, good)
	if w := server.warnings.taken(); w != "" {
		t.Errorf("warned of a good schedule: %s", w)
	}
	often := scheduleOf(ns, "often", "* * * * *", func(s *v1alpha1.SnapshotSchedule) { s.Spec.JitterSeconds = 60 })
	accepted(t, "every minute", c.Create(ctx, often, client.DryRunAll))
	if w := server.warnings.taken(); !strings.Contains(w, "within 1m0s") || !strings.Contains(w, "over 30s") {
		t.Errorf("warnings are %q", w)
	}
	worse := good.DeepCopy()
	worse.Spec.Schedule = "0 3 30 feb *"
	refused(t, "a good one becomes bad", c.Update(ctx, worse), "spec.schedule", "a day that no year has")
	worse.Spec.Schedule, worse.Spec.Template.Labels = "0 3 * * *", map[string]string{v1alpha1.LabelClaimUID: "of another"}
	refused(t, "a label of ours", c.Update(ctx, worse.DeepCopy()), "spec.template.labels", v1alpha1.LabelClaimUID)
	worse.Spec.Template.Labels = nil
	worse.Spec.Target.ClaimSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	refused(t, "a selector that is none", c.Update(ctx, worse.DeepCopy()), "spec.target.claimSelector", `"Is"`)

	// Namespaces of the system are not asked about: what is bad there stands for
	// what was stored while no manager answered.
	stored := scheduleOf("kube-public", "stored", "0 0 30 2 *", func(s *v1alpha1.SnapshotSchedule) { s.Finalizers = []string{"example.com/held"} })
	accepted(t, "a bad one gets in where nobody is asked", c.Create(ctx, stored))
	accepted(t, "delete", c.Delete(ctx, stored))
	accepted(t, "its finalizer comes off", c.Patch(ctx, stored, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	good.Finalizers = nil
	accepted(t, "so does a good one's", c.Update(ctx, good))
}

// testHooks holds that hooks are written only by who may run commands in Pods
// there, whatever else a user may do with schedules.
func testHooks(t *testing.T) {
	ctx, c := t.Context(), server.client
	ns, other := namespace(t, nil), namespace(t, nil)
	as := func(user string) client.Client {
		cfg := rest.CopyConfig(server.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
		impersonated, err := client.New(cfg, client.Options{Scheme: scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return impersonated
	}
	role := func(name string, rule rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "schedules"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "schedules"}}
	for _, user := range []string{"planner", "dba"} {
		everywhere.Subjects = append(everywhere.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: user})
	}
	create(t, role("schedules", rbacv1.PolicyRule{APIGroups: []string{"holdfast.dev"}, Resources: []string{"snapshotschedules"}, Verbs: []string{"*"}}),
		role("exec", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create"}}), everywhere,
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "exec"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "exec"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "dba"}}})
	hooked := func(ns, name string) *v1alpha1.SnapshotSchedule {
		return scheduleOf(ns, name, "@daily", func(s *v1alpha1.SnapshotSchedule) {
			s.Spec.Hooks = &v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: []string{"sync"}}}}}
		})
	}
	eventually(t, "who may exec writes hooks", func() error { return as("dba").Create(ctx, hooked(ns, "dba"), client.DryRunAll) })
	eventually(t, "who may not exec writes none", func() error {
		if err := as("planner").Create(ctx, hooked(ns, "a"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), `user "planner" may not run commands in Pods of namespace `+ns) {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
	refused(t, "nor does one who may in another namespace", as("dba").Create(ctx, hooked(other, "a")), "spec.hooks", "pods/exec", other)
	refused(t, "nor in one of the system", as("dba").Create(ctx, hooked("kube-system", "a")), "spec.hooks", "pods/exec")
	accepted(t, "a plain schedule", as("planner").Create(ctx, scheduleOf(ns, "plain", "@daily", nil)))
	plain := &v1alpha1.SnapshotSchedule{}
	accepted(t, "read", c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "plain"}, plain))
	plain.Spec.Hooks = hooked(ns, "").Spec.Hooks
	refused(t, "hooks come later", as("planner").Update(ctx, plain.DeepCopy()), "may not run commands")
	accepted(t, "by who may", as("dba").Update(ctx, plain))
	plain.Spec.Suspend = true
	accepted(t, "who may not exec changes the rest", as("planner").Update(ctx, plain))
	for what, change := range map[string]func(*v1alpha1.SnapshotSchedule){
		"another command":   func(s *v1alpha1.SnapshotSchedule) { s.Spec.Hooks.Before[0].Command = []string{"rm"} },
		"another container": func(s *v1alpha1.SnapshotSchedule) { s.Spec.Hooks.Before[0].Container = "vault" },
		"one more hook": func(s *v1alpha1.SnapshotSchedule) {
			s.Spec.Hooks.After = []v1alpha1.HookCommand{{Command: []string{"sync"}}}
		},
		"other Pods": func(s *v1alpha1.SnapshotSchedule) { s.Spec.Target.StatefulSetName = "vault" },
	} {
		changed := plain.DeepCopy()
		change(changed)
		refused(t, what, as("planner").Update(ctx, changed), "may not run commands")
	}
	plain.Spec.Hooks = nil
	accepted(t, "who may not exec takes hooks off", as("planner").Update(ctx, plain))
	bad := hooked(ns, "bad")
	bad.Spec.Hooks.Before[0].PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	refused(t, "a selector that is none", c.Create(ctx, bad), "spec.hooks.before[0].podSelector", `"Is"`)
}
