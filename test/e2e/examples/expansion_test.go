//go:build e2e

package examples

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func automaticExpansion(t *testing.T, x *example) {
	t.Cleanup(func() {
		if out, err := x.Kubectl(context.Background(), "delete", "storagepolicy", "example-25-growth", "--ignore-not-found"); err != nil {
			t.Errorf("delete the policy: %v\n%s", err, out)
		}
	})
	x.apply("00", "10", "20", "30")
	x.Ready("app")
	for _, is := range []struct {
		what string
		done func(c *corev1.PersistentVolumeClaim) bool
	}{
		{"grown to 2Gi", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Status.Capacity.Storage().Cmp(resource.MustParse("2Gi")) == 0
		}},
		{"half full, and blocked by its own maximum", func(c *corev1.PersistentVolumeClaim) bool {
			for _, of := range c.Status.Conditions {
				if of.Type == "holdfast.dev/ExpansionBlocked" {
					return of.Message == "the claim has 2Gi, and the claim's annotation holdfast.dev/max-size is 2Gi: raise it, or make room in the volume"
				}
			}
			return false
		}},
	} {
		// The Pod writes for minutes.
		x.Must(testenv.Eventually(t.Context(), 3*stage.Patience, "claim data "+is.what, func(ctx context.Context) (string, error) {
			var c corev1.PersistentVolumeClaim
			err := x.Client.Get(ctx, client.ObjectKey{Namespace: x.Namespace, Name: "data"}, &c)
			if err != nil || is.done(&c) {
				return "", err
			}
			return "capacity " + c.Status.Capacity.Storage().String(), nil
		}))
	}
	if said := x.Run("-n", x.Namespace, "logs", "app"); strings.TrimSpace(said) != "" && strings.TrimSpace(said) != "written" {
		t.Errorf("the Pod says %q", said)
	}
}
