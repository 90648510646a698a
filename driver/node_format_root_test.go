//go:build root

package driver

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// facts is what the tools tell of the filesystem that is staged from a disk, in
// one line with single blanks.
func (b *bench) facts(fsType string, d disk) string {
	b.t.Helper()
	tool := []string{"dumpe2fs", "-h", "/dev/" + d.loop}
	if fsType == "xfs" {
		tool = []string{"xfs_info", b.path("stage-" + d.volume)}
	}
	return strings.Join(strings.Fields(b.run(tool[0], tool[1:]...)), " ")
}

// TestFormatOptionsOnLoop: each option is read back from the disk that
// NodeStageVolume made a filesystem on, and the filesystem can be written to.
func TestFormatOptionsOnLoop(t *testing.T) {
	for name, tc := range map[string]struct {
		fsType  string
		context map[string]string
		facts   []string
		absent  string
	}{
		"ext4 as it is":    {fsType: "ext4", facts: []string{"Block size: 4096", "Inode size: 256"}, absent: "bigalloc"},
		"ext4 blockSize":   {fsType: "ext4", context: map[string]string{"blocksize": "1024"}, facts: []string{"Block size: 1024"}},
		"ext3 blockSize":   {fsType: "ext3", context: map[string]string{"blocksize": "2k"}, facts: []string{"Block size: 2048"}, absent: "extent"},
		"ext4 inodeSize":   {fsType: "ext4", context: map[string]string{"inodesize": "1024"}, facts: []string{"Inode size: 1024"}},
		"ext4 ratio":       {fsType: "ext4", context: map[string]string{"bytesperinode": "32768"}, facts: []string{"Inode count: 32768"}},
		"ext3 ratio":       {fsType: "ext3", context: map[string]string{"bytesperinode": "32768"}, facts: []string{"Inode count: 32768"}},
		"ext4 inodes":      {fsType: "ext4", context: map[string]string{"numberofinodes": "4096"}, facts: []string{"Inode count: 4096"}},
		"ext4 bigalloc":    {fsType: "ext4", context: map[string]string{"ext4bigalloc": "true"}, facts: []string{"bigalloc", "Cluster size: 65536"}},
		"ext4 clusterSize": {fsType: "ext4", context: map[string]string{"ext4bigalloc": "true", "ext4clustersize": "16384"}, facts: []string{"Cluster size: 16384"}},
		"ext4 encryption":  {fsType: "ext4", context: map[string]string{"ext4encryptionsupport": "true"}, facts: []string{" encrypt "}},
		"ext4 all": {
			fsType: "ext4",
			context: map[string]string{
				"blocksize": "4096", "inodesize": "512", "bytesperinode": "65536", "ext4bigalloc": "true", "ext4clustersize": "32768", "ext4encryptionsupport": "true",
			},
			facts: []string{"Block size: 4096", "Inode size: 512", "Inode count: 16384", "Cluster size: 32768", " encrypt ", "bigalloc"},
		},
		"xfs blockSize": {fsType: "xfs", context: map[string]string{"blocksize": "2048"}, facts: []string{"data = bsize=2048"}},
		"xfs inodeSize": {fsType: "xfs", context: map[string]string{"inodesize": "1024"}, facts: []string{"isize=1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			d := b.attach(volumeA, 1024)
			capability := mountOf(tc.fsType)
			must(t, b.stageWith(volumeA, capability, tc.context))
			must(t, b.publish(volumeA, "pod", capability, false))
			must(t, os.WriteFile(b.path("pod/data"), []byte("kept"), 0o600))
			facts := b.facts(tc.fsType, d)
			for _, fact := range tc.facts {
				if !strings.Contains(facts, fact) {
					t.Errorf("the disk must have %q: %s", fact, facts)
				}
			}
			if tc.absent != "" && strings.Contains(facts, tc.absent) {
				t.Errorf("the disk must not have %q: %s", tc.absent, facts)
			}
			must(t, b.unpublish(volumeA, "pod"))
			must(t, b.unstage(volumeA))
			must(t, b.stageWith(volumeA, capability, tc.context)) // fsck takes it, and so does the growth at stage
		})
	}
}

// TestFormatOptionsLeaveContent: a restored volume under a class with other
// options keeps its filesystem and its files.
func TestFormatOptionsLeaveContent(t *testing.T) {
	b := newBench(t)
	d := b.attach(volumeA, 512)
	must(t, b.stage(volumeA, mountOf("ext4")))
	must(t, os.WriteFile(b.path("stage-"+volumeA+"/data"), []byte("kept"), 0o600))
	must(t, b.unstage(volumeA))
	other := map[string]string{"blocksize": "1024", "ext4bigalloc": "true"}
	must(t, b.stageWith(volumeA, mountOf("ext4"), other))
	data, err := os.ReadFile(b.path("stage-" + volumeA + "/data"))
	if string(data) != "kept" || err != nil {
		t.Errorf("the content must stay: %q, %v", data, err)
	}
	if facts := b.facts("ext4", d); !strings.Contains(facts, "Block size: 4096") {
		t.Errorf("the filesystem must stay: %s", facts)
	}
}

// TestWrongFormatOptionTouchesNothing: a volume context is input.
func TestWrongFormatOptionTouchesNothing(t *testing.T) {
	b := newBench(t)
	d := b.attach(volumeA, 64)
	for _, value := range []string{"-F", "4096 -n", "4096;reboot", "$(id)", "3000"} {
		wantCode(t, b.stageWith(volumeA, mountOf("ext4"), map[string]string{"inodesize": value}), codes.InvalidArgument, value)
	}
	data, err := os.ReadFile(d.file)
	must(t, err)
	if strings.Trim(string(data), "\x00") != "" {
		t.Error("the disk was written to")
	}
}
