package driver

import (
	"maps"
	"strings"
)

// deletionPolicyKey is a field of a VolumeGroupSnapshotClass that also turns up among
// its parameters: Kubernetes' own end-to-end suite puts it there (v1.37,
// test/e2e/storage/utils/volume_group_snapshot.go), and csi-snapshotter hands all
// parameters on. It has no effect here; the field is what counts.
const deletionPolicyKey = "deletionPolicy"

// parseGroupParameters reads the parameters of a VolumeGroupSnapshotClass: those of a
// VolumeSnapshotClass, and deletionPolicy.
func parseGroupParameters(params map[string]string) (snapshotParameters, error) {
	rest := maps.Clone(params)
	for key, value := range params {
		if !strings.EqualFold(key, deletionPolicyKey) {
			continue
		}
		if value != "Delete" && value != "Retain" {
			return snapshotParameters{}, invalid("parameter %s is %q: allowed are Delete and Retain, with no effect; set the field deletionPolicy of the VolumeGroupSnapshotClass", key, value)
		}
		delete(rest, key)
	}
	return parseSnapshotParameters(rest)
}
