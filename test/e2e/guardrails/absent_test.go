//go:build e2e

package guardrails

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// systemNamespaces are never asked about.
var systemNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", testenv.Namespace}

// testAbsent takes all Pods of the manager away: only strict namespaces wait,
// what has begun to go goes, and the manager comes back by itself, also where
// its own namespace was labelled strict.
func testAbsent(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	strict, leaving := namespace(s, "strict", true), namespace(s, "leaving", true)
	class := s.Class("none", nil)
	s.Create(claim(strict, "kept", "1Gi"), claim(leaving, "left", "1Gi"), set(leaving, "left", class, 0))
	s.Create(pinned(strict, "pinned"))
	s.Must(s.Client.Delete(ctx, pinned(strict, "pinned")))
	s.Run("label", "namespace", testenv.Namespace, "holdfast.dev/enforce=strict", "--overwrite")
	t.Cleanup(func() {
		_, _ = s.Kubectl(context.Background(), "label", "namespace", testenv.Namespace, "holdfast.dev/enforce-")
	})
	scaleManager(s, 0)

	onlyStrictWaits(s, strict, `failed calling webhook "claims.strict.holdfast.dev"`, "no endpoints available for service \"holdfast-webhook\"")
	s.Run("-n", strict, "patch", "pvc", "pinned", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.Must(s.WaitGone(ctx, claim(strict, "pinned", "1Gi"), stage.Patience))
	s.Step("without a manager only strict namespaces wait, and finalizers come off there too")

	if err := s.Client.Delete(ctx, namespaced(leaving)); err == nil || !strings.Contains(err.Error(), "namespaces.strict.holdfast.dev") {
		t.Errorf("without a manager a strict namespace is deleted: %v", err)
	}
	if out, err := s.Kubectl(ctx, "label", "namespace", strict, "holdfast.dev/enforce-"); err == nil {
		t.Errorf("without a manager the strict label comes off: %s", out)
	}
	scaleManager(s, 2)
	s.Eventually("a namespace may be deleted again", func(ctx context.Context) (string, error) {
		return "", s.Client.Delete(ctx, namespaced(leaving), client.DryRunAll)
	})
	s.Eventually("a claim of the strict namespace is judged again", func(ctx context.Context) (string, error) {
		return "", s.Client.Create(ctx, claim(strict, "again", "1Gi"), client.DryRunAll)
	})
	s.Step("the manager comes back, its own namespace labelled strict")
	goesWithoutManager(s, leaving)
}

// finalizer holds an object until the test takes it off.
const finalizer = "e2e.holdfast.dev/pinned"

// pinned is a claim that stays until its finalizer comes off.
func pinned(namespace, name string) *corev1.PersistentVolumeClaim {
	return claim(namespace, name, "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{finalizer} })
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// namespace makes one beside that of the test.
func namespace(s *stage.Stage, suffix string, strict bool) string {
	s.T.Helper()
	other := stage.For(s.T, s.Namespace+"-"+suffix)
	n := namespaced(other.Namespace)
	if strict {
		n.Labels = map[string]string{"holdfast.dev/enforce": "strict"}
	}
	s.Create(n)
	return n.Name
}

// onlyStrictWaits holds what happens while no manager answers: a strict
// namespace's claims are refused with a text that tells all of why, and no other's.
func onlyStrictWaits(s *stage.Stage, strict string, why ...string) {
	s.T.Helper()
	ctx := s.T.Context()
	for _, free := range append([]string{s.Namespace, "default"}, systemNamespaces...) {
		accepted(s, "without a manager, a claim of namespace "+free, s.Client.Create(ctx, claim(free, "e2e-free", "5Gi"), client.DryRunAll))
	}
	s.Pod("free", "none-of-ours", func(p *corev1.Pod) { p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = nil, nil })
	s.Ready("free")
	s.DeletePod("free")
	for what, err := range map[string]error{
		"creates a claim":          s.Client.Create(ctx, claim(strict, "e2e-strict", "1Gi")),
		"creates it as a dry run":  s.Client.Create(ctx, claim(strict, "e2e-strict", "1Gi"), client.DryRunAll),
		"deletes a claim":          s.Client.Delete(ctx, claim(strict, "kept", "1Gi")),
		"deletes claims by number": s.Client.DeleteAllOf(ctx, claim("", "", "1Gi"), client.InNamespace(strict)),
	} {
		for _, part := range why {
			if err == nil || !strings.Contains(err.Error(), part) {
				s.T.Errorf("without a manager somebody %s in a strict namespace: %v; want a refusal with %q", what, err, part)
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strict, Name: "free"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}}}
	accepted(s, "without a manager, a Pod of the strict namespace", s.Client.Create(ctx, pod, client.DryRunAll))
}

// goesWithoutManager has a strict namespace begin to go while there is a manager,
// and go on while there is none. The controllers stand still in between.
func goesWithoutManager(s *stage.Stage, leaving string) {
	s.T.Helper()
	ctx := s.T.Context()
	s.Must(s.StopComponent(ctx, sandbox.ControllerManager))
	stopped := true
	s.T.Cleanup(func() {
		if stopped {
			s.Must(s.StartComponent(context.Background(), sandbox.ControllerManager))
		}
	})
	s.Must(s.Client.Delete(ctx, namespaced(leaving)))
	s.Run("-n", testenv.Namespace, "scale", "deployment/holdfast-manager", "--replicas=0")
	s.Run("-n", testenv.Namespace, "delete", "pods", "-l", "app.kubernetes.io/component=manager")
	if err := s.Client.Delete(ctx, claim(leaving, "left", "1Gi"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "claims.strict.holdfast.dev") {
		s.T.Errorf("without a manager a claim of a strict namespace is deleted by hand: %v", err)
	}
	s.Must(s.StartComponent(ctx, sandbox.ControllerManager))
	stopped = false
	s.Must(s.WaitGone(ctx, namespaced(leaving), stage.Patience))
	s.Step("a namespace that has begun to go goes without a manager")
	scaleManager(s, 2)
}

// testExpired has the manager serve a certificate that has expired, and then
// find such a one in its Secret.
func testExpired(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	strict := namespace(s, "strict", true)
	s.Create(claim(strict, "kept", "1Gi"))
	scaleManager(s, 0)
	expired := expiredCertificate(s)
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.Namespace, Name: "e2e-expired"}, Data: expired})
	t.Cleanup(func() {
		_, _ = s.Kubectl(context.Background(), "-n", testenv.Namespace, "delete", "secret", "e2e-expired")
	})
	s.Run("-n", testenv.Namespace, "patch", "secret", "holdfast-webhook-certificates", "--type=merge", "-p", jsonOf(s, map[string]any{"data": expired}))
	trust(s, expired["ca.crt"])
	s.Run("-n", testenv.Namespace, "patch", "deployment", "holdfast-manager", "--type=json", "-p", `[
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--webhook-cert-dir=/e2e"},
		{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts", "value": [{"name": "e2e", "mountPath": "/e2e"}]},
		{"op": "add", "path": "/spec/template/spec/volumes", "value": [{"name": "e2e", "secret": {"secretName": "e2e-expired"}}]}]`)
	scaleManager(s, 2)
	onlyStrictWaits(s, strict, `failed calling webhook "claims.strict.holdfast.dev"`, "certificate has expired")
	s.Step("with an expired certificate only strict namespaces wait")

	s.Run("-n", testenv.Namespace, "rollout", "undo", "deployment/holdfast-manager")
	s.Must(s.Rollout(ctx, stage.Patience))
	s.Eventually("a claim of the strict namespace is judged again", func(ctx context.Context) (string, error) {
		return "", s.Client.Create(ctx, claim(strict, "again", "1Gi"), client.DryRunAll)
	})
	// The CA before, which has not ended, may be trusted for a while; it signs nothing.
	before, err := x509.ParseCertificate(decoded(s, expired["ca.crt"]))
	s.Must(err)
	if c := certificates(s, "tls.crt")[0]; time.Now().After(c.NotAfter) || c.CheckSignatureFrom(before) == nil {
		t.Errorf("the manager serves until %s, by the CA of the expired certificate: it has not begun anew", c.NotAfter)
	}
	s.Step("the manager finds an expired certificate in its Secret and begins anew")
}

// expiredCertificate is what the webhooks' Secret holds, a day too late.
func expiredCertificate(s *stage.Stage) map[string][]byte {
	s.T.Helper()
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		}
	}
	ca, serving := template("e2e-ca"), template("e2e-serving")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	serving.DNSNames, serving.NotAfter = []string{"holdfast-webhook.holdfast-system.svc"}, time.Now().Add(-24*time.Hour)
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	data := map[string][]byte{}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.Must(err)
	for name, c := range map[string]*x509.Certificate{"ca": ca, "tls": serving} {
		key := caKey
		if c == serving {
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			s.Must(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
		s.Must(err)
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		s.Must(err)
		data[name+".crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		data[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	}
	return data
}

// trust tells the webhook configurations of a CA.
func trust(s *stage.Stage, ca []byte) {
	s.T.Helper()
	for kind, o := range map[string]client.Object{
		"validatingwebhookconfiguration": &admissionregistrationv1.ValidatingWebhookConfiguration{},
		"mutatingwebhookconfiguration":   &admissionregistrationv1.MutatingWebhookConfiguration{},
	} {
		s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Name: "holdfast"}, o))
		n := 0
		switch c := o.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			n = len(c.Webhooks)
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			n = len(c.Webhooks)
		}
		var patch []map[string]any
		for i := range n {
			patch = append(patch, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": ca})
		}
		s.Run("patch", kind, "holdfast", "--type=json", "-p", jsonOf(s, patch))
	}
}

