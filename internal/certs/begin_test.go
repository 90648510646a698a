package certs

import (
	"bytes"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAnyReplicaBegins: a replica that does not lead makes certificates where
// there are none to serve, and leaves all else to the leader.
func TestAnyReplicaBegins(t *testing.T) {
	clk := clocktesting.NewFakeClock(start)
	c := fake.NewClientBuilder().Build()
	o := Options{Secret: types.NamespacedName{Namespace: "n", Name: "certificates"}, Names: wanted.names, Configuration: "holdfast", Clock: clk}
	begin := func() []byte {
		t.Helper()
		if _, err := NewRotator(c, c, o).Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		var secret corev1.Secret
		if err := c.Get(t.Context(), o.Secret, &secret); err != nil {
			t.Fatal(err)
		}
		if s, err := fromSecret(&secret); err != nil || !usable(clk.Now(), s) {
			t.Fatalf("nothing can be served: %v", err)
		}
		return secret.Data[keyTrusted]
	}
	first := begin()
	if string(begin()) != string(first) {
		t.Error("another replica began anew what can be served")
	}
	clk.SetTime(start.Add(servingLife * 9 / 10))
	if string(begin()) != string(first) {
		t.Error("a replica that does not lead changed what is due, but can be served")
	}
	clk.SetTime(start.Add(servingLife + time.Minute))
	if string(begin()) == string(first) {
		t.Error("an expired certificate is left to a leader that may not come")
	}
}

// TestWhoBegins: a replica that does not lead changes nothing of what can be
// served, whatever its clock says of the beginning.
func TestWhoBegins(t *testing.T) {
	settled, _, _, err := next(start, state{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _, err := next(start, state{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		why    string
		at     time.Time // by the replica's clock
		change func(*corev1.Secret)
		want   bool
	}{
		"served":       {"nothing to do", start, func(*corev1.Secret) {}, false},
		"clock behind": {"a certificate is not the worse for it", start.Add(-time.Hour), func(*corev1.Secret) {}, false},
		"ended":        {"nobody accepts it", start.Add(servingLife), func(*corev1.Secret) {}, true},
		"emptied":      {"there is nothing", start, func(s *corev1.Secret) { s.Data = nil }, true},
		"unreadable": {"is as good as none", start, func(s *corev1.Secret) {
			s.Data[keyServing] = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, true},
		"key lost": {"nobody can present it", start, func(s *corev1.Secret) { delete(s.Data, keyServingKey) }, true},
		"no CA":    {"it is served; the leader makes another", start, func(s *corev1.Secret) { s.Data[keyTrusted] = other.trusted[0].certPEM() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "certificates"}}
			if err := settled.into(secret); err != nil {
				t.Fatal(err)
			}
			tc.change(secret)
			c := fake.NewClientBuilder().WithObjects(secret.DeepCopy()).Build()
			o := Options{Secret: client.ObjectKeyFromObject(secret), Names: wanted.names, Configuration: "holdfast", Clock: clocktesting.NewFakeClock(tc.at)}
			if _, err := NewRotator(c, c, o).Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := &corev1.Secret{}
			if err := c.Get(t.Context(), o.Secret, after); err != nil {
				t.Fatal(err)
			}
			if began := !bytes.Equal(after.Data[keyServing], secret.Data[keyServing]); began != tc.want {
				t.Errorf("%s: began anew: %t", tc.why, began)
			}
			if s, err := fromSecret(after); tc.want && (err != nil || nothingToServe(tc.at, s)) {
				t.Errorf("%s: nothing can be served: %v", tc.why, err)
			}
		})
	}
}

// TestBeginningKeepsTrust: where the Secret is deleted, what replicas serve
// until they look stays trusted for a while, and no longer.
func TestBeginningKeepsTrust(t *testing.T) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Webhooks: make([]admissionregistrationv1.ValidatingWebhook, 2)}
	clk := clocktesting.NewFakeClock(start)
	c := fake.NewClientBuilder().WithObjects(configuration).Build()
	o := Options{Secret: types.NamespacedName{Namespace: "n", Name: "certificates"}, Names: wanted.names, Configuration: "holdfast", While: wanted.while, Clock: clk}
	rotator, store := NewRotator(c, c, o), NewStore(c, o)
	told := func() []*pair {
		t.Helper()
		if err := c.Get(t.Context(), types.NamespacedName{Name: "holdfast"}, configuration); err != nil {
			t.Fatal(err)
		}
		trusted, err := parsePairs(configuration.Webhooks[1].ClientConfig.CABundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		return trusted
	}
	must := func(_ time.Duration, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(rotator.Begin(t.Context()))
	must(0, store.look(t.Context()))
	served, err := store.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for again := range mostBefore + 2 {
		if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "certificates"}}); err != nil {
			t.Fatal(err)
		}
		must(rotator.Begin(t.Context()))
		if again > 0 {
			continue
		}
		if err := verify(t, start, told(), &pair{cert: served.Leaf}); err != nil {
			t.Errorf("a replica that has not looked yet is not trusted: %v", err)
		}
		must(0, store.look(t.Context()))
		next, err := store.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(t, start, told(), &pair{cert: next.Leaf}); err != nil {
			t.Errorf("nor is one that has: %v", err)
		}
	}
	if n := len(told()); n != mostBefore+1 {
		t.Errorf("%d CAs are trusted after many deletions, want %d", n, mostBefore+1)
	}
	clk.Step(wanted.while)
	must(rotator.Step(t.Context()))
	if n := len(told()); n != 1 {
		t.Errorf("%d CAs are trusted a while later, want 1", n)
	}
	clk.Step(caLife)
	must(rotator.Begin(t.Context()))
	if n := len(told()); n != 1 {
		t.Errorf("%d CAs are trusted where the one before has ended, want 1", n)
	}
}
