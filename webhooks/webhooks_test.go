//go:build envtest

package webhooks_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// server is a real API server that asks our webhooks, shared by the tests.
var server struct {
	cfg      *rest.Config
	client   client.Client
	warnings *warnings
	cache    client.Reader // the manager's informers
	registry *prometheus.Registry
	certDir  string // of the webhooks' certificate
}

// warnings keeps what the API server warns of.
type warnings struct{ got []string }

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.got = append(w.got, text)
}

// taken answers the warnings so far and forgets them.
func (w *warnings) taken() string {
	all := strings.Join(w.got, "\n")
	w.got = nil
	return all
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func TestWebhooks(t *testing.T) {
	ctrllog.SetLogger(logr.Discard()) // else controller-runtime prints a stack to say that nobody did
	cfg, install := testenv.APIServerWithWebhooks(t)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultTransform: snapshots.Slim, ByObject: map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: {Transform: slim.Claim}}},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server.cache, server.registry = mgr.GetCache(), prometheus.NewRegistry()
	if err := webhooks.Add(mgr, world.Of(mgr, snapshots.NewIndex(mgr.GetFieldIndexer())), server.registry, true); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := mgr.Start(run); err != nil {
			fmt.Fprintln(os.Stderr, "manager:", err)
		}
	}()
	server.certDir = install.LocalServingCertDir
	server.cfg, server.warnings = rest.CopyConfig(cfg), &warnings{}
	server.cfg.WarningHandlerWithContext = server.warnings
	if server.client, err = client.New(server.cfg, client.Options{Scheme: scheme()}); err != nil {
		t.Fatal(err)
	}
	started := func() bool { return mgr.GetWebhookServer().StartedChecker()(nil) == nil }
	for deadline := time.Now().Add(30 * time.Second); !started() && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
	}
	t.Run("claims", testClaims)
	t.Run("attributes", testAttributes)
	t.Run("classes", testClasses)
	t.Run("sets", testSets)
	t.Run("deletion", testDeletion)
	t.Run("override", testOverride)
	t.Run("lifting", testLifting) // by the user of testOverride
	t.Run("defaults", testDefaults)
	t.Run("policies", testPolicies)
	t.Run("schedules", testSchedules)
	t.Run("hooks", testHooks)
	t.Run("table", testTable)
	t.Run("free", testFree)
	t.Run("match", testMatch)
	t.Run("exemptions", testExemptions)
	t.Run("ratchet", testRatchet)
	t.Run("examples", testExamples)
	t.Run("raise", testRaise)
	t.Run("many", testMany)
	t.Run("everything", testEverything)
	t.Run("link", testLink)
	t.Run("unanswered", func(t *testing.T) { // the last one: nobody answers any more
		testUnanswered(t, func() { stop(); <-stopped })
	})
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := server.client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// eventually waits until the manager's informers have seen what was made: what
// do answers must become nil.
func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// policy makes a policy, waits until it holds by means of a probe that it must
// refuse, and takes it away with the test.
func policy(t *testing.T, spec v1alpha1.StoragePolicySpec, probe client.Object) {
	t.Helper()
	p := &v1alpha1.StoragePolicy{Spec: spec}
	p.Name = strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(t.Name()))
	create(t, p)
	t.Cleanup(func() {
		if err := server.client.Delete(context.Background(), p); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the policy holds", func() error {
		if err := server.client.Create(t.Context(), probe.DeepCopyObject().(client.Object), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the probe is let through: %w", err)
		}
		return nil
	})
	server.warnings.taken()
}

func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-", Labels: labels}}
	create(t, n)
	return n.Name
}

// refused holds that err is a refusal that tells all parts.
func refused(t *testing.T, why string, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: let through: %v", why, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: the refusal lacks %q: %v", why, part, err)
		}
	}
}

func accepted(t *testing.T, why string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", why, err)
	}
}

