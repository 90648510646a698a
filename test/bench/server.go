package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// Within bounds what takes seconds where all is well.
const Within = time.Minute

// Server is a real etcd and kube-apiserver with Holdfast's kinds, those of the
// snapshot-controller, and the webhook configurations of config/webhook.
type Server struct {
	Env *envtest.Environment
	// Config and Client are an administrator's, without a limit of ours.
	Config *rest.Config
	Client client.WithWatch
	// Version is what the server says of itself.
	Version string
	// Dir is a folder that goes with the server.
	Dir string
}

// Start starts them; Stop ends them and leaves nothing.
func Start(ctx context.Context) (*Server, error) {
	env, err := testenv.StartAPIServer(ctx, true)
	if err != nil {
		return nil, err
	}
	s := &Server{Env: env, Config: rest.CopyConfig(env.Config)}
	s.Config.QPS = -1
	s.Config.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), snapshotv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if s.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	version, err := discovery.NewDiscoveryClientForConfigOrDie(s.Config).ServerVersion()
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.Version = "kube-apiserver " + version.GitVersion
	if s.Dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Stop ends the servers. What is still started on them is to be stopped before.
func (s *Server) Stop() error {
	return errors.Join(s.Env.Stop(), os.RemoveAll(s.Dir))
}

// Kubeconfig writes the administrator's, for a process, and returns its path.
func (s *Server) Kubeconfig() (string, error) {
	path := filepath.Join(s.Dir, "kubeconfig")
	if err := os.WriteFile(path, s.Env.KubeConfig, 0o600); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return path, nil
}

// Requests are the requests that the server has answered, as its metrics count
// them: by verb and resource, such as "PATCH persistentvolumeclaims/status".
// Subresources are told by a slash; requests for none are left out.
func (s *Server) Requests(ctx context.Context) (map[string]float64, error) {
	client, err := rest.UnversionedRESTClientFor(unversioned(s.Config))
	if err != nil {
		return nil, err
	}
	body, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	defer body.Close()
	all, err := Parse(body)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for name, value := range all {
		if resource := label(name, "resource"); len(name) > len(requestTotal) && name[:len(requestTotal)] == requestTotal && resource != "" {
			if sub := label(name, "subresource"); sub != "" {
				resource += "/" + sub
			}
			counts[label(name, "verb")+" "+resource] += value
		}
	}
	return counts, nil
}

const requestTotal = "apiserver_request_total{"

func unversioned(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	return cfg
}
