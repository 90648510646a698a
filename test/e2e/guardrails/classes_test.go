//go:build e2e

package guardrails

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

const isDefault = "storageclass.kubernetes.io/is-default-class"

// testClasses holds claims to the rules on their classes, however a claim comes
// to its class and whoever makes the claim.
func testClasses(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	const rules = `storageClass: {parameters: [{key: encrypted, values: ["true"]}], volumeBindingMode: WaitForFirstConsumer`
	policy(s, "", "", rules+"}")
	policy(s, "-db", ", claimSelector: {matchLabels: {tier: db}}", rules+", reclaimPolicy: Retain}")
	encrypted := map[string]string{"encrypted": "true"}
	retain := corev1.PersistentVolumeReclaimRetain
	immediate := storagev1.VolumeBindingImmediate
	good := s.Class("good", encrypted)
	plain := s.Class("plain", map[string]string{"type": "gp3"})
	kept := s.Class("kept", encrypted, func(c *storagev1.StorageClass) { c.ReclaimPolicy = &retain })
	early := s.Class("early", encrypted, func(c *storagev1.StorageClass) { c.VolumeBindingMode = &immediate })

	try := func(change ...func(*corev1.PersistentVolumeClaim)) error {
		return s.Client.Create(ctx, claim(s.Namespace, "tried", "1Gi", change...), client.DryRunAll)
	}
	refused(s, "an unencrypted class", try(ofClass(plain)), "storageClass.parameters", "spec.storageClassName", plain, "parameters.encrypted", `"true"`)
	refused(s, "an unencrypted class, named by the annotation of old", try(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Annotations = nil, map[string]string{corev1.BetaStorageClassAnnotation: plain}
	}), "storageClass.parameters", plain)
	refused(s, "a class that binds at once", try(ofClass(early)), "storageClass.volumeBindingMode", "Immediate", "WaitForFirstConsumer")
	refused(s, "a database's claim of a class that deletes", try(ofClass(good), ofTier), "storageClass.reclaimPolicy", "Delete", "Retain", s.Namespace+"-db")
	accepted(s, "a database's claim of a class that retains", try(ofClass(kept), ofTier))
	accepted(s, "another claim of a class that deletes", try(ofClass(good)))
	accepted(s, "a static claim", try())
	none := func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }
	accepted(s, "a claim without a class, where there is no default", try(none))

	mark := func(class, is string) { s.Run("annotate", "storageclass", class, isDefault+"="+is, "--overwrite") }
	t.Cleanup(func() {
		_, _ = s.Kubectl(context.Background(), "annotate", "storageclass", plain, good, isDefault+"-") // where the test ended early
	})
	mark(plain, "true")
	s.Eventually("a claim that names no class is judged by the default class", func(context.Context) (string, error) {
		if err := try(none); err == nil {
			return "it is let through", nil
		}
		return "", nil
	})
	refused(s, "a bad default class", try(none), "storageClass.parameters", plain)
	accepted(s, "a static claim, for which the default class is nothing", try())
	mark(plain, "false")
	mark(good, "true")
	s.Eventually("a claim that names no class has a good default class", func(ctx context.Context) (string, error) {
		c := claim(s.Namespace, "tried", "1Gi", none)
		if err := s.Client.Create(ctx, c, client.DryRunAll); err != nil {
			return "", err
		}
		if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != good {
			return "another one", nil
		}
		return "", nil
	})
	mark(good, "false")
	s.Step("the class of a claim is judged: named, by default, static")

	author, told := as(s, "")
	badSet := set(s.Namespace, "pg", plain, 1)
	accepted(s, "a set with a bad template", author.Create(ctx, badSet))
	for _, part := range []string{"storageClass.parameters", "spec.volumeClaimTemplates[0].spec.storageClassName"} {
		if !strings.Contains(told.String(), part) {
			t.Errorf("whoever applies a set with a bad template is warned of %q, without %q", told, part)
		}
	}
	s.Event("pg", "FailedCreate", "storageClass.parameters", plain)
	s.Step("the set is warned at apply, and tells why its claim is denied")

	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = s.Namespace, "scratch"
	pod.Spec = badSet.Spec.Template.Spec
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "", "1Gi", ofClass(plain)).Spec},
	}}}}
	s.Create(pod)
	s.Event("scratch", "storageClass.parameters", plain)
	var claims corev1.PersistentVolumeClaimList
	s.Must(s.Client.List(ctx, &claims, client.InNamespace(s.Namespace)))
	if len(claims.Items) != 0 {
		t.Errorf("%d claims are there, and all were to be denied", len(claims.Items))
	}
	s.Step("so is the claim of a generic ephemeral volume, and its Pod tells why")
}