func testClaims(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "claims"})
	ctx, c := t.Context(), server.client
	old := claimOf(ns, "old", "8Gi", nil)
	create(t, old) // before the policy: it may stay as it is
	create(t, classOf("plain", "ebs.csi.aws.com", map[string]string{"type": "gp3"}))
	policy(t, v1alpha1.StoragePolicySpec{
		Match: v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "claims"}}},
		Guardrails: &v1alpha1.Guardrails{
			Overrides:    []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleClaimVolumeModes, Action: v1alpha1.Warn}, {Rule: v1alpha1.RuleClaimAccessModes, Action: v1alpha1.Audit}},
			StorageClass: &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}},
			Claim: &v1alpha1.ClaimRules{
				MaxSize: ptr(resource.MustParse("4Gi")), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem},
			},
		},
	}, claimOf(ns, "probe", "5Gi", nil))

	refused(t, "too large", c.Create(ctx, claimOf(ns, "a", "5Gi", nil)), "claim.maxSize", "spec.resources.requests.storage", "5Gi", "at most 4Gi", "testwebhooks-claims")
	accepted(t, "small enough", c.Create(ctx, claimOf(ns, "b", "4Gi", nil)))
	refused(t, "a bad class", c.Create(ctx, claimOf(ns, "c", "1Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = ptr("plain") })),
		"storageClass.parameters", `"plain"`, "parameters.encrypted", `"true"`)
	create(t, classOf("just-made", "ebs.csi.aws.com", nil))
	refused(t, "a class made this second is read live", c.Create(ctx, claimOf(ns, "d", "1Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = ptr("just-made") })), "just-made")
	refused(t, "all findings at once", c.Create(ctx, claimOf(ns, "e", "9Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = ptr("plain") })), "claim.maxSize", "storageClass.parameters")

	server.warnings.taken()
	accepted(t, "Warn lets through", c.Create(ctx, claimOf(ns, "f", "1Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) })))
	if w := server.warnings.taken(); !strings.Contains(w, "claim.volumeModes") {
		t.Errorf("Warn: warnings are %q", w)
	}
	accepted(t, "Audit lets through", c.Create(ctx, claimOf(ns, "g", "1Gi", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})))
	if w := server.warnings.taken(); w != "" {
		t.Errorf("Audit is silent, warned %q", w)
	}
	eventually(t, "Audit leaves an event on the policy", func() error {
		var events corev1.EventList
		if err := c.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "StoragePolicy" && e.Reason == "Audited" && strings.Contains(e.Message, ns+"/g") {
				return nil
			}
		}
		return fmt.Errorf("none of %d events tells it", len(events.Items))
	})

	patched := old.DeepCopy()
	patched.Labels = map[string]string{"a": "b"}
	accepted(t, "an old violation stays editable", c.Patch(ctx, patched, client.MergeFrom(old)))
	patched.Finalizers = nil
	accepted(t, "finalizers come off", c.Update(ctx, patched))
	other := namespace(t, nil)
	accepted(t, "another namespace is not matched", c.Create(ctx, claimOf(other, "a", "5Gi", nil)))
	accepted(t, "system namespaces are never asked about", c.Create(ctx, claimOf("kube-system", "a", "5Gi", nil)))
}

// testAttributes holds that IOPS are bounded whichever class brings them.
func testAttributes(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "attributes"})
	ctx, c := t.Context(), server.client
	attributes := func(name, driver, iops string) *storagev1.VolumeAttributesClass {
		return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"iops": iops}}
	}
	create(t, attributes("silver", "ebs.csi.aws.com", "4000"), attributes("gold", "ebs.csi.aws.com", "4001"),
		attributes("platinum", "ebs.csi.aws.com", "5000"), attributes("of-another", "pd.csi.storage.gke.io", "5000"))
	naming := func(name, class string) *corev1.PersistentVolumeClaim {
		return claimOf(ns, name, "1Gi", func(p *corev1.PersistentVolumeClaim) {
			p.Spec.StorageClassName, p.Spec.VolumeAttributesClassName = ptr("expandable"), &class
		})
	}
	old := naming("old", "gold")
	create(t, old) // before the policy
	policy(t, v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "attributes"}}},
		Guardrails: &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{MaxIOPS: 4000}},
	}, naming("probe", "gold"))
	refused(t, "one IOPS too many", c.Create(ctx, naming("a", "gold")), "storageClass.maxIOPS", "spec.volumeAttributesClassName", `"gold"`, "4001", "at most 4000 IOPS")
	changed := naming("b", "silver")
	bound(changed)
	accepted(t, "as many as the policy allows", c.Create(ctx, changed))
	accepted(t, "the class of another driver", c.Create(ctx, naming("c", "of-another")))
	accepted(t, "a class that is not there", c.Create(ctx, naming("d", "gone")))
	changed.Status.Phase = corev1.ClaimBound // else the API server lets no class be named later
	accepted(t, "bind", c.Status().Update(ctx, changed))
	changed.Spec.VolumeAttributesClassName = ptr("platinum")
	refused(t, "a class that is named later", c.Update(ctx, changed.DeepCopy()), "storageClass.maxIOPS", `"platinum"`, "5000")
	old.Labels = map[string]string{"a": "b"}
	accepted(t, "an old violation stays editable", c.Update(ctx, old))
}

