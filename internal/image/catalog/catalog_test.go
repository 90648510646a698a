package catalog

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/image"
)

func newTestSource(t *testing.T) *source {
	t.Helper()
	s, err := newSource(Options{Version: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// fakeDriver puts a file where the compiled driver would be.
func fakeDriver(t *testing.T, s *source) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.scratch, "holdfast-driver"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func paths(img image.Image) []string {
	var out []string
	for _, f := range img.Files {
		out = append(out, f.Path)
	}
	slices.Sort(out)
	return out
}

func TestControllerImageHoldsBinaryAndCertificatesOnly(t *testing.T) {
	s := newTestSource(t)
	fakeDriver(t, s)
	img, err := controllerImage(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/etc/ssl/certs/ca-certificates.crt", "/holdfast-driver"}, paths(img)); diff != "" {
		t.Errorf("files of the controller's image (-want +got)\n%s", diff)
	}
	if img.User != nonroot {
		t.Errorf("user %q, want %q: the Deployment asks for a user that is not root", img.User, nonroot)
	}
}

func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	s := &source{programDirs: []string{t.TempDir()}}
	_, err := s.toolFiles([]tool{
		{name: "mkfs.xfs", debian: "xfsprogs"}, {name: "xfs_growfs", debian: "xfsprogs"}, {name: "mount", debian: "mount"},
	})
	want := "missing on this machine: mkfs.xfs xfs_growfs mount; install with: apt-get install mount xfsprogs"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func TestProgramFilesStoreOneProgramOnce(t *testing.T) {
	got := programFiles(map[string]string{
		"/usr/sbin/e2fsck": "/usr/sbin/e2fsck", "/usr/sbin/fsck.ext4": "/usr/sbin/e2fsck", "/usr/bin/dash": "/usr/bin/dash",
	})
	want := []image.File{
		{Path: "/usr/bin/dash", Mode: 0o755, Source: "/usr/bin/dash"},
		{Path: "/bin/sh", Link: "/usr/bin/dash"},
		{Path: "/usr/sbin/e2fsck", Mode: 0o755, Source: "/usr/sbin/e2fsck"},
		{Path: "/usr/sbin/fsck.ext4", Link: "/usr/sbin/e2fsck"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got)\n%s", diff)
	}
}

func TestToolchainBinaryRefusesWhatWouldNotStart(t *testing.T) {
	dir := t.TempDir()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{"csi-attacher": shell, "csi-resizer": []byte("#!/bin/sh\nexec /usr/bin/env true\n")} {
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct{ binaries, binary, want string }{
		"absent":  {dir, "csi-provisioner", "go run ./cmd/sandbox build"},
		"dynamic": {dir, "csi-attacher", "CGO_ENABLED=0"},
		"no ELF":  {dir, "csi-resizer", "bad magic number"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&source{binaries: tc.binaries}).toolchainBinary(context.Background(), tc.binary)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestUnknownImageIsRefusedWithTheChoice(t *testing.T) {
	_, err := Build(context.Background(), Options{Out: t.TempDir(), Version: "v0.1.0", Only: []string{"drvier"}})
	if err == nil || !strings.Contains(err.Error(), `no image "drvier"`) || !strings.Contains(err.Error(), "driver-node") {
		t.Errorf("error %v, want the wrong name and the right ones", err)
	}
}

// What no installation runs is not built for one: the suite's agnhost takes
// minutes, PostgreSQL a download.
func TestWhatTestsRunIsBuiltOnlyWhereItIsNamed(t *testing.T) {
	all, err := selectEntries(nil)
	if err != nil {
		t.Fatal(err)
	}
	named := append(SuiteNames(), "postgresql", "block-driver")
	for _, e := range all {
		if slices.Contains(named, e.name) {
			t.Errorf("%s is built without being named", e.name)
		}
	}
	if len(all)+len(named) != len(Names()) {
		t.Errorf("%d images are built unnamed, and %d by name, of %d", len(all), len(named), len(Names()))
	}
	chosen, err := selectEntries(named)
	if err != nil || len(chosen) != len(named) {
		t.Errorf("%d images, %v; want each that is named", len(chosen), err)
	}
}

// Libraries and the server are wanted; what compiles, installs or configures is not.
func TestNeededByPostgreSQL(t *testing.T) {
	for pkg, want := range map[string]bool{
		"postgresql-15": true, "postgresql-client-16": true, "libc6": true, "libpq5": true, "libpam0g": true, "zlib1g": true,
		"postgresql-common": false, "postgresql-client-common": false, "libllvm14": false, "libperl5.36": false,
		"libjson-perl": false, "libpam-modules": false, "libc-bin": false, "perl": false, "dpkg": false,
	} {
		if got := neededByPostgreSQL(pkg); got != want {
			t.Errorf("%s: %v, want %v", pkg, got, want)
		}
	}
}

// The suite's glibc image is for the sake of GNU's dd: busybox's must not hide it.
func TestGlibcImageHasOneDdAndItsShell(t *testing.T) {
	img, err := glibcImage(context.Background(), newTestSource(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range img.Files {
		if (filepath.Base(f.Path) == "dd" || filepath.Base(f.Path) == "sh") && f.Link == "busybox" {
			t.Errorf("%s is busybox's", f.Path)
		}
	}
	if !slices.Contains(paths(img), "/bin/sh") {
		t.Error("there is no /bin/sh")
	}
}
