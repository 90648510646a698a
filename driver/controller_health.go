package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// ControllerGetVolumeHealth answers what EC2 knows to be wrong with a volume.
func (s *ControllerService) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	id, err := volumeID(req.GetVolumeId())
	if err != nil {
		return nil, grpcError(err)
	}
	health, err := s.volumes.Health(ctx, id)
	if err != nil {
		return nil, grpcError(fmt.Errorf("look at the health of volume %s: %w", id, err))
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: csiHealth(health)}, nil
}

// ControllerListVolumeHealth answers the volumes with which something is wrong.
func (s *ControllerService) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, grpcError(invalid("max_entries %d: it cannot be negative", req.GetMaxEntries()))
	}
	page, err := s.volumes.ListUnhealthy(ctx, ebs.VolumeQuery{MaxEntries: req.GetMaxEntries(), Token: req.GetStartingToken()})
	if err != nil {
		return nil, grpcError(fmt.Errorf("list the health of volumes: %w", err))
	}
	answer := &csi.ControllerListVolumeHealthResponse{NextToken: page.NextToken}
	for _, health := range page.Volumes {
		answer.Entries = append(answer.Entries, csiHealth(health))
	}
	return answer, nil
}

// severities says ours in CSI's words.
var severities = map[ebs.Severity]csi.VolumeHealthErrorType{
	ebs.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	ebs.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	ebs.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// csiHealth says a volume's health in CSI's words.
func csiHealth(h ebs.Health) *csi.VolumeHealth {
	answer := &csi.VolumeHealth{VolumeId: string(h.Volume)}
	for _, c := range h.Conditions {
		answer.HealthStatuses = append(answer.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: severities[c.Severity], Reason: c.Reason, Message: c.Message,
		})
	}
	return answer
}