func testClasses(t *testing.T) {
	ctx, c := t.Context(), server.client
	create(t, classOf("was-there", "ebs.csi.aws.com", nil))
	policy(t, v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{
		Allowed: []string{"nothing-here"}, Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}, InTreeProvisioners: v1alpha1.Forbidden,
	}}}, classOf("probe", "ebs.csi.aws.com", nil))
	refused(t, "unencrypted", c.Create(ctx, classOf("x", "ebs.csi.aws.com", nil)), "parameters.encrypted", "not set")
	refused(t, "in-tree", c.Create(ctx, classOf("x", "kubernetes.io/aws-ebs", map[string]string{"encrypted": "true"})), "storageClass.inTreeProvisioners")
	accepted(t, "encrypted; that claims may not use the name is no fault of the class", c.Create(ctx, classOf("good", "ebs.csi.aws.com", map[string]string{"Encrypted": "true"})))
	for _, other := range []*storagev1.StorageClass{
		classOf("efs-shared", "efs.csi.aws.com", map[string]string{"provisioningMode": "efs-ap"}),
		classOf("ceph", "rbd.csi.ceph.com", nil), classOf("longhorn", "driver.longhorn.io", nil),
	} {
		accepted(t, "rules on EBS's parameters are not for "+other.Provisioner, c.Create(ctx, other))
	}
	was := classOf("was-there", "ebs.csi.aws.com", nil)
	accepted(t, "read", c.Get(ctx, client.ObjectKeyFromObject(was), was))
	was.AllowVolumeExpansion = ptr(true)
	accepted(t, "an old violation stays editable", c.Update(ctx, was))
}

func testSets(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "sets"})
	ctx, c := t.Context(), server.client
	policy(t, v1alpha1.StoragePolicySpec{
		Match: v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "sets"}}},
		Guardrails: &v1alpha1.Guardrails{
			Claim:       &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))},
			StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, PodDisruptionBudget: v1alpha1.Required},
			ScaleDown:   &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 3600},
		},
	}, claimOf(ns, "probe", "5Gi", nil))
	refused(t, "would delete its data", c.Create(ctx, setOf(ns, "x", func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Retain"}
	})), "statefulSet.whenDeleted", "Retain")
	server.warnings.taken()
	set := setOf(ns, "pg", func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = ptr[int32](3)
		s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
	})
	accepted(t, "budget and template only warn", c.Create(ctx, set))
	if w := server.warnings.taken(); !strings.Contains(w, "podDisruptionBudget") || !strings.Contains(w, "spec.volumeClaimTemplates[0].spec.resources.requests.storage") {
		t.Errorf("warnings are %q", w)
	}
	create(t, claimOf(ns, "data-pg-2", "1Gi", bound))
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	eventually(t, "the scale subresource is judged", func() error {
		if err := c.SubResource("scale").Update(ctx, set.DeepCopy(), client.WithSubResourceBody(scale.DeepCopy())); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "data-pg-2") {
			return fmt.Errorf("scaled down without a snapshot: %w", err)
		}
		return nil
	})
	fewer := set.DeepCopy()
	fewer.Spec.Replicas = ptr[int32](2)
	refused(t, "and so is the set itself", c.Update(ctx, fewer), "scaleDown", "data-pg-2")
	snapshot(t, ns, "fresh", "data-pg-2", time.Now())
	eventually(t, "a fresh snapshot is permission", func() error { return c.Update(ctx, fewer.DeepCopy(), client.DryRunAll) })
	more := set.DeepCopy()
	more.Spec.Replicas = ptr[int32](4)
	accepted(t, "growing is free", c.Update(ctx, more))
}

