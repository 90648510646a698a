//go:build e2e

package guardrails

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// TestGuardrails has the manager judge, keeps it answering while its certificate
// is changed and its Pods go, takes it away, and at last takes all of it away;
// for the tests that come after, it is put back as the sandbox has it.
func TestGuardrails(t *testing.T) {
	s := stage.New(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stage.Patience)
		defer cancel()
		if _, err := s.Kubectl(ctx, "apply", "-k", config(s, filepath.Join("overlays", "sandbox"))); err != nil {
			t.Error(err)
		}
		if err := s.Rollout(ctx, stage.Patience); err != nil {
			t.Error(err)
		}
	})
	t.Run("beside", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"classes": testClasses, "protection": testProtection, "sets": testSets, "answers": testAnswers,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("absent", testAbsent)
	t.Run("expired", testExpired)
	t.Run("uninstall", testUninstall)
}

// config is a folder of config/.
func config(s *stage.Stage, name string) string { return filepath.Join(s.Root, "config", name) }

// apply has kubectl apply a manifest, as soon as the API server knows its kinds,
// and answers what kubectl prints.
func apply(s *stage.Stage, manifest string) string {
	s.T.Helper()
	name := filepath.Join(s.T.TempDir(), "manifest.yaml")
	s.Must(os.WriteFile(name, []byte(manifest), 0o600))
	var said []byte
	s.Eventually("kubectl applies\n"+manifest, func(ctx context.Context) (missing string, err error) {
		said, err = s.Kubectl(ctx, "apply", "-f", name)
		return "", err
	})
	return string(said)
}

// policy makes a policy about a namespace, named like it, and waits until every
// replica holds claims to it. The policy bounds claims to 4Gi besides what
// guardrails, in YAML, say. It goes with the test.
func policy(s *stage.Stage, suffix, match, guardrails string) string {
	s.T.Helper()
	name := s.Namespace + suffix
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: StoragePolicy
metadata: {name: %s}
spec:
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}%s}
  guardrails: {claim: {maxSize: 4Gi}, %s}
`, name, s.Namespace, match, guardrails))
	s.T.Cleanup(func() { release(s, name) })
	s.Eventually("policy "+name+" is scanned", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "get", "storagepolicy", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && string(out) != "True" {
			return "Ready is " + string(out), nil
		}
		return "", err
	})
	held(s, name)
	return name
}

// release takes a policy away and waits until no replica holds claims to it: the
// namespace is to be deleted next.
func release(s *stage.Stage, policy string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stage.Patience)
	defer cancel()
	if _, err := s.Kubectl(ctx, "delete", "storagepolicy", policy, "--ignore-not-found"); err != nil {
		s.T.Error(err)
		return
	}
	passed := 0
	s.Must(testenv.Eventually(ctx, stage.Patience, "policy "+policy+" holds nothing any more", func(ctx context.Context) (string, error) {
		for ; passed < inARow; passed++ {
			if err := probe(ctx, s); err != nil && strings.Contains(err.Error(), `"`+policy+`"`) {
				passed = 0
				return err.Error(), nil
			}
		}
		return "", nil
	}))
}

// inARow is how many questions one after the other are taken to have reached
// every replica: each goes to any of them.
const inARow = 8

// probe asks for a claim that every policy of a test refuses.
func probe(ctx context.Context, s *stage.Stage) error {
	return s.Client.Create(ctx, claim(s.Namespace, "probe", "5Gi", ofTier), client.DryRunAll)
}

// held waits until every replica holds claims to a policy.
func held(s *stage.Stage, policy string) {
	s.T.Helper()
	refused := 0
	s.Eventually("policy "+policy+" holds", func(ctx context.Context) (string, error) {
		for ; refused < inARow; refused++ {
			if err := probe(ctx, s); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"`+policy+`"`) {
				refused = 0
				return "a refusal that names it", err
			}
		}
		return "", nil
	})
}

// tier is a label that claims of databases have.
const tier = "tier"

// claim is a static claim: nothing is provisioned for it.
func claim(namespace, name, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	static := ""
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &static,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// ofClass has a claim name a class.
func ofClass(class string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

// ofTier has a claim be a database's.
func ofTier(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{tier: "db"} }

// set is a StatefulSet whose Pods have a claim "data" of a class each, and whose
// claims go with it.
func set(namespace, name, class string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	grace := int64(1)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{
						Name: "app", Image: "docker.io/library/busybox:1.37", Command: []string{"sh", "-c", "trap exit TERM; while :; do sleep 1; done"},
						VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim("", "data", "1Gi", ofClass(class))},
		},
	}
}

// refused holds that a refusal of the webhooks tells all parts.
func refused(s *stage.Stage, what string, err error, parts ...string) {
	s.T.Helper()
	if !apierrors.IsForbidden(err) {
		s.T.Errorf("%s: is not refused: %v", what, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			s.T.Errorf("%s: the refusal lacks %q: %v", what, part, err)
		}
	}
}

func accepted(s *stage.Stage, what string, err error) {
	s.T.Helper()
	if err != nil {
		s.T.Errorf("%s: %v", what, err)
	}
}

// warnings are what the API server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeaderWithContext keeps a warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Clone(w.all), "\n")
}

// as is a client of some user ("": the administrator) whose warnings are kept.
func as(s *stage.Stage, user string) (client.Client, *warnings) {
	s.T.Helper()
	cfg, err := s.RESTConfig()
	s.Must(err)
	w := &warnings{}
	cfg.QPS, cfg.WarningHandlerWithContext, cfg.Impersonate = -1, w, rest.ImpersonationConfig{UserName: user}
	c, err := client.New(cfg, client.Options{Scheme: s.Client.Scheme()})
	s.Must(err)
	return c, w
}

// managers are the manager's Pods.
func managers(ctx context.Context, s *stage.Stage) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(testenv.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	return pods.Items, err
}

// scaleManager changes the number of replicas and waits until there are as many.
func scaleManager(s *stage.Stage, replicas int) {
	s.T.Helper()
	s.Run("-n", testenv.Namespace, "scale", "deployment/holdfast-manager", fmt.Sprintf("--replicas=%d", replicas))
	s.Must(s.Rollout(s.T.Context(), stage.Patience))
	s.Eventually(fmt.Sprintf("%d Pods of the manager", replicas), func(ctx context.Context) (string, error) {
		pods, err := managers(ctx, s)
		if err == nil && len(pods) != replicas {
			return fmt.Sprintf("%d are there", len(pods)), nil
		}
		return "", err
	})
}
