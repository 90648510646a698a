package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// ours answers as Holdfast's driver does, and keeps what it was asked.
type ours struct {
	grpc.ClientConnInterface
	asked map[string]proto.Message
}

func (o *ours) Invoke(_ context.Context, method string, req, answer any, _ ...grpc.CallOption) error {
	o.asked[method] = req.(proto.Message)
	zone := []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "us-east-1a", "topology.ebs.csi.aws.com/zone": "us-east-1a", "kubernetes.io/os": "linux"}}}
	switch a := answer.(type) {
	case *csi.CreateVolumeResponse:
		a.Volume = &csi.Volume{VolumeId: "vol-1", AccessibleTopology: zone}
	case *csi.NodeGetInfoResponse:
		a.NodeId, a.AccessibleTopology = "i-1", zone[0]
	case *csi.GetPluginCapabilitiesResponse:
		for _, t := range []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE} {
			a.Capabilities = append(a.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
		}
	case *csi.ControllerGetCapabilitiesResponse:
		for t := range csi.ControllerServiceCapability_RPC_Type_name {
			a.Capabilities = append(a.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(t)},
			}})
		}
	}
	return nil
}

// TestFront: what sidecars and kubelet see is another driver, and what Holdfast's
// sees is a request that it knows.
func TestFront(t *testing.T) {
	behind := &ours{asked: map[string]proto.Message{}}
	ask := func(method string, req proto.Message) (any, error) {
		return front(behind)(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1." + method}, func(context.Context, any) (any, error) {
			return nil, status.Error(codes.Unimplemented, "not offered")
		})
	}
	must := func(method string, req proto.Message) any {
		t.Helper()
		answer, err := ask(method, req)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return answer
	}
	create := func(parameters, topology map[string]string) *csi.CreateVolumeRequest {
		return &csi.CreateVolumeRequest{Name: "pvc-1", Parameters: parameters, AccessibilityRequirements: &csi.TopologyRequirement{
			Requisite: []*csi.Topology{{Segments: topology}}, Preferred: []*csi.Topology{{Segments: map[string]string{rackKey: "rack-us-east-1b"}}},
		}}
	}
	rackA := map[string]string{rackKey: "rack-us-east-1a"}

	made := must("Controller/CreateVolume", create(map[string]string{"media": "disk", "csi.storage.k8s.io/pvc/name": "data"}, rackA)).(*csi.CreateVolumeResponse)
	if got := fmt.Sprint(made.GetVolume().GetAccessibleTopology()[0].GetSegments()); got != fmt.Sprint(rackA) {
		t.Errorf("a volume is accessible from %s, want %v", got, rackA)
	}
	asked := behind.asked["/csi.v1.Controller/CreateVolume"].(*csi.CreateVolumeRequest)
	if got, want := fmt.Sprint(asked.GetParameters()), "map[csi.storage.k8s.io/pvc/name:data type:st1]"; got != want {
		t.Errorf("the driver behind is given %s, want %s", got, want)
	}
	for i, topology := range append(asked.GetAccessibilityRequirements().GetRequisite(), asked.GetAccessibilityRequirements().GetPreferred()...) {
		if got, want := topology.GetSegments()["topology.kubernetes.io/zone"], []string{"us-east-1a", "us-east-1b"}[i]; got != want || len(topology.GetSegments()) != 1 {
			t.Errorf("the driver behind is asked for %v, want zone %s alone", topology.GetSegments(), want)
		}
	}
	node := must("Node/NodeGetInfo", &csi.NodeGetInfoRequest{}).(*csi.NodeGetInfoResponse)
	if got := fmt.Sprint(node.GetAccessibleTopology().GetSegments()); got != fmt.Sprint(rackA) {
		t.Errorf("a node is in %s, want %v", got, rackA)
	}
	if plugin := must("Identity/GetPluginCapabilities", &csi.GetPluginCapabilitiesRequest{}).(*csi.GetPluginCapabilitiesResponse); len(plugin.GetCapabilities()) != 1 {
		t.Errorf("plugin capabilities are %v, want no groups", plugin.GetCapabilities())
	}
	if controller := must("Controller/ControllerGetCapabilities", &csi.ControllerGetCapabilitiesRequest{}).(*csi.ControllerGetCapabilitiesResponse); len(controller.GetCapabilities()) != len(can) {
		t.Errorf("%d capabilities of the controller, want %d", len(controller.GetCapabilities()), len(can))
	}

	zone := map[string]string{"topology.kubernetes.io/zone": "us-east-1a"}
	for name, tc := range map[string]struct {
		method string
		req    proto.Message
		code   codes.Code
		says   string
	}{
		"a class of EBS":       {"Controller/CreateVolume", create(map[string]string{"type": "gp3"}, rackA), codes.InvalidArgument, `parameter "type"`},
		"an unknown medium":    {"Controller/CreateVolume", create(map[string]string{"media": "tape"}, rackA), codes.InvalidArgument, `"tape", want ssd or disk`},
		"a zone":               {"Controller/CreateVolume", create(nil, zone), codes.InvalidArgument, rackKey},
		"attributes":           {"Controller/CreateVolume", &csi.CreateVolumeRequest{MutableParameters: map[string]string{"iops": "4000"}}, codes.InvalidArgument, "iops"},
		"a change":             {"Controller/ControllerModifyVolume", &csi.ControllerModifyVolumeRequest{}, codes.Unimplemented, "not offered"},
		"a list":               {"Controller/ListVolumes", &csi.ListVolumesRequest{}, codes.Unimplemented, "not offered"},
		"a snapshot's EBS tag": {"Controller/CreateSnapshot", &csi.CreateSnapshotRequest{Parameters: map[string]string{"tagSpecification_1": "a=b"}}, codes.InvalidArgument, "tagSpecification_1"},
	} {
		if _, err := ask(tc.method, tc.req); status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.code, tc.says)
		}
	}
}
