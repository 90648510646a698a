package driver

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestParseModify(t *testing.T) {
	claim := map[string]string{"csi.storage.k8s.io/pvc/name": "data-0", "csi.storage.k8s.io/pvc/namespace": "db-prod", "csi.storage.k8s.io/pv/name": "pvc-1"}
	for name, tc := range map[string]struct {
		why    string
		params map[string]string
		want   ebs.Modification
		wrong  []string
	}{
		"all": {"each key, in any case", map[string]string{"Type": "IO2", "iopspergb": "50", "allowAutoIOPSIncreaseOnModify": "True", "tagSpecification_1": "team={{ .PVCNamespace | field \"-\" 1 }}", "tagDeletion_1": "old"},
			ebs.Modification{Type: ebs.IO2, IOPSPerGiB: 50, RaiseIOPS: true, SetTags: map[string]string{"team": "prod", ebs.TagIOPSPerGiB: "50", ebs.TagAutoIOPS: "true"}, DeleteTags: []string{"old"}}, nil},
		"gp3": {"the old name of type", map[string]string{"volumeType": "gp3", "throughput": "250"}, ebs.Modification{Type: ebs.GP3, ThroughputMiBps: 250, SetTags: map[string]string{}}, nil},
		"iops": {"a number of its own ends the rate", map[string]string{"iops": "4000"},
			ebs.Modification{IOPS: 4000, SetTags: map[string]string{}, DeleteTags: []string{ebs.TagIOPSPerGiB}}, nil},
		"no longer": {"false is not the same as not said", map[string]string{"allowAutoIOPSIncreaseOnModify": "false"},
			ebs.Modification{SetTags: map[string]string{}, DeleteTags: []string{ebs.TagAutoIOPS}}, nil},
		"one type, two names":  {"as AWS's driver takes", map[string]string{"type": "gp3", "volumeType": "GP3"}, ebs.Modification{Type: ebs.GP3, SetTags: map[string]string{}}, nil},
		"two types":            {"which one?", map[string]string{"type": "gp3", "volumeType": "io2"}, ebs.Modification{}, []string{"volumeType", "gp3", "io2"}},
		"unknown":              {"never ignored", map[string]string{"iop": "4000", "throughput": "250"}, ebs.Modification{}, []string{`"iop"`, "allowed are type"}},
		"not mutable":          {"a StorageClass's key", map[string]string{"encrypted": "true"}, ebs.Modification{}, []string{"encrypted"}},
		"bad number":           {"allowed is told", map[string]string{"iops": "4k"}, ebs.Modification{}, []string{"4k", "whole number"}},
		"bad type":             {"allowed is told", map[string]string{"type": "gp4"}, ebs.Modification{}, []string{"gp4", "gp3"}},
		"iops twice":           {"they exclude each other", map[string]string{"iops": "4000", "iopsPerGB": "50"}, ebs.Modification{}, []string{"iops", "iopsPerGB", "only one"}},
		"reserved tag":         {"the driver finds its volumes by it", map[string]string{"tagSpecification_1": "CSIVolumeName=x", "iops": "4000"}, ebs.Modification{}, []string{"reserved"}},
		"reserved tag deleted": {"deletion would leak the volume", map[string]string{"tagDeletion_1": "CSIVolumeName", "tagDeletion_2": "ebs.csi.aws.com/cluster", "tagDeletion_3": "kubernetes.io/cluster/x", "tagDeletion_4": "aws:x"}, ebs.Modification{}, []string{"tagDeletion_1", "tagDeletion_2", "tagDeletion_3", "tagDeletion_4", "reserved"}},
		"no key deleted":       {"an empty key", map[string]string{"tagDeletion_1": ""}, ebs.Modification{}, []string{"tagDeletion_1", "empty"}},
		"set and deleted":      {"which one?", map[string]string{"tagSpecification_1": "a=b", "tagDeletion_1": "a"}, ebs.Modification{}, []string{`"a"`, "set and deleted"}},
		"broken template":      {"judged before any call", map[string]string{"tagSpecification_1": "a={{", "iops": "4000"}, ebs.Modification{}, []string{"template"}},
	} {
		t.Run(name, func(t *testing.T) {
			params := maps.Clone(claim)
			maps.Copy(params, tc.params)
			_, got, err := parseModify(&csi.ControllerModifyVolumeRequest{VolumeId: "vol-1", MutableParameters: params})
			if tc.wrong == nil {
				if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
					t.Errorf("%s: %v (-want +got)\n%s", tc.why, err, diff)
				}
				return
			}
			if !errors.Is(err, ebs.ErrInvalid) {
				t.Fatalf("%s: %v, want that it is invalid", tc.why, err)
			}
			for _, text := range tc.wrong {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %s", tc.why, err, text)
				}
			}
		})
	}
}

