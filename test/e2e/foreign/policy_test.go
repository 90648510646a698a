//go:build e2e

package foreign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// inARow is how many questions one after the other are taken to have reached
// every replica of the manager: each goes to any of them.
const inARow = 8

// testPolicy: a policy about the driver that is not ours judges its classes by
// their own parameters, and no others; its claims are copied by the schedule that
// the policy gives, and may go with a fresh copy.
func testPolicy(t *testing.T) {
	s := stage.New(t)
	fast := s.Class("fast", map[string]string{"media": "ssd"}, classOf(block))
	slow := s.Class("slow", map[string]string{"media": "disk"}, classOf(block))
	// iops means something to EBS, and nothing that the policy could know of here.
	eager := s.Class("eager", map[string]string{"media": "ssd", "iops": "64000"}, classOf(block), func(c *storagev1.StorageClass) {
		c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	})
	ebs := s.Class("ebs", map[string]string{"type": "gp3"})
	copied := func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"copied": "yes"} }
	s.Claim("before", slow, "1Gi", copied)
	policy := policyOf(s, snapshotClass(s, "copies", snapshotv1.VolumeSnapshotContentDelete))
	refused := func(what string, claim *corev1.PersistentVolumeClaim, parts ...string) {
		t.Helper()
		s.Eventually(what+" is refused", func(ctx context.Context) (string, error) { return refusedInARow(ctx, s, claim, append(parts, policy)) })
	}

	refused("a class by its own parameter", unmade(s, "a", slow, copied), "storageClass.parameters", "parameters.media", `"disk"`, `"ssd"`)
	refused("a class by its binding mode", unmade(s, "b", eager, copied), "storageClass.volumeBindingMode", "WaitForFirstConsumer")
	refused("a claim that no schedule covers", unmade(s, "c", fast), "snapshots.required")
	s.Step("classes of %s are judged by what they have, in its words", block)
	for what, c := range map[string]*corev1.PersistentVolumeClaim{"a class without EBS's parameters": unmade(s, "d", fast, copied), "a claim of another driver": unmade(s, "e", ebs)} {
		if err := s.Client.Create(t.Context(), c, client.DryRunAll); err != nil {
			t.Errorf("%s is refused: %v", what, err)
		}
	}

	s.Claim("data", fast, "1Gi", copied)
	s.Pod("writer", "data")
	s.Ready("writer")
	data := unmade(s, "data", fast)
	if len(copies(s, policy+"-minutely")) == 0 { // as good as certain: the volume is seconds old
		if err := s.Client.Delete(t.Context(), data, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policy) {
			t.Errorf("a claim without a copy may go: %v", err)
		}
	}
	s.Eventually("a fresh copy is permission", func(ctx context.Context) (string, error) {
		return "", s.Client.Delete(ctx, data, client.DryRunAll)
	})
	if n := len(copies(s, policy+"-minutely")); n == 0 {
		t.Errorf("the claim may go, and there is no ready copy of it")
	}
	s.Step("the policy's schedule has copied its claim, which may go now")

	s.Eventually("the audit judges what there is", func(ctx context.Context) (string, error) {
		out, err := s.Kubectl(ctx, "get", "storagepolicy", policy, "-o",
			`jsonpath={.status.matchedClaims} {.status.violationCount}: {range .status.violations[*]}{.name} {.rule} {end}`)
		if want := "2 1: before storageClass.parameters "; err == nil && string(out) != want {
			return fmt.Sprintf("it says %q, want %q", out, want), nil
		}
		return "", err
	})
	compliant := strings.Fields(s.Run("get", "storagepolicy", policy, "-o", `jsonpath={.status.compliantStorageClasses[*]}`))
	if !slices.Contains(compliant, fast) || slices.Contains(compliant, slow) || slices.Contains(compliant, eager) || slices.Contains(compliant, ebs) {
		t.Errorf("compliant classes are %v, want %s, and none of %s, %s, %s", compliant, fast, slow, eager, ebs)
	}
}

// policyOf makes the policy, and takes it away before its namespace is to go.
func policyOf(s *stage.Stage, snapshotClass string) string {
	s.T.Helper()
	name := s.Namespace
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: StoragePolicy
metadata: {name: %[1]s}
spec:
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}, provisioners: [%[2]s]}
  guardrails:
    storageClass:
      volumeBindingMode: WaitForFirstConsumer
      allowVolumeExpansion: Required
      maxIOPS: 3000
      parameters: [{key: encrypted, values: ["true"]}, {key: media, values: [ssd], provisioners: [%[2]s]}]
    claim: {maxSize: 4Gi}
    deletion: {protect: WhenBound, allow: RecentSnapshot, snapshotNotOlderThanSeconds: 600}
  snapshots:
    required: Deny
    schedules: [{name: minutely, spec: {schedule: "* * * * *", snapshotClassName: %[3]s, target: {claimSelector: {matchLabels: {copied: "yes"}}}}}]
`, name, block, snapshotClass))
	s.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stage.Patience)
		defer cancel()
		if out, err := s.Kubectl(ctx, "delete", "storagepolicy", name); err != nil {
			s.T.Errorf("delete the policy: %v\n%s", err, out)
		}
		passed := 0
		err := testenv.Eventually(ctx, stage.Patience, "no replica holds to the policy", func(ctx context.Context) (string, error) {
			for ; passed < inARow; passed++ {
				if err := s.Client.Delete(ctx, unmade(s, "data", ""), client.DryRunAll); apierrors.IsForbidden(err) {
					passed = 0
					return "", err
				}
			}
			return "", nil
		})
		if err != nil {
			s.T.Error(err)
		}
	})
	return name
}

// ebsWords are what a refusal about another driver has no business to say.
var ebsWords = []string{"EBS", "ebs.csi", "AWS", "zone"}

// refusedInARow says what is missing until every replica refuses the claim with
// all parts in its text, and with no word of EBS.
func refusedInARow(ctx context.Context, s *stage.Stage, claim *corev1.PersistentVolumeClaim, parts []string) (string, error) {
	for range inARow {
		err := s.Client.Create(ctx, claim.DeepCopy(), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return "it is let through", err
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				return fmt.Sprintf("%q in", part), err
			}
		}
		for _, word := range ebsWords {
			if strings.Contains(err.Error(), word) {
				s.T.Errorf("a refusal about a class of %s speaks of %s: %v", block, word, err)
			}
		}
	}
	return "", nil
}

// unmade is a claim that is not there yet.
func unmade(s *stage.Stage, name, class string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}