// snapshot makes a ready snapshot that was cut at a time.
func snapshot(t *testing.T, ns, name, of string, cut time.Time) *snapshotv1.VolumeSnapshot {
	t.Helper()
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	s.Spec.Source.PersistentVolumeClaimName = &of
	create(t, s)
	s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr(true), CreationTime: ptr(metav1.NewTime(cut)), BoundVolumeSnapshotContentName: ptr("content-" + name)}
	if err := server.client.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func protecting(kind string, allow v1alpha1.DeletionPermission) v1alpha1.StoragePolicySpec {
	return v1alpha1.StoragePolicySpec{
		Match: v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": kind}}},
		Guardrails: &v1alpha1.Guardrails{
			Claim:    &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))},
			Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: allow},
		},
	}
}

func testDeletion(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "deletion"})
	ctx, c := t.Context(), server.client
	data, free := claimOf(ns, "data-pg-0", "1Gi", bound), claimOf(ns, "free", "1Gi", nil)
	create(t, data, free)
	policy(t, protecting("deletion", v1alpha1.AllowRecentSnapshot), claimOf(ns, "probe", "5Gi", nil))
	set := setOf(ns, "pg", func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Retain"}
	})
	create(t, set)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	all := func() map[string]error {
		return map[string]error{
			"by name":               c.Delete(ctx, data.DeepCopy()),
			"by deletecollection":   c.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": data.Name}),
			"with its namespace":    c.Delete(ctx, object.DeepCopy()),
			"with its set":          c.Delete(ctx, set.DeepCopy()),
			"as a dry run":          c.Delete(ctx, data.DeepCopy(), client.DryRunAll),
			"namespace, as dry run": c.Delete(ctx, object.DeepCopy(), client.DryRunAll),
		}
	}
	for how, err := range all() {
		refused(t, how, err, "deletion", ns+"/data-pg-0", "not there", v1alpha1.AnnotationOverrideDeletion)
	}
	accepted(t, "a set that leaves its claims", c.Delete(ctx, set.DeepCopy(), client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	earlier := claimOf(ns, "data-pg-7", "1Gi", func(p *corev1.PersistentVolumeClaim) {
		bound(p)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID}}
	})
	create(t, earlier)
	eventually(t, "the claim of a replica that went before is judged with its set", func() error {
		if err := c.Delete(ctx, set.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), ns+"/data-pg-7") {
			return fmt.Errorf("the refusal says nothing of it: %w", err)
		}
		return nil
	})
	snapshot(t, ns, "of-earlier", "data-pg-7", time.Now().Add(time.Second))
	eventually(t, "and goes with a snapshot", func() error { return c.Delete(ctx, earlier.DeepCopy()) })
	accepted(t, "an unbound claim holds nothing", c.Delete(ctx, free))
	snapshot(t, ns, "old", "data-pg-0", data.CreationTimestamp.Add(-time.Hour))
	for how, err := range all() {
		refused(t, how+", with a snapshot of an earlier claim of the name", err, "not there")
	}
	fresh := snapshot(t, ns, "fresh", "data-pg-0", time.Now().Add(time.Second))
	eventually(t, "a fresh ready snapshot is permission", func() error { return c.Delete(ctx, data.DeepCopy(), client.DryRunAll) })
	accepted(t, "for the set too", c.Delete(ctx, set.DeepCopy(), client.DryRunAll))
	accepted(t, "and the namespace", c.Delete(ctx, object.DeepCopy(), client.DryRunAll))
	refused(t, "but that snapshot stays", c.Delete(ctx, fresh.DeepCopy()), "the newest ready one")
	newer := snapshot(t, ns, "newer", "data-pg-0", time.Now().Add(2*time.Second))
	eventually(t, "until there is a newer one", func() error { return c.Delete(ctx, fresh.DeepCopy()) })
	refused(t, "which then is what stays", c.Delete(ctx, newer), "the newest ready one")
	accepted(t, "the claim goes", c.Delete(ctx, data))
}

