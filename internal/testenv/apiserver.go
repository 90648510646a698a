package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// BinariesVariable names the environment variable with the folder of the built
// cluster parts. Where it is not set they are built, or found in the cache.
const BinariesVariable = "HOLDFAST_BIN"

// Binaries is the folder of the built cluster parts, kubectl among them.
func Binaries(ctx context.Context) (string, error) {
	if bin := os.Getenv(BinariesVariable); bin != "" {
		return bin, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	return toolchain.Build(ctx, toolchain.Options{Root: root, Out: os.Stderr})
}

// APIServer starts a real etcd and kube-apiserver with the project's own kinds
// and those of the snapshot-controller, and stops them with the test. There is
// no controller of Kubernetes behind it: what only those do does not happen.
func APIServer(t testing.TB) *rest.Config {
	t.Helper()
	return startAPIServer(t, false).Config
}

// APIServerWithWebhooks does the same with the webhook configurations of
// config/webhook, which ask at the address and trust the certificate that are
// answered.
func APIServerWithWebhooks(t testing.TB) (*rest.Config, envtest.WebhookInstallOptions) {
	t.Helper()
	env := startAPIServer(t, true)
	return env.Config, env.WebhookInstallOptions
}

func startAPIServer(t testing.TB, webhooks bool) *envtest.Environment {
	t.Helper()
	env, err := StartAPIServer(t.Context(), webhooks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return env
}

// StartAPIServer is APIServer, or APIServerWithWebhooks, for a program that is
// no test. The caller stops what it answers.
func StartAPIServer(ctx context.Context, webhooks bool) (*envtest.Environment, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	bin, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: bin,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd"), toolchain.CRDs(bin)},
		ErrorIfCRDPathMissing: true,
	}
	if webhooks {
		env.WebhookInstallOptions.Paths = []string{filepath.Join(root, "config", "webhook")}
	}
	if _, err := env.Start(); err != nil {
		return nil, fmt.Errorf("start the API server of %s: %w", bin, errors.Join(err, env.Stop()))
	}
	return env, nil
}
