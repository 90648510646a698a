package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// sample returns an image with one entry of each kind, and the path of the
// file that one of them is read from.
func sample(t *testing.T) (Image, string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("\x7fELF"), 0o4755); err != nil {
		t.Fatal(err)
	}
	return Image{
		Ref: "example.org/sample:v1",
		Files: []File{
			{Path: "/usr/bin/program", Mode: 0o755, Source: source},
			{Path: "/bin/sh", Link: "/usr/bin/program"},
			{Path: "/etc/empty", Mode: 0o644, Content: []byte{}},
			{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		},
		Entrypoint: []string{"/usr/bin/program"},
		User:       "65532:65532",
	}, source
}

func build(t *testing.T, path string, i Image) (rebuilt bool) {
	t.Helper()
	rebuilt, err := Build(path, i)
	if err != nil {
		t.Fatal(err)
	}
	return rebuilt
}

// listing reads the image back and returns a line for each entry of its layer.
func listing(t *testing.T, path, ref string) []string {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%d layers, want one", len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var lines []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		line := h.FileInfo().Mode().String() + " " + h.Name
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			line += " not root's of 1970"
		}
		lines = append(lines, line)
	}
}

func TestBuildWritesSortedEntriesOfRoot(t *testing.T) {
	img, _ := sample(t)
	path := filepath.Join(t.TempDir(), "sample.tar")
	if !build(t, path, img) {
		t.Error("a new image was not written")
	}
	want := []string{
		"drwxr-xr-x bin/",
		"Lrwxrwxrwx bin/sh -> /usr/bin/program",
		"drwxr-xr-x etc/",
		"-rw-r--r-- etc/empty",
		"dtrwxrwxrwx tmp/",
		"drwxr-xr-x usr/",
		"drwxr-xr-x usr/bin/",
		"-rwxr-xr-x usr/bin/program",
	}
	if diff := cmp.Diff(want, listing(t, path, img.Ref)); diff != "" {
		t.Errorf("the layer's entries (-want +got)\n%s", diff)
	}
}

func TestBuildIsReproducibleWhateverTheOrder(t *testing.T) {
	img, _ := sample(t)
	dir := t.TempDir()
	build(t, filepath.Join(dir, "a.tar"), img)
	first, last := img.Files[0], img.Files[len(img.Files)-1]
	img.Files[0], img.Files[len(img.Files)-1] = last, first
	build(t, filepath.Join(dir, "b.tar"), img)
	a, errA := os.ReadFile(filepath.Join(dir, "a.tar"))
	b, errB := os.ReadFile(filepath.Join(dir, "b.tar"))
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the same files in another order gave other bytes")
	}
}

func TestBuildRepeatsOnlyWhatChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		change func(t *testing.T, img *Image, source, tar string)
		want   bool
	}{
		"nothing": {"the same inputs need no work",
			func(*testing.T, *Image, string, string) {}, false},
		"content": {"a rebuilt program must reach the image",
			func(t *testing.T, _ *Image, source, _ string) { overwrite(t, source, "\x7fELF2") }, true},
		"mode": {"a mode is part of the image",
			func(_ *testing.T, img *Image, _, _ string) { img.Files[0].Mode = 0o700 }, true},
		"entrypoint": {"so is what it runs",
			func(_ *testing.T, img *Image, _, _ string) { img.Entrypoint = []string{"/bin/sh"} }, true},
		"reference": {"so is its name",
			func(_ *testing.T, img *Image, _, _ string) { img.Ref = "example.org/sample:v2" }, true},
		"tar gone": {"the digest alone is no image",
			func(t *testing.T, _ *Image, _, tar string) { remove(t, tar) }, true},
		"digest gone": {"a build that was cut off before its last step is not trusted",
			func(t *testing.T, _ *Image, _, tar string) { remove(t, tar+".inputs") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			img, source := sample(t)
			path := filepath.Join(t.TempDir(), "sample.tar")
			build(t, path, img)
			tc.change(t, &img, source, path)
			if got := build(t, path, img); got != tc.want {
				t.Errorf("rebuilt %v, want %v: %s", got, tc.want, tc.why)
			}
		})
	}
}

func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestBuildRefusesWhatNoImageCanHold(t *testing.T) {
	file := File{Path: "/a", Mode: 0o644, Content: []byte("x")}
	for name, tc := range map[string]struct {
		files []File
		want  string // part of the error
	}{
		"relative":       {[]File{{Path: "a", Content: []byte("x")}}, `path "a"`},
		"climbing":       {[]File{{Path: "/a/../b", Content: []byte("x")}}, `path "/a/../b"`},
		"nothing said":   {[]File{{Path: "/a"}}, "exactly one"},
		"two things":     {[]File{{Path: "/a", Content: []byte("x"), Link: "b"}}, "exactly one"},
		"twice":          {[]File{file, file}, "/a is listed twice"},
		"file as folder": {[]File{file, {Path: "/a/b", Content: []byte("x")}}, "/a is no folder"},
		"missing source": {[]File{{Path: "/a", Source: "/no/such/file"}}, "/no/such/file"},
		"folder source":  {[]File{{Path: "/a", Source: "/"}}, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.tar")
			_, err := Build(path, Image{Ref: "example.org/x:v1", Files: tc.files})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a refused image left %s behind", path)
			}
		})
	}
}

func TestUnpackGivesTheImagesFiles(t *testing.T) {
	img, _ := sample(t)
	dir := filepath.Join(t.TempDir(), "rootfs")
	if err := Unpack(dir, img); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		got = append(got, info.Mode().String()+" "+strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"drwxr-xr-x /bin",
		"Lrwxrwxrwx /bin/sh",
		"drwxr-xr-x /etc",
		"-rw-r--r-- /etc/empty",
		"dtrwxrwxrwx /tmp",
		"drwxr-xr-x /usr",
		"drwxr-xr-x /usr/bin",
		"-rwxr-xr-x /usr/bin/program",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the unpacked files (-want +got)\n%s", diff)
	}
	if err := Unpack(dir, img); err == nil {
		t.Error("unpacking over files that are there was not refused")
	}
}
