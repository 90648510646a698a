package chart

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// The chart and config/ install the same, object for object. The namespace
// is made by helm --create-namespace and not by the chart.
func TestChartIsConfig(t *testing.T) {
	irsa := "driver: {controller: {serviceAccountAnnotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::111122223333:role/HoldfastController'}}}"
	eks := read(t, filepath.Join(source, "values-eks.yaml"))
	for name, tc := range map[string]struct {
		values []string
		dir    string
	}{
		"default":      {nil, "default"},
		"EKS":          {[]string{eks}, "overlays/eks"},
		"IRSA":         {[]string{eks, irsa}, "overlays/eks-irsa"},
		"SELinux":      {[]string{"driver: {selinux: true}"}, "testdata/selinux"},
		"cert-manager": {[]string{"certManager: {enabled: true}"}, "testdata/cert-manager"},
		"hooks":        {[]string{"hooks: {enabled: true}"}, "testdata/hooks"},
		"monitoring":   {[]string{"monitoring: {enabled: true}"}, "testdata/monitoring"},
		"recreate":     {[]string{"statefulSetRecreate: {enabled: true}"}, "testdata/statefulset-recreate"},
		"guardrails":   {[]string{"driver: {enabled: false}"}, "guardrails"},
		"driver":       {[]string{"manager: {enabled: false}"}, "driver"},
	} {
		t.Run(name, func(t *testing.T) {
			want := kustomized(t, tc.dir)
			delete(want, "Namespace/holdfast-system")
			if len(want) < 5 {
				t.Fatalf("%s has %d objects", tc.dir, len(want))
			}
			if diff := changes(want, rendered(t, values(t, tc.values...)).withoutHelm(t)); len(diff) > 0 {
				t.Errorf("the chart is not config/%s:\n%s", tc.dir, strings.Join(diff, "\n"))
			}
		})
	}
}

// A packaged chart is as the folder: Helm follows the links to config/.
func TestPackageIsTheSame(t *testing.T) {
	file, err := chartutil.Save(load(t, source), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packaged := load(t, file)
	got, err := template(packaged, "holdfast-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := changes(rendered(t, nil), got); len(diff) > 0 {
		t.Errorf("packaged, the chart is another:\n%s", strings.Join(diff, "\n"))
	}
	for _, f := range packaged.Files {
		if strings.HasPrefix(f.Name, "objects/") && !strings.HasSuffix(f.Name, ".yaml") && !strings.HasPrefix(f.Name, "objects/monitoring/dashboards/") {
			t.Errorf("%s is in the package, and is no object", f.Name)
		}
	}
}

func TestChartPassesLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict, lint.Namespace = true, "holdfast-system"
	result := lint.Run([]string{source}, nil)
	for _, err := range result.Errors {
		t.Error(err)
	}
	if result.TotalChartsLinted != 1 {
		t.Errorf("%d charts linted", result.TotalChartsLinted)
	}
}

// Chart, images and binaries carry one version.
func TestVersionIsTheProducts(t *testing.T) {
	metadata := load(t, source).Metadata
	if metadata.AppVersion != version.Version || "v"+metadata.Version != version.Version {
		t.Errorf("version %s and appVersion %s of Chart.yaml, want those of %s", metadata.Version, metadata.AppVersion, version.Version)
	}
}

// The chart's rights, webhooks and the role's trust name the namespace.
func TestAnotherNamespaceIsRefused(t *testing.T) {
	_, err := template(load(t, source), "default", nil)
	if err == nil || !strings.Contains(err.Error(), `the namespace is "default"`) || !strings.Contains(err.Error(), "--namespace holdfast-system --create-namespace") {
		t.Errorf("installed into default: %v", err)
	}
}

// cert-manager's own types know every field of what it is asked for, and its
// certificate is what the manager serves and the API server asks for.
func TestCertManagerIsAskedRightly(t *testing.T) {
	all := rendered(t, values(t, "certManager: {enabled: true}"))
	strictly := func(name string, into any) {
		t.Helper()
		raw, err := yaml.Marshal(all[name])
		if err == nil {
			err = yaml.UnmarshalStrict(raw, into)
		}
		if err != nil || all[name] == nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var selfSigned, authority certmanager.Issuer
	var ca, serving certmanager.Certificate
	strictly("Issuer/holdfast-self-signed", &selfSigned)
	strictly("Issuer/holdfast-webhook-ca", &authority)
	strictly("Certificate/holdfast-webhook-ca", &ca)
	strictly("Certificate/holdfast-webhook", &serving)
	if selfSigned.Spec.SelfSigned == nil || ca.Spec.IssuerRef.Name != selfSigned.Name || !ca.Spec.IsCA {
		t.Errorf("the authority is not self-signed: %+v", ca.Spec)
	}
	if authority.Spec.CA == nil || authority.Spec.CA.SecretName != ca.Spec.SecretName || serving.Spec.IssuerRef.Name != authority.Name {
		t.Errorf("the certificate is not the authority's: %+v %+v", authority.Spec, serving.Spec)
	}
	if want := []string{"holdfast-webhook.holdfast-system.svc", "holdfast-webhook.holdfast-system.svc.cluster.local"}; !cmp.Equal(serving.Spec.DNSNames, want) {
		t.Errorf("the certificate is for %v, want the Service's names %v", serving.Spec.DNSNames, want)
	}
	leaves := all.leaves()
	for path, want := range map[string]string{
		"Deployment/holdfast-manager.spec.template.spec.volumes[0].secret.secretName":                 serving.Spec.SecretName,
		"ValidatingWebhookConfiguration/holdfast.metadata.annotations.cert-manager.io/inject-ca-from": serving.Namespace + "/" + serving.Name,
		"MutatingWebhookConfiguration/holdfast.metadata.annotations.cert-manager.io/inject-ca-from":   serving.Namespace + "/" + serving.Name,
		"Service/holdfast-webhook.metadata.name":                                                      "holdfast-webhook",
		"Deployment/holdfast-manager.spec.template.spec.containers[0].volumeMounts[0].mountPath":      "/certificates",
		"Deployment/holdfast-manager.spec.template.spec.containers[0].args[1]":                        "--webhook-cert-dir=/certificates",
		"Deployment/holdfast-manager.spec.template.spec.containers[0].volumeMounts[0].readOnly":       "true",
	} {
		if leaves[path] != want {
			t.Errorf("%s is %q, want %q", path, leaves[path], want)
		}
	}
}

// Nothing secret is made while the chart is rendered: two renderings are equal
// and hold no Secret.
func TestNoSecretIsRendered(t *testing.T) {
	for _, v := range []string{"", "certManager: {enabled: true}"} {
		first := rendered(t, values(t, v))
		for name := range first {
			if strings.HasPrefix(name, "Secret/") {
				t.Errorf("the chart makes %s", name)
			}
		}
		if diff := changes(first, rendered(t, values(t, v))); len(diff) > 0 {
			t.Errorf("rendered again with %q, the chart is another:\n%s", v, strings.Join(diff, "\n"))
		}
	}
}

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // each link to config/ is told otherwise
	// Helm's settings and caches of whoever runs the tests stay out of them.
	home, err := os.MkdirTemp("", "holdfast-chart-")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		os.Setenv(name, home)
	}
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}