func testOverride(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "override", v1alpha1.LabelEnforce: v1alpha1.EnforceStrict})
	ctx, c := t.Context(), server.client
	data := claimOf(ns, "data", "1Gi", bound)
	create(t, data)
	policy(t, protecting("override", v1alpha1.AllowOverrideOnly), claimOf(ns, "probe", "5Gi", nil))
	snapshot(t, ns, "fresh", "data", time.Now().Add(time.Second))
	refused(t, "a fresh snapshot is no permission under OverrideOnly", c.Delete(ctx, data.DeepCopy()), "not overridden")

	as := func(user string) client.Client {
		cfg := rest.CopyConfig(server.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
		impersonated, err := client.New(cfg, client.Options{Scheme: scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return impersonated
	}
	edit := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edits"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status", "namespaces", "namespaces/status", "namespaces/finalize"}, Verbs: []string{"*"}}}}
	override := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "overrides"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"holdfast.dev"}, Resources: []string{"storagepolicies"}, Verbs: []string{"override"}}}}
	bind := func(role string, users ...string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
		for _, u := range users {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: u})
		}
		return b
	}
	create(t, edit, override, bind("edits", "dev", "lead"), bind("overrides", "lead"))
	annotated := data.DeepCopy()
	annotated.Annotations = map[string]string{v1alpha1.AnnotationOverrideDeletion: "moved to s3"}
	eventually(t, "the roles are bound", func() error {
		err := as("dev").Patch(ctx, annotated.DeepCopy(), client.MergeFrom(data), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), `"dev" may not override`) {
			return fmt.Errorf("a developer writes the override: %w", err)
		}
		return nil
	})
	object := &corev1.Namespace{}
	accepted(t, "read", c.Get(ctx, client.ObjectKey{Name: ns}, object))
	opened := object.DeepCopy()
	delete(opened.Labels, v1alpha1.LabelEnforce)
	refused(t, "a developer takes the strict label off", as("dev").Update(ctx, opened.DeepCopy(), client.DryRunAll), "may not override")
	accepted(t, "who may override takes it off", as("lead").Update(ctx, opened.DeepCopy(), client.DryRunAll))
	accepted(t, "who may override writes the override", as("lead").Patch(ctx, annotated.DeepCopy(), client.MergeFrom(data)))
	accepted(t, "and then a developer may delete", as("dev").Delete(ctx, data))
}

