//go:build e2e

package install

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // each link to config/ is told otherwise
	stage.Main(m)
}

// sandbox is what the chart is told in a sandbox, as config/overlays/sandbox.
const sandbox = `
driver:
  controller:
    env:
      - {name: AWS_ENDPOINT_URL_EC2, value: "http://10.200.0.1:4566"}
      - {name: AWS_REGION, value: us-east-1}
      - {name: AWS_ACCESS_KEY_ID, value: AKIAHOLDFASTCONTROLLER}
      - {name: AWS_SECRET_ACCESS_KEY, value: unused}
  node:
    extraArgs: [--device-identity=loop-backing-file]
`

// awsDriver is what AWS's own chart leaves in a cluster, as far as it matters:
// the driver's object, owned by its release, and the node half's name.
const awsDriver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: ebs.csi.aws.com
  labels: {app.kubernetes.io/name: aws-ebs-csi-driver, app.kubernetes.io/managed-by: Helm}
  annotations: {meta.helm.sh/release-name: aws-ebs-csi-driver, meta.helm.sh/release-namespace: kube-system}
spec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: File}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ebs-csi-node, namespace: kube-system, labels: {app: ebs-csi-node}}
spec:
  selector: {matchLabels: {app: ebs-csi-node}}
  template:
    metadata: {labels: {app: ebs-csi-node}}
    spec:
      nodeSelector: {e2e.holdfast.dev/none: "true"}
      containers: [{name: ebs-plugin, image: "docker.io/library/busybox:1.37"}]
`

// policy has a field that the kinds of the older chart do not know.
const policy = `
apiVersion: holdfast.dev/v1alpha1
kind: StoragePolicy
metadata: {name: e2e-chart}
spec:
  guardrails: {claim: {maxSize: 4Gi}}
  exemptions:
    - {selector: {matchLabels: {app: ledger}}, rules: [claim.maxSize], reason: moving, until: "2999-01-01T00:00:00Z"}
`

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  resources: {requests: {storage: %s}}
`

// TestChart takes away what kubectl installed and goes through a chart's life.
func TestChart(t *testing.T) {
	s := stage.New(t)
	strict := stage.For(t, s.Namespace+"-strict").Namespace
	s.Run("create", "namespace", strict)
	h := helm{Stage: s}
	overlay := filepath.Join(s.Root, "config", "overlays", "sandbox")
	t.Cleanup(func() { h.putBack(overlay) })

	s.Run("delete", "-k", overlay, "--ignore-not-found")
	h.nothingAsked(strict)
	s.Step("kubectl delete -k leaves nothing that is asked")

	s.Run("apply", "-f", h.file(awsDriver))
	chart := h.load()
	h.refused(h.install(chart, false), "two drivers of one name", "docs/install-eks.md")
	s.Run("-n", "kube-system", "delete", "daemonset", "ebs-csi-node")
	h.refused(h.install(chart, false), `CSIDriver "ebs.csi.aws.com"`, "aws-ebs-csi-driver")
	s.Step("beside AWS's driver the chart is not installed")

	s.Must(h.install(older(t, h.load()), true))
	h.ready()
	class := s.Class("gp3", nil)
	s.Claim("data", class, "1Gi")
	s.Pod("writer", "data")
	s.Ready("writer")
	id := s.VolumeID("data")
	s.Step("installed by Helm over AWS's CSIDriver; volume %s is in use", id)

	file := h.file(policy)
	if _, err := s.Kubectl(t.Context(), "apply", "-f", file); err == nil || !strings.Contains(err.Error(), "exemptions") {
		t.Fatalf("the older chart's kind takes a policy with a field that it has not: %v", err)
	}
	s.Must(h.upgrade(chart))
	h.ready()
	s.Run("apply", "-f", file)
	if reason := s.Run("get", "storagepolicy", "e2e-chart", "-o", "jsonpath={.spec.exemptions[0].reason}"); reason != "moving" {
		t.Errorf("after the upgrade the new field holds %q", reason)
	}
	s.Eventually("a large claim is refused", func(context.Context) (string, error) {
		if text := h.refusal(s.Namespace, "5Gi"); !strings.Contains(text, "claim.maxSize") {
			return "a refusal that names claim.maxSize: " + text, nil
		}
		return "", nil
	})
	s.Step("the upgrade brought the kind's new field, and a large claim is refused")

	// Without a driver nothing would detach and delete the volume.
	s.DeletePod("writer")
	s.Run("-n", s.Namespace, "delete", "pvc", "data")
	s.VolumeGone(id)
	s.Must(h.uninstall())
	h.nothingAsked(strict)
	if reason := s.Run("get", "storagepolicy", "e2e-chart", "-o", "jsonpath={.spec.exemptions[0].reason}"); reason != "moving" {
		t.Errorf("the uninstallation did not keep the policy: %q", reason)
	}
	s.Step("uninstalled: policies stay, and nothing is asked")
}

// helm is the command line on a cluster.
type helm struct{ *stage.Stage }

