package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersions are the CSI versions that kubelet is told: it compares the major
// and minor number with its own 1.0.
var csiVersions = []string{"1.0.0"}

// RegistrarOptions say what is registered with kubelet and where.
type RegistrarOptions struct {
	// DriverName is the CSI driver's name.
	DriverName string
	// Dir is kubelet's folder of registration sockets as this process sees it,
	// on the node usually /var/lib/kubelet/plugins_registry.
	Dir string
	// CSISocket is the path of the CSI socket as kubelet sees it.
	CSISocket string
	Log       logr.Logger
}

// Registrar introduces the driver to kubelet: it serves the registration
// socket that kubelet's plugin watcher looks for, in place of the
// node-driver-registrar sidecar. After a restart of kubelet the watcher finds
// the socket again, so it stays for the process's life.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	opts   RegistrarOptions
	failed chan error
}

// NewRegistrar returns a Registrar; nothing is served before Run.
func NewRegistrar(o RegistrarOptions) *Registrar {
	return &Registrar{opts: o, failed: make(chan error, 1)}
}

// Socket is the path of the registration socket.
func (r *Registrar) Socket() string {
	return filepath.Join(r.opts.Dir, r.opts.DriverName+"-reg.sock")
}

// Run serves the registration socket until ctx ends, and removes it then. It
// ends with an error if kubelet could not register the driver: the process is
// to be started anew, and with it the attempt.
func (r *Registrar) Run(ctx context.Context) error {
	listener, err := listenUnix(r.Socket())
	if err != nil {
		return fmt.Errorf("registration with kubelet: %w", err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- serveGRPC(server, listener) }()
	r.opts.Log.Info("waiting for kubelet to register the driver", "socket", r.Socket(), "csiSocket", r.opts.CSISocket)
	select {
	case <-ctx.Done():
		server.GracefulStop()
		return <-served
	case err := <-r.failed:
		server.GracefulStop()
		return errors.Join(err, <-served)
	case err := <-served:
		return fmt.Errorf("serve the registration socket %s: %w", r.Socket(), err)
	}
}

// Healthy is nil while kubelet can find the driver: something that empties the
// folder (a node agent, a second driver) makes it invisible to the next kubelet.
func (r *Registrar) Healthy(context.Context) error {
	info, err := os.Stat(r.Socket())
	if err != nil {
		return fmt.Errorf("registration with kubelet is lost: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("registration with kubelet is lost: %s is a %s, not a socket", r.Socket(), info.Mode().Type())
	}
	return nil
}

// GetInfo tells kubelet what is registered.
func (r *Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.opts.DriverName,
		Endpoint:          r.opts.CSISocket,
		SupportedVersions: csiVersions,
	}, nil
}

// NotifyRegistrationStatus is kubelet's answer.
func (r *Registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		r.opts.Log.Info("registered with kubelet", "driver", r.opts.DriverName)
		return &registration.RegistrationStatusResponse{}, nil
	}
	select {
	case r.failed <- fmt.Errorf("kubelet did not register %s: %s", r.opts.DriverName, status.GetError()):
	default: // a failure is on its way already
	}
	return &registration.RegistrationStatusResponse{}, nil
}
