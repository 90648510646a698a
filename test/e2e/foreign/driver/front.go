package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// offered are the methods that are passed on. All others answer UNIMPLEMENTED,
// as those of a driver that never heard of them.
var offered = []string{
	"GetPluginInfo", "GetPluginCapabilities", "Probe",
	"ControllerGetCapabilities", "CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
	"ValidateVolumeCapabilities", "CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume",
	"NodeGetCapabilities", "NodeGetInfo", "NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume",
	"NodeGetVolumeStats", "NodeExpandVolume",
}

// can are the capabilities of the controller that are told.
var can = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
}

// front passes requests on, in the words of the driver behind, and answers in
// those of this one.
func front(behind grpc.ClientConnInterface) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !slices.Contains(offered, path.Base(info.FullMethod)) {
			return handle(ctx, req)
		}
		if err := inward(req); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		answer, err := answerTo(info.FullMethod)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		if err := behind.Invoke(ctx, info.FullMethod, req, answer); err != nil {
			return nil, err
		}
		outward(answer)
		return answer, nil
	}
}

// answerTo is an empty answer of a method, such as /csi.v1.Identity/Probe.
func answerTo(method string) (any, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no method", method)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return t.New().Interface(), nil
}

// The keys of topology, and what a rack is called.
const (
	rackKey = "topology.block.example.com/rack"
	rack    = "rack-"
	zoneKey = "topology.kubernetes.io/zone"
)

// inward says a request in the words of the driver behind.
func inward(req any) error {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		if len(r.GetMutableParameters()) > 0 {
			return fmt.Errorf("mutable parameters are %v: this driver has none", r.GetMutableParameters())
		}
		for _, t := range slices.Concat(r.GetAccessibilityRequirements().GetRequisite(), r.GetAccessibilityRequirements().GetPreferred()) {
			zone, ok := strings.CutPrefix(t.GetSegments()[rackKey], rack)
			if !ok || len(t.GetSegments()) != 1 {
				return fmt.Errorf("topology %v: want %s alone", t.GetSegments(), rackKey)
			}
			t.Segments = map[string]string{zoneKey: zone}
		}
		return media(r.GetParameters())
	case *csi.CreateSnapshotRequest:
		return foreign(r.GetParameters())
	}
	return nil
}

// medium are the types of volumes that the driver behind has for media.
var medium = map[string]string{"": "gp3", "ssd": "gp3", "disk": "st1"}

// media puts the parameters of a class into the words of the driver behind.
func media(parameters map[string]string) error {
	is, known := medium[parameters["media"]]
	if !known {
		return fmt.Errorf("parameter media is %q, want ssd or disk", parameters["media"])
	}
	delete(parameters, "media")
	if err := foreign(parameters); err != nil {
		return err
	}
	parameters["type"] = is
	return nil
}

// foreign refuses parameters that are not the sidecars' own.
func foreign(parameters map[string]string) error {
	for key := range parameters {
		if !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			return fmt.Errorf("parameter %q is none of this driver's", key)
		}
	}
	return nil
}

// outward says an answer in the words of this driver.
func outward(answer any) {
	switch a := answer.(type) {
	case *csi.GetPluginCapabilitiesResponse:
		a.Capabilities = slices.DeleteFunc(a.GetCapabilities(), func(c *csi.PluginCapability) bool {
			return c.GetService().GetType() == csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
		})
	case *csi.ControllerGetCapabilitiesResponse:
		a.Capabilities = slices.DeleteFunc(a.GetCapabilities(), func(c *csi.ControllerServiceCapability) bool {
			return !slices.Contains(can, c.GetRpc().GetType())
		})
	case *csi.CreateVolumeResponse:
		for _, t := range a.GetVolume().GetAccessibleTopology() {
			t.Segments = racked(t.GetSegments())
		}
	case *csi.NodeGetInfoResponse:
		a.AccessibleTopology.Segments = racked(a.GetAccessibleTopology().GetSegments())
	}
}

// racked is a topology in this driver's one key.
func racked(segments map[string]string) map[string]string {
	return map[string]string{rackKey: rack + segments[zoneKey]}
}