// CSI: the mutable parameters go before the parameters.
func TestAttributesAtCreation(t *testing.T) {
	for name, tc := range map[string]struct {
		why             string
		params, mutable map[string]string
		want            ebs.VolumeRequest
	}{
		"none":          {"the class alone", map[string]string{"iops": "4000"}, nil, ebs.VolumeRequest{Type: ebs.GP3, IOPS: 4000}},
		"iops":          {"the attributes' number", map[string]string{"iops": "4000", "throughput": "200"}, map[string]string{"iops": "5000"}, ebs.VolumeRequest{Type: ebs.GP3, IOPS: 5000, ThroughputMiBps: 200}},
		"iops for rate": {"one wish goes for the other", map[string]string{"type": "io2", "iopsPerGB": "50"}, map[string]string{"iops": "700"}, ebs.VolumeRequest{Type: ebs.IO2, IOPS: 700}},
		"rate for iops": {"one wish goes for the other", map[string]string{"type": "io2", "iops": "700"}, map[string]string{"iopsPerGB": "50"}, ebs.VolumeRequest{Type: ebs.IO2, IOPS: 500}},
		"type":          {"throughput was the other type's", map[string]string{"throughput": "200", "iops": "4000"}, map[string]string{"type": "io2"}, ebs.VolumeRequest{Type: ebs.IO2, IOPS: 4000}},
		"gp2":           {"no numbers at all", map[string]string{"throughput": "200", "iops": "4000"}, map[string]string{"type": "gp2"}, ebs.VolumeRequest{Type: ebs.GP2}},
		"throughput":    {"the attributes' number", nil, map[string]string{"throughput": "300"}, ebs.VolumeRequest{Type: ebs.GP3, ThroughputMiBps: 300}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := parseCreateVolume(&csi.CreateVolumeRequest{
				Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 30}, Parameters: tc.params, MutableParameters: tc.mutable,
				VolumeCapabilities: []*csi.VolumeCapability{{
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
					AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
				}},
			}, Tagging{})
			if err != nil || got.Type != tc.want.Type || got.IOPS != tc.want.IOPS || got.ThroughputMiBps != tc.want.ThroughputMiBps {
				t.Errorf("%s: %s, %d IOPS, %d MiB/s, %v; want %+v", tc.why, got.Type, got.IOPS, got.ThroughputMiBps, err, tc.want)
			}
		})
	}
}

func TestTagsOfAttributesAtCreation(t *testing.T) {
	follow := true
	claim := map[string]string{"PVCName": "data-0"}
	p := volumeParameters{iopsPerGB: 50, tags: map[string]string{"tagSpecification_1": "env=prod", "tagSpecification_2": "team=a"}, claim: claim}
	m := mutableParameters{iopsFollowSize: &follow, tags: map[string]string{"tagSpecification_1": "team={{ .PVCName }}"}, deletions: map[string]string{"tagDeletion_1": "env"}}
	got, err := (Tagging{Extra: map[string]string{"team": "x", "cost": "y"}}).volumeTags("pvc-1", p.overriddenBy(m), m)
	want := map[string]string{
		tagVolumeName: "pvc-1", tagManaged: "true", tagCreatedFor + "pvc/name": "data-0",
		"cost": "y", "team": "data-0", ebs.TagIOPSPerGiB: "50", ebs.TagAutoIOPS: "true",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