func jsonOf(s *stage.Stage, v any) string {
	s.T.Helper()
	out, err := json.Marshal(v)
	s.Must(err)
	return string(out)
}

func decoded(s *stage.Stage, text []byte) []byte {
	s.T.Helper()
	block, _ := pem.Decode(text)
	return block.Bytes
}

// testUninstall takes everything away at once while the manager is down and
// claims are made: an ordinary namespace sees nothing of it, a strict one is free.
func testUninstall(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	strict := namespace(s, "strict", true)
	scaleManager(s, 0)
	ordinary := begin(s, lowRate)
	if err := s.Client.Create(ctx, claim(strict, "first", "1Gi"), client.DryRunAll); err == nil {
		t.Error("without a manager a claim of a strict namespace is let through")
	}
	s.Run("delete", "-k", config(s, "guardrails"))
	s.Eventually("a strict namespace waits for nothing any more", func(ctx context.Context) (string, error) {
		return "", s.Client.Create(ctx, claim(strict, "first", "1Gi"))
	})
	s.Delete(claim(strict, "first", "1Gi"))
	s.Delete(namespaced(strict))
	made, failed := ordinary.end()
	if made == 0 || len(failed) > 0 {
		t.Errorf("of %d claims made in an ordinary namespace meanwhile failed %v", made, failed)
	}
	out := s.Run("get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions,clusterroles", "-o", "name")
	for _, name := range strings.Fields(out) {
		if strings.HasSuffix(name, "/holdfast") || strings.Contains(name, "holdfast.dev") || strings.Contains(name, "holdfast-manager") {
			t.Errorf("left: %s", name)
		}
	}
	s.Step("uninstalled with the manager down, and nothing waits")
}