func (h helm) load() *chartv2.Chart {
	h.T.Helper()
	c, err := loader.Load(filepath.Join(h.Root, "charts", "holdfast"))
	h.Must(err)
	return c
}

// older is the chart as it was before the kind had exemptions.
func older(t *testing.T, c *chartv2.Chart) *chartv2.Chart {
	t.Helper()
	c.Metadata.Version = "0.0.9"
	for _, f := range c.Files {
		if f.Name != "objects/crd/holdfast.dev_storagepolicies.yaml" {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(f.Data, &crd); err != nil {
			t.Fatal(err)
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		if _, there := spec.Properties["exemptions"]; !there {
			t.Fatal("the kind has no field exemptions")
		}
		delete(spec.Properties, "exemptions")
		data, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		f.Data = data
		return c
	}
	t.Fatal("the chart has no StoragePolicy")
	return nil
}

func (h helm) configuration() *action.Configuration {
	h.T.Helper()
	settings := cli.New()
	settings.KubeConfig = h.Kubeconfig()
	settings.SetNamespace(testenv.Namespace)
	c := action.NewConfiguration()
	h.Must(c.Init(settings.RESTClientGetter(), testenv.Namespace, "secret"))
	return c
}

func (h helm) values() map[string]any {
	h.T.Helper()
	var v map[string]any
	h.Must(yaml.UnmarshalStrict([]byte(sandbox), &v))
	return v
}

// install is `helm install holdfast … --create-namespace --wait`; over says
// `--take-ownership --force-conflicts`.
func (h helm) install(c *chartv2.Chart, over bool) error {
	h.T.Helper()
	install := action.NewInstall(h.configuration())
	install.ReleaseName, install.Namespace, install.CreateNamespace = "holdfast", testenv.Namespace, true
	install.TakeOwnership, install.ForceConflicts = over, over
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, stage.Patience
	_, err := install.RunWithContext(h.T.Context(), c, h.values())
	return err
}

func (h helm) upgrade(c *chartv2.Chart) error {
	h.T.Helper()
	upgrade := action.NewUpgrade(h.configuration())
	upgrade.Namespace = testenv.Namespace
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, stage.Patience
	_, err := upgrade.RunWithContext(h.T.Context(), "holdfast", c, h.values())
	return err
}

func (h helm) uninstall() error {
	h.T.Helper()
	uninstall := action.NewUninstall(h.configuration())
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, stage.Patience
	_, err := uninstall.Run("holdfast")
	return err
}

func (h helm) refused(err error, want ...string) {
	h.T.Helper()
	if err == nil {
		h.T.Fatalf("installed, want a refusal with %q", want)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			h.T.Errorf("refused without %q: %v", part, err)
		}
	}
}

func (h helm) ready() {
	h.T.Helper()
	h.Must(h.Rollout(h.T.Context(), stage.Patience))
}

// nothingAsked holds that no webhook of Holdfast is left, and that claims are
// made as if it had never been there, also where it was to be strict.
func (h helm) nothingAsked(strict string) {
	h.T.Helper()
	if left := h.Run("get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name"); strings.Contains(left, "holdfast") {
		h.T.Errorf("webhook configurations are left: %s", left)
	}
	h.Run("label", "namespace", strict, "holdfast.dev/enforce=strict", "--overwrite")
	for _, namespace := range []string{h.Namespace, strict, "default"} {
		h.Eventually("a claim is made in "+namespace, func(context.Context) (string, error) {
			return h.refusal(namespace, "5Gi"), nil // the API server hears of the change in a second
		})
	}
	// Taken off again: while the manager is away, Holdfast would refuse this.
	h.Run("label", "namespace", strict, "holdfast.dev/enforce-")
}

// putBack installs what was there before the test.
func (h helm) putBack(overlay string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stage.Patience)
	defer cancel()
	for _, args := range [][]string{
		{"delete", "storagepolicy", "e2e-chart", "--ignore-not-found"},
		{"-n", "kube-system", "delete", "daemonset", "ebs-csi-node", "--ignore-not-found"},
		{"delete", "namespace", testenv.Namespace, "--ignore-not-found"},
		{"delete", "csidriver", stage.Driver, "--ignore-not-found"},
		{"apply", "-k", overlay},
	} {
		if out, err := h.Kubectl(ctx, args...); err != nil {
			h.T.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := h.Rollout(ctx, stage.Patience); err != nil {
		h.T.Error(err)
	}
}

// refusal is why the API server refuses a claim; empty: it would not.
func (h helm) refusal(namespace, size string) string {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), 30*time.Second)
	defer cancel()
	if _, err := h.Kubectl(ctx, "create", "--dry-run=server", "-f", h.file(fmt.Sprintf(claim, "probe", namespace, size))); err != nil {
		return err.Error()
	}
	return ""
}

// file writes a manifest for kubectl.
func (h helm) file(manifest string) string {
	h.T.Helper()
	name := filepath.Join(h.T.TempDir(), "manifest.yaml")
	h.Must(os.WriteFile(name, []byte(manifest), 0o600))
	return name
}