// testLifting is what a developer, who may not override, tries against the
// protection of a claim: the API server asks about all of it.
func testLifting(t *testing.T) {
	ctx, c := t.Context(), server.client
	cfg := rest.CopyConfig(server.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "dev"}
	dev, err := client.New(cfg, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ns, outside := namespace(t, map[string]string{"kind": "lifting"}), namespace(t, map[string]string{"kind": "elsewhere"})
	keep := func(p *corev1.PersistentVolumeClaim) { bound(p); p.Labels = map[string]string{"keep": "yes"} }
	data, loose, cached := claimOf(ns, "data", "1Gi", keep), claimOf(ns, "loose", "1Gi", bound), claimOf(ns, "db-0-cache", "1Gi", keep)
	armed := claimOf(outside, "data", "1Gi", func(p *corev1.PersistentVolumeClaim) {
		keep(p)
		p.Annotations = map[string]string{v1alpha1.AnnotationOverrideDeletion: "mine"}
	})
	for _, o := range []client.Object{data, loose, cached, armed} {
		put(t, o)
	}
	spec := protecting("lifting", v1alpha1.AllowOverrideOnly)
	spec.Match.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}
	spec.Exemptions = []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "legacy"}}, Reason: "migration", Until: metav1.NewTime(time.Now().Add(time.Hour))}}
	policy(t, spec, claimOf(ns, "probe", "5Gi", keep))
	try := func(o client.Object, patch string, options ...client.PatchOption) error {
		return dev.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
	}
	inside, other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: outside}}
	const byPod = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"8b1f","controller":true}]}}`
	const override = `{"metadata":{"annotations":{"holdfast.dev/override-deletion":"mine"}}}`
	// Whoever may write a status may write labels and annotations with it.
	withStatus := func(o client.Object, patch string) error {
		return dev.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	finalized := &corev1.Namespace{}
	accepted(t, "read", c.Get(ctx, client.ObjectKey{Name: ns}, finalized))
	finalized.Annotations = map[string]string{v1alpha1.AnnotationOverrideDeletion: "mine"}
	for what, err := range map[string]error{
		"takes the label off":                    try(data, `{"metadata":{"labels":{"keep":null}}}`),
		"labels it into an exemption":            try(data, `{"metadata":{"labels":{"app":"legacy"}}}`),
		"makes it a Pod's":                       try(cached, byPod),
		"writes the override":                    try(data, override),
		"labels the namespace out of the policy": try(inside, `{"metadata":{"labels":{"kind":"other"}}}`),
		"writes the override on the namespace":   try(inside, override),
		"labels a namespace in with an override": try(other, `{"metadata":{"labels":{"kind":"lifting"}}}`),
		"takes the label off with its status":    withStatus(data, `{"metadata":{"labels":{"keep":null}}}`),
		"writes the override with its status":    withStatus(data, override),
		"makes it a Pod's with its status":       withStatus(cached, byPod),
		"writes it with a namespace's status":    withStatus(inside, override),
		"writes it with a namespace's end":       dev.SubResource("finalize").Update(ctx, finalized),
	} {
		refused(t, "a developer "+what, err, `"dev" may not override`)
	}
	// What is asked about is found by the API server itself, which gives it up where
	// it takes too long, and then asks nothing.
	var owners []string
	for i := range 1000 {
		owners = append(owners, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"u-%d"}`, i))
	}
	owned := `{"metadata":{"ownerReferences":[` + strings.Join(owners, ",")
	accepted(t, "Pods that do not control it", try(cached, owned+`]}}`))
	refused(t, "a developer makes it one of many Pods'", try(cached, owned+`,{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"8b1f","controller":true}]}}`), `"dev" may not override`)
	accepted(t, "a Pod that the claim is not named after", try(data, byPod, client.DryRunAll))
	accepted(t, "an override where nothing is protected", try(loose, override))
	eventually(t, "but the claim does not come under the policy with it", func() error {
		if err := try(loose, `{"metadata":{"labels":{"keep":"yes"}}}`, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it does: %w", err)
		}
		return nil
	})
	accepted(t, "a status is free", withStatus(data, `{"status":{"phase":"Lost"}}`))
	accepted(t, "of a namespace too", withStatus(inside, `{"status":{"phase":"Active"}}`))
	accepted(t, "other labels are free", try(data, `{"metadata":{"labels":{"team":"a"}}}`))
	accepted(t, "on the namespace too", try(inside, `{"metadata":{"labels":{"team":"a"}}}`))
	refused(t, "and the claim stays", c.Delete(ctx, data.DeepCopy(), client.DryRunAll), "not overridden")
}

