package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

func TestParseVolumeParameters(t *testing.T) {
	none := map[string]string{}
	for name, tc := range map[string]struct {
		why    string
		params map[string]string
		want   volumeParameters
		wrong  []string // what the error names: key, value, allowed
	}{
		"nothing":           {"gp3 is the default", nil, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},
		"article's class":   {"a class of the first article", map[string]string{"type": "gp3", "fsType": "ext4"}, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},
		"database class":    {"a class of the second article", map[string]string{"type": "io2", "iopsPerGB": "50", "fsType": "ext4", "encrypted": "true"}, volumeParameters{volumeType: ebs.IO2, iopsPerGB: 50, encrypted: true, claim: none}, nil},
		"in-tree class":     {"what the translation of kubernetes.io/aws-ebs makes", map[string]string{"type": "gp2", "csi.storage.k8s.io/fstype": "xfs", "allowautoiopspergbincrease": "true"}, volumeParameters{volumeType: ebs.GP2, raiseIOPS: true, claim: none}, nil},
		"keys without case": {"keys are compared without case", map[string]string{"TYPE": "gp3", "IopsPerGb": "10", "KMSKEYID": "k"}, volumeParameters{volumeType: ebs.GP3, iopsPerGB: 10, encrypted: true, kmsKeyID: "k", claim: none}, nil},
		"explicit iops":     {"iops and throughput", map[string]string{"iops": "4000", "throughput": "250"}, volumeParameters{volumeType: ebs.GP3, iops: 4000, throughputMiBps: 250, claim: none}, nil},
		"True":              {"never silently unencrypted", map[string]string{"encrypted": "True"}, volumeParameters{volumeType: ebs.GP3, encrypted: true, claim: none}, nil},
		"not encrypted":     {"false is a value", map[string]string{"encrypted": "false"}, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},
		"key, not encrypted": {"a key implies encryption", map[string]string{"encrypted": "false", "kmsKeyId": "alias/db"},
			volumeParameters{volumeType: ebs.GP3, encrypted: true, kmsKeyID: "alias/db", claim: none}, nil},
		"XFS":         {"the node normalises", map[string]string{"fsType": "XFS"}, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},
		"empty type":  {"a template that fills in nothing means the default", map[string]string{"type": "", "fsType": "", "kmsKeyId": ""}, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},
		"claim names": {"extra create metadata", map[string]string{"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "db", "csi.storage.k8s.io/pv/name": "pvc-1"}, volumeParameters{volumeType: ebs.GP3, claim: map[string]string{"PVCName": "data", "PVCNamespace": "db", "PVName": "pvc-1"}}, nil},
		"tags":        {"any number of tags", map[string]string{"tagSpecification_1": "a=b", "tagspecification_22": "c=d=e"}, volumeParameters{volumeType: ebs.GP3, tags: map[string]string{"tagSpecification_1": "a=b", "tagspecification_22": "c=d=e"}, claim: none}, nil},
		"mkfs options": {"a size in either way, a key in any case", map[string]string{"blockSize": "4k", "INODESIZE": "512", "bytesPerInode": "8192", "numberOfInodes": "100000", "ext4BigAlloc": "True", "ext4ClusterSize": "1M", "ext4EncryptionSupport": "true"},
			volumeParameters{volumeType: ebs.GP3, claim: none, format: fs.FormatOptions{BlockBytes: 4096, InodeBytes: 512, BytesPerInode: 8192, Inodes: 100000, BigAlloc: true, ClusterBytes: 1 << 20, Encrypt: true}}, nil},
		"initialization": {"how a snapshot's content comes, and whether it is waited for", map[string]string{"volumeInitializationRate": "300", "blockAttachUntilInitialized": "true"},
			volumeParameters{volumeType: ebs.GP3, claim: none, initializationMiBps: 300, attachInitialized: true}, nil},
		"block express":    {"every io2 volume is one", map[string]string{"blockExpress": "true", "allowAutoIOPSIncreaseOnModify": "true"}, volumeParameters{volumeType: ebs.GP3, claim: none, iopsFollowSize: true}, nil},
		"mkfs as it likes": {"a template that fills in nothing means the default", map[string]string{"blockSize": "", "ext4BigAlloc": "false"}, volumeParameters{volumeType: ebs.GP3, claim: none}, nil},

		"unknown key":      {"a mistyped key never passes", map[string]string{"encrypt": "true"}, volumeParameters{}, []string{`"encrypt"`, `"true"`, "encrypted", "tagSpecification_N"}},
		"encrypted yes":    {"yes is no value", map[string]string{"encrypted": "yes"}, volumeParameters{}, []string{`"encrypted"`, `"yes"`, "true or false"}},
		"encrypted empty":  {"an empty value is none", map[string]string{"encrypted": ""}, volumeParameters{}, []string{`"encrypted"`, "true or false"}},
		"unknown type":     {"allowed types are listed", map[string]string{"type": "gp4"}, volumeParameters{}, []string{`"type"`, `"gp4"`, "gp2, gp3, io1, io2, sc1, st1, standard"}},
		"iops text":        {"numbers only", map[string]string{"iops": "many"}, volumeParameters{}, []string{`"iops"`, `"many"`, "whole number"}},
		"iops zero":        {"zero is no wish", map[string]string{"iops": "0"}, volumeParameters{}, []string{`"iops"`, `"0"`}},
		"throughput -1":    {"nothing negative", map[string]string{"throughput": "-1"}, volumeParameters{}, []string{`"throughput"`, `"-1"`}},
		"iops beyond":      {"no number overflows", map[string]string{"iops": "99999999999"}, volumeParameters{}, []string{`"iops"`}},
		"filesystem":       {"the node makes no ntfs", map[string]string{"csi.storage.k8s.io/fstype": "ntfs"}, volumeParameters{}, []string{"fstype", `"ntfs"`, "ext4, ext3 or xfs"}},
		"both iops":        {"never both", map[string]string{"iops": "3000", "iopsPerGB": "10"}, volumeParameters{}, []string{"iops", "iopsPerGB", "only one"}},
		"block size text":  {"an option of mkfs is no value", map[string]string{"blockSize": "-n"}, volumeParameters{}, []string{`"blockSize"`, `"-n"`, "number of bytes"}},
		"block size blank": {"nothing around a number", map[string]string{"blockSize": "4096 "}, volumeParameters{}, []string{`"blockSize"`, `"4096 "`}},
		"block size zero":  {"zero is no wish", map[string]string{"blockSize": "0k"}, volumeParameters{}, []string{`"blockSize"`}},
		"block size unit":  {"a unit alone", map[string]string{"blockSize": "k"}, volumeParameters{}, []string{`"blockSize"`}},
		"block size huge":  {"no number overflows", map[string]string{"blockSize": "9007199254740993M"}, volumeParameters{}, []string{`"blockSize"`}},
		"inodes negative":  {"nothing negative", map[string]string{"numberOfInodes": "-5"}, volumeParameters{}, []string{`"numberOfInodes"`, "whole number"}},
		"rate text":        {"numbers only", map[string]string{"volumeInitializationRate": "fast"}, volumeParameters{}, []string{`"volumeInitializationRate"`, `"fast"`, "100 to 300"}},
		"block express 1":  {"a key without effect is judged all the same", map[string]string{"blockExpress": "1"}, volumeParameters{}, []string{`"blockExpress"`, "true or false"}},
		"initialized yes":  {"yes is no value", map[string]string{"blockAttachUntilInitialized": "yes"}, volumeParameters{}, []string{`"blockAttachUntilInitialized"`}},
		"modify yes":       {"yes is no value", map[string]string{"allowAutoIOPSIncreaseOnModify": "yes"}, volumeParameters{}, []string{`"allowAutoIOPSIncreaseOnModify"`}},
		"bigalloc yes":     {"yes is no value", map[string]string{"ext4BigAlloc": "yes"}, volumeParameters{}, []string{`"ext4BigAlloc"`, "true or false"}},
		"twice":            {"two spellings of a key contradict each other", map[string]string{"type": "gp3", "Type": "io2"}, volumeParameters{}, []string{`"Type"`, "twice"}},
		"several": {"everything wrong is told at once", map[string]string{"encrypted": "yes", "type": "gp4", "x": "y"}, volumeParameters{},
			[]string{`"encrypted"`, `"gp4"`, `"x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseVolumeParameters(tc.params)
			if tc.wrong == nil {
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(volumeParameters{})); diff != "" || err != nil {
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

func TestIOPSFor(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		p     volumeParameters
		size  ebs.GiB
		want  int32
		wrong string
	}{
		"default":         {"EC2 decides", volumeParameters{volumeType: ebs.GP3}, 10, 0, ""},
		"explicit":        {"taken as it is", volumeParameters{volumeType: ebs.IO1, iops: 500}, 10, 500, ""},
		"per GiB":         {"a rate times the size", volumeParameters{volumeType: ebs.IO2, iopsPerGB: 50}, 20, 1000, ""},
		"below, refused":  {"more IOPS cost more: only when the class says so", volumeParameters{volumeType: ebs.IO1, iopsPerGB: 10}, 4, 0, "allowAutoIOPSPerGBIncrease"},
		"below, raised":   {"the class says so", volumeParameters{volumeType: ebs.IO1, iopsPerGB: 10, raiseIOPS: true}, 4, 100, ""},
		"gp3 raised":      {"gp3 begins at 3000", volumeParameters{volumeType: ebs.GP3, iopsPerGB: 10, raiseIOPS: true}, 4, 3000, ""},
		"beyond, cut":     {"a rate must serve every size", volumeParameters{volumeType: ebs.IO2, iopsPerGB: 500}, 65536, 256000, ""},
		"rate too high":   {"no io1 volume has that", volumeParameters{volumeType: ebs.IO1, iopsPerGB: 51}, 100, 0, "at most 50"},
		"type without":    {"gp2 has a rate of its own", volumeParameters{volumeType: ebs.GP2, iopsPerGB: 3}, 100, 0, "cannot be chosen"},
		"size not known":  {"a rate needs a size", volumeParameters{volumeType: ebs.IO1, iopsPerGB: 10}, 0, 0, "size"},
		"raise without a": {"the translation adds it to every class", volumeParameters{volumeType: ebs.ST1, raiseIOPS: true}, 125, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.p.iopsFor(tc.size)
			if tc.wrong != "" {
				if !errors.Is(err, ebs.ErrInvalid) || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%s: %v, want an error with %q", tc.why, err, tc.wrong)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: %d, %v; want %d", tc.why, got, err, tc.want)
			}
		})
	}
}
