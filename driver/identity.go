package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// DefaultName is the driver's name unless it is told otherwise: that of AWS's
// own driver, so that live volumes and classes keep working.
const DefaultName = "ebs.csi.aws.com"

// IdentityService is the CSI identity service of controller and node alike: the
// specification asks for the capabilities of the plugin as a whole from each.
type IdentityService struct {
	csi.UnimplementedIdentityServer
	// Name is the driver's name, Version its release.
	Name, Version string
	// Ready is asked by Probe; nil: always ready. An error is logged and means
	// "not yet", which sidecars wait out.
	Ready func(ctx context.Context) error
}

// GetPluginInfo answers the driver's name and version.
func (s *IdentityService) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: s.Name, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities answers what the plugin as a whole can do.
func (s *IdentityService) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		service(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}}, nil
}

// Probe tells whether the driver can work. It is no error that it cannot yet:
// a restart would not help.
func (s *IdentityService) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if s.Ready == nil {
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
	}
	if err := s.Ready(ctx); err != nil {
		logr.FromContextOrDiscard(ctx).Info("Probe: not ready", "reason", err.Error())
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
