package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

// topologyOS is Kubernetes' well-known label of a node's operating system;
// nodes report it besides the two zone keys.
const topologyOS = "kubernetes.io/os"

// InstanceMetadata is what the node service needs to know of its instance.
type InstanceMetadata interface {
	// Instance answers what stays the same for the instance's life.
	Instance(ctx context.Context) (imds.Instance, error)
	// Occupancy answers what takes places of the attachment limit now.
	Occupancy(ctx context.Context) (ebs.Occupancy, error)
}

// VolumeLimits override what the instance type says about attachment limits.
type VolumeLimits struct {
	// AttachLimit replaces the whole computation; 0 means compute.
	AttachLimit int
	// Reserved replaces the number of volumes that the instance was launched
	// with; negative means ask the metadata service.
	Reserved int
}

// NodeGetInfo answers the instance's id, its zone, and how many volumes of
// claims it takes. If the metadata service does not answer it is an error:
// a guess could promise the scheduler places that do not exist.
func (s *NodeService) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	instance, err := s.instance.Instance(ctx)
	if err != nil {
		return nil, nodeError(fmt.Errorf("%w: %w", err, errMetadata))
	}
	limit, err := s.volumeLimit(ctx, instance.Type)
	if err != nil {
		return nil, nodeError(err)
	}
	log := logr.FromContextOrDiscard(ctx)
	if s.told.Swap(int64(limit)) == int64(limit) {
		log = log.V(1) // kubelet asks every minute
	}
	log.Info("NodeGetInfo: instance", "nodeID", instance.ID, "instanceType", instance.Type, "zone", instance.Zone, "maxVolumes", limit)
	return &csi.NodeGetInfoResponse{
		NodeId:            string(instance.ID),
		MaxVolumesPerNode: int64(limit),
		AccessibleTopology: &csi.Topology{Segments: map[string]string{
			topologyOwnZone: instance.Zone,
			topologyZone:    instance.Zone,
			topologyOS:      "linux",
		}},
	}, nil
}

// volumeLimit is how many volumes of claims the instance takes.
func (s *NodeService) volumeLimit(ctx context.Context, instanceType string) (int, error) {
	if s.limits.AttachLimit > 0 {
		return s.limits.AttachLimit, nil
	}
	occupancy, err := s.instance.Occupancy(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", err, errMetadata)
	}
	if s.limits.Reserved >= 0 {
		occupancy.ReservedVolumes = s.limits.Reserved
	}
	return ebs.LimitOf(instanceType).Free(occupancy), nil
}