// testUnanswered takes the strict label off while no manager answers: what makes
// requests wait for one must not come off by itself.
func testUnanswered(t *testing.T, stop func()) {
	ctx, c := t.Context(), server.client
	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(t, map[string]string{v1alpha1.LabelEnforce: v1alpha1.EnforceStrict})}}
	ordinary := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(t, nil)}}
	label := func(n *corev1.Namespace, value string) error {
		return c.Patch(ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{`+value+`}}}`)))
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}}
	ofControllers := newWork(t, strict.Name)
	stop()
	ofControllers.goesOn(t)
	withStatus := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"holdfast.dev/enforce":null}}}`))
	if err := c.Status().Patch(ctx, strict.DeepCopy(), withStatus); err == nil || !strings.Contains(err.Error(), `failed calling webhook "namespaces.strict.holdfast.dev"`) {
		t.Errorf("somebody takes it off with its status: %v", err)
	}
	for what, value := range map[string]string{"takes it off": `"holdfast.dev/enforce":null`, "gives it another value": `"holdfast.dev/enforce":"lax"`} {
		if err := label(strict, value); err == nil || !strings.Contains(err.Error(), `failed calling webhook "namespaces-opened.holdfast.dev"`) {
			t.Errorf("somebody %s: %v", what, err)
		}
	}
	accepted(t, "another namespace waits for nobody", label(ordinary, `"team":"a"`))
	accepted(t, "nor does one of the system, labelled strict", label(system, `"holdfast.dev/enforce":"strict"`))
	accepted(t, "which takes it off", label(system, `"holdfast.dev/enforce":null`))
	for _, in := range []string{ordinary.Name, "kube-system"} {
		accepted(t, "a schedule waits for nobody", c.Create(ctx, scheduleOf(in, "plain", "@daily", nil)))
		err := c.Create(ctx, scheduleOf(in, "hooked", "@daily", func(s *v1alpha1.SnapshotSchedule) {
			s.Spec.Hooks = &v1alpha1.SnapshotHooks{Before: []v1alpha1.BeforeHook{{HookCommand: v1alpha1.HookCommand{Command: []string{"sync"}}}}}
		}))
		if err == nil || !strings.Contains(err.Error(), `failed calling webhook "snapshotschedules-hooks.holdfast.dev"`) {
			t.Errorf("hooks get into %s unasked: %v", in, err)
		}
	}
}

func testDefaults(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "defaults"})
	ctx, c := t.Context(), server.client
	policy(t, v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "defaults"}}},
		Defaults:   &v1alpha1.PolicyDefaults{StorageClassName: "given"},
		Guardrails: &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))}},
	}, claimOf(ns, "probe", "5Gi", nil))
	silent := func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = nil }
	given := claimOf(ns, "silent", "1Gi", silent)
	create(t, given)
	if got := given.Spec.StorageClassName; got == nil || *got != "given" {
		t.Errorf("a claim that names no class has %v", got)
	}
	static := claimOf(ns, "static", "1Gi", nil)
	create(t, static)
	if got := static.Spec.StorageClassName; got == nil || *got != "" {
		t.Errorf("a static claim has %v", got)
	}
	marked := classOf("marked", "ebs.csi.aws.com", nil)
	marked.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	create(t, marked)
	eventually(t, "a marked default class comes first", func() error {
		shadowed := claimOf(ns, "shadowed", "1Gi", silent)
		if err := c.Create(ctx, shadowed, client.DryRunAll); err != nil {
			return err
		}
		if got := shadowed.Spec.StorageClassName; got == nil || *got != "marked" {
			return fmt.Errorf("the claim has %v", got)
		}
		return nil
	})
	accepted(t, "unmark", c.Delete(ctx, marked))
}

func testPolicies(t *testing.T) {
	ctx, c := t.Context(), server.client
	bad := &v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}},
		Guardrails: &v1alpha1.Guardrails{ScaleDown: &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 60}},
	}}
	bad.Name = "bad"
	refused(t, "a selector that is none", c.Create(ctx, bad), "spec.match.claimSelector")
	late := &v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{
		Guardrails: &v1alpha1.Guardrails{ScaleDown: &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 60}},
		Exemptions: []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Reason: "migration", Until: metav1.NewTime(time.Now().Add(-time.Hour))}},
	}}
	late.Name = "late"
	server.warnings.taken()
	accepted(t, "an exemption that has ended", c.Create(ctx, late, client.DryRunAll))
	if w := server.warnings.taken(); !strings.Contains(w, "spec.exemptions[0].until") {
		t.Errorf("warnings are %q", w)
	}
}
