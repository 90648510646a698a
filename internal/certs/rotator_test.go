//go:build envtest

package certs

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestRotation asks for a rotation by the Secret's annotation and holds after
// each step what API servers are told and what replicas serve.
func TestRotation(t *testing.T) {
	cfg, _ := testenv.APIServerWithWebhooks(t)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	o := Options{
		Secret: types.NamespacedName{Namespace: "default", Name: "certificates"}, Names: wanted.names,
		Configuration: "holdfast", While: time.Minute, Clock: clk,
	}
	rotator, store := NewRotator(c, c, o), NewStore(c, o)
	if err := store.Ready(); err == nil {
		t.Error("ready without a certificate")
	}
	// step takes one step of the leader, has a replica look, and answers how many
	// CAs every webhook is told of.
	step := func() int {
		t.Helper()
		if _, err := rotator.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.Ready(); err != nil {
			t.Fatal(err)
		}
		return told(t, c, clk.Now(), store)
	}
	if n := step(); n != 2 {
		t.Fatalf("%d CAs are trusted at the beginning, want ours and that of the one who answered before", n)
	}
	clk.Step(time.Minute)
	if n := step(); n != 1 {
		t.Fatalf("%d CAs are trusted a while after the beginning", n)
	}
	first := store.Expiry()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), o.Secret, secret); err != nil {
		t.Fatal(err)
	}
	secret.Annotations = map[string]string{AnnotationRotate: "now"}
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if n := step(); n != 2 || !store.Expiry().Equal(first) {
		t.Errorf("%d CAs are trusted; the next is, and nothing of it is served yet", n)
	}
	clk.Step(time.Minute)
	if n := step(); n != 2 || store.Expiry().Equal(first) {
		t.Errorf("%d CAs are trusted; a certificate of the next is served, and the last is trusted still", n)
	}
	clk.Step(time.Minute)
	if n := step(); n != 1 {
		t.Errorf("%d CAs are trusted at the end", n)
	}
	if n := step(); n != 1 {
		t.Error("the same request began another rotation")
	}
	before, err := store.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if n := step(); n != 2 {
		t.Errorf("%d CAs are trusted after the Secret was deleted, want that of what replicas serve still, and the next", n)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "holdfast"}, validating); err != nil {
		t.Fatal(err)
	}
	trusted, err := parsePairs(validating.Webhooks[0].ClientConfig.CABundle, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(t, clk.Now(), trusted, &pair{cert: before.Leaf}); err != nil {
		t.Errorf("a replica that has not looked yet is not trusted: %v", err)
	}
	clk.Step(time.Minute)
	if n := step(); n != 1 {
		t.Errorf("%d CAs are trusted a while after the Secret was made again", n)
	}
}

// told holds that all webhooks are told the same and that it vouches for what
// is served, and answers the number of CAs.
func told(t *testing.T, c client.Client, now time.Time, store *Store) int {
	t.Helper()
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	for _, o := range []client.Object{validating, mutating} {
		if err := c.Get(t.Context(), types.NamespacedName{Name: "holdfast"}, o); err != nil {
			t.Fatal(err)
		}
	}
	var bundles [][]byte
	for _, w := range validating.Webhooks {
		bundles = append(bundles, w.ClientConfig.CABundle)
	}
	for _, w := range mutating.Webhooks {
		bundles = append(bundles, w.ClientConfig.CABundle)
	}
	serving, err := store.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bundles {
		trusted, err := parsePairs(b, nil)
		if err != nil || string(b) != string(bundles[0]) {
			t.Fatalf("webhooks are told different things, or no certificates: %v", err)
		}
		if err := verify(t, now, trusted, &pair{cert: serving.Leaf}); err != nil {
			t.Fatalf("a webhook's bundle does not vouch for what is served: %v", err)
		}
	}
	trusted, _ := parsePairs(bundles[0], nil)
	return len(trusted)
}
