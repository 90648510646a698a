package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestVolumeTags(t *testing.T) {
	claim := map[string]string{"PVCName": "data-db-0", "PVCNamespace": "team-prod-payments", "PVName": "pvc-1"}
	own := map[string]string{
		"CSIVolumeName": "pvc-1", "ebs.csi.aws.com/cluster": "true", "kubernetes.io/created-for/pvc/name": "data-db-0",
		"kubernetes.io/created-for/pvc/namespace": "team-prod-payments", "kubernetes.io/created-for/pv/name": "pvc-1",
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{own, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for name, tc := range map[string]struct {
		why     string
		tagging Tagging
		specs   []string
		want    map[string]string
		wrong   string
	}{
		"own":     {"tags that IAM policies and AWS's driver know", Tagging{}, nil, own, ""},
		"cluster": {"the cluster's id", Tagging{ClusterID: "c1"}, nil, with(map[string]string{"kubernetes.io/cluster/c1": "owned", "Name": "c1-dynamic-pvc-1", "KubernetesCluster": "c1", "ebs.csi.aws.com/cluster-name": "c1"}), ""},
		"extra":   {"tags of the installation", Tagging{Extra: map[string]string{"team": "x", "env": "prod"}}, []string{"team=db"}, with(map[string]string{"team": "db", "env": "prod"}), ""},
		"equals":  {"only the first = separates", Tagging{}, []string{"q=a=b", "empty="}, with(map[string]string{"q": "a=b", "empty": ""}), ""},
		"name":    {"Name is the user's", Tagging{ClusterID: "c1"}, []string{"Name=mine"}, with(map[string]string{"kubernetes.io/cluster/c1": "owned", "Name": "mine", "KubernetesCluster": "c1", "ebs.csi.aws.com/cluster-name": "c1"}), ""},
		"templates": {"fields and functions of AWS's driver", Tagging{}, []string{
			"a={{ .PVCName }}/{{ .PVCNamespace }}/{{ .PVName }}", `b={{ .PVCNamespace | contains "prod" }}`, `c={{ .PVCNamespace | field "-" 2 | toUpper }}`,
			"d={{ .PVCName | substring 0 4 }}", `e={{ "ABC" | toLower }}`, `f={{ .PVCNamespace | index "-" }}/{{ .PVCNamespace | lastIndex "-" }}`, "g={{ .PVCName | substring 5 -1 }}",
		}, with(map[string]string{"a": "data-db-0/team-prod-payments/pvc-1", "b": "true", "c": "PAYMENTS", "d": "data", "e": "abc", "f": "4/9", "g": "db-0"}), ""},

		"no =":             {"not a tag", Tagging{}, []string{"abc"}, nil, "key=value"},
		"no key":           {"EC2 wants a key", Tagging{}, []string{"=v"}, nil, "empty"},
		"aws:":             {"reserved by AWS", Tagging{}, []string{"AWS:x=v"}, nil, `parameter "tagSpecification_1": value "AWS:x=v": keys that begin with aws: are reserved`},
		"our key":          {"the driver finds volumes by it", Tagging{}, []string{"CSIVolumeName=v"}, nil, "reserved"},
		"kubernetes.io":    {"the driver sets it", Tagging{}, []string{"kubernetes.io/cluster/x=owned"}, nil, "reserved"},
		"cluster tag":      {"IAM policies rely on it", Tagging{}, []string{"ebs.csi.aws.com/cluster=false"}, nil, "reserved"},
		"long key":         {"EC2 allows 128", Tagging{}, []string{strings.Repeat("k", 129) + "=v"}, nil, "129"},
		"long value":       {"EC2 allows 256", Tagging{}, []string{"k=" + strings.Repeat("v", 257)}, nil, "257"},
		"twice":            {"one of them would be lost", Tagging{}, []string{"k=1", "k=2"}, nil, "tagSpecification_1 too"},
		"broken template":  {"told before anything is made", Tagging{}, []string{"k={{ .PVCName"}, nil, "template"},
		"unknown field":    {"no silent <no value>", Tagging{}, []string{"k={{ .Pod }}"}, nil, "template"},
		"unknown function": {"told before anything is made", Tagging{}, []string{"k={{ .PVCName | shout }}"}, nil, "shout"},
		"no such part":     {"no empty value instead", Tagging{}, []string{`k={{ .PVCName | field "-" 9 }}`}, nil, "field 9"},
		"refused function": {"makes no sense in a tag", Tagging{}, []string{"k={{ html .PVCName }}"}, nil, "html"},
		"no end":           {"a template cannot eat the memory", Tagging{}, []string{`k={{ printf "%9999d" 1 }}`}, nil, "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.tagging.volumeTags("pvc-1", volumeParameters{tags: numbered(tc.specs), claim: claim}, mutableParameters{})
			if tc.wrong != "" {
				if !errors.Is(err, ebs.ErrInvalid) || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%s: %v, want an error with %q", tc.why, err, tc.wrong)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got)\n%s", tc.why, err, diff)
			}
		})
	}
}

// numbered gives each tagSpecification the name of its parameter.
func numbered(specs []string) map[string]string {
	tags := map[string]string{}
	for i, spec := range specs {
		tags[fmt.Sprintf("tagSpecification_%d", i+1)] = spec
	}
	return tags
}

func TestVolumeTagsAreFiftyAtMost(t *testing.T) {
	specs := func(n int) []string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("k%02d=v", i))
		}
		return all
	}
	if _, err := (Tagging{}).volumeTags("pvc-1", volumeParameters{tags: numbered(specs(48))}, mutableParameters{}); err != nil {
		t.Errorf("50 tags with the driver's two: %v", err)
	}
	if _, err := (Tagging{}).volumeTags("pvc-1", volumeParameters{tags: numbered(specs(49))}, mutableParameters{}); !errors.Is(err, ebs.ErrInvalid) || !strings.Contains(err.Error(), "51 tags") {
		t.Errorf("51 tags: %v, want that they are too many", err)
	}
}

func TestSnapshotTags(t *testing.T) {
	got, err := Tagging{ClusterID: "c1", Extra: map[string]string{"env": "prod"}}.snapshotTags("snapshot-1", snapshotParameters{
		tags: numbered([]string{"of={{ .VolumeSnapshotNamespace }}/{{ .VolumeSnapshotName }}"}), snapshot: map[string]string{"VolumeSnapshotName": "s", "VolumeSnapshotNamespace": "db"},
	})
	want := map[string]string{
		"CSIVolumeSnapshotName": "snapshot-1", "ebs.csi.aws.com/cluster": "true", "kubernetes.io/cluster/c1": "owned", "Name": "c1-dynamic-snapshot-1",
		"KubernetesCluster": "c1", "ebs.csi.aws.com/cluster-name": "c1", "env": "prod", "of": "db/s",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func TestParseExtraTags(t *testing.T) {
	got, err := ParseExtraTags("team=db,env=prod,q=a=b")
	if diff := cmp.Diff(map[string]string{"team": "db", "env": "prod", "q": "a=b"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for _, bad := range []string{"x", "a=1,a=2", "aws:x=1", "=v", "CSIVolumeName=x", "a=1,"} {
		if _, err := ParseExtraTags(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
