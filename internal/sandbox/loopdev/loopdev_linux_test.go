package loopdev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOwned(t *testing.T) {
	ours := map[file]bool{{dev: 1, inode: 10}: true, {dev: 1, inode: 11}: true}
	for name, tc := range map[string]struct {
		why   string
		loops []loop
		want  []int
	}{
		"by file":       {"the file is known by its numbers", []loop{{number: 3, backing: file{1, 10}, on: -1}}, []int{3}},
		"another file":  {"devices of other programs are not touched", []loop{{number: 3, backing: file{1, 12}, on: -1}}, nil},
		"other disk":    {"inode numbers repeat on other file systems", []loop{{number: 3, backing: file{2, 10}, on: -1}}, nil},
		"loop on loop":  {"kubelet puts one on a raw block volume; it goes first, so it is listed last", []loop{{number: 1, backing: file{5, 99}, on: 8}, {number: 8, backing: file{1, 11}, on: -1}}, []int{8, 1}},
		"three stories": {"however deep", []loop{{number: 1, on: 2}, {number: 2, on: 8}, {number: 8, backing: file{1, 11}, on: -1}}, []int{8, 2, 1}},
		"on a foreign":  {"a device on top of someone else's is someone else's, even if its node has our inode number", []loop{{number: 1, backing: file{1, 10}, on: 2}, {number: 2, backing: file{1, 12}, on: -1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, owned(tc.loops, ours)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestFilesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"x", "a/b/y"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := filesBelow(dir)
	if err != nil || len(got) != 2 {
		t.Errorf("%d files, %v; want the two regular ones", len(got), err)
	}
	if got, err := filesBelow(filepath.Join(dir, "no")); err != nil || len(got) != 0 {
		t.Errorf("a folder that is not there has %v, %v", got, err)
	}
}
