package catalog

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/image"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// Options says what to build and where.
type Options struct {
	// Out is the folder of the tars, made if absent. Required.
	Out string
	// Binaries is the folder with the toolchain's static binaries; empty means
	// the user's cache, where what is missing is built first. The images of the
	// driver, pause and busybox do not need it.
	Binaries string
	// Only names the images to build; empty means all that an installation runs.
	Only []string
	// Version is the driver's version and the tag of its images. Required.
	Version string
	// Progress is told what happens, a line each; nil means silence.
	Progress io.Writer
}

// Built is one image after Build.
type Built struct {
	// Name is the short name, Ref the reference that the tar carries.
	Name, Ref string
	// Path is the tar.
	Path string
	// Rebuilt is false when the tar was there with the same inputs.
	Rebuilt bool
}

// Build makes the images and returns them in the order of the catalog. It
// compiles our own binaries each time (the Go build cache makes that quick)
// and writes only the tars whose inputs changed.
func Build(ctx context.Context, o Options) ([]Built, error) {
	chosen, err := selectEntries(o.Only)
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	s, err := newSource(o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the images: %w", err)
	}
	var built []Built
	for n, e := range chosen {
		started := time.Now()
		fmt.Fprintf(o.Progress, "image %d/%d %s ... ", n+1, len(chosen), e.name)
		b, err := s.build(ctx, e, o.Out)
		if err != nil {
			fmt.Fprintln(o.Progress, "failed")
			return built, fmt.Errorf("image %s: %w", e.name, err)
		}
		did := "written"
		if !b.Rebuilt {
			did = "unchanged"
		}
		fmt.Fprintf(o.Progress, "%s in %.1fs: %s\n", did, time.Since(started).Seconds(), b.Ref)
		built = append(built, b)
	}
	return built, nil
}

// Rootfs unpacks the content of one image below dir.
func Rootfs(ctx context.Context, o Options, name, dir string) error {
	chosen, err := selectEntries([]string{name})
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	s, err := newSource(o)
	if err != nil {
		return err
	}
	defer s.close()
	img, err := s.image(ctx, chosen[0])
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	return image.Unpack(dir, img)
}

// source is where the images' files come from.
type source struct {
	root        string // of our source tree
	binaries    string // of the toolchain; empty until first needed
	suite       string // folder of Kubernetes' end-to-end suite; empty until first needed
	version     string
	scratch     string // our own binaries, removed by close
	programDirs []string
	progress    io.Writer
}

func newSource(o Options) (*source, error) {
	if o.Version == "" {
		return nil, errors.New("images: no version given")
	}
	root, err := toolchain.FindRoot(".")
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "holdfast-images-")
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	return &source{
		root:        root,
		binaries:    o.Binaries,
		version:     o.Version,
		scratch:     scratch,
		programDirs: programDirs,
		progress:    o.Progress,
	}, nil
}

func (s *source) close() { os.RemoveAll(s.scratch) }

func (s *source) image(ctx context.Context, e entry) (image.Image, error) {
	img, err := e.make(ctx, s)
	img.Ref = e.ref(s.version)
	return img, err
}

func (s *source) build(ctx context.Context, e entry, out string) (Built, error) {
	img, err := s.image(ctx, e)
	if err != nil {
		return Built{}, err
	}
	b := Built{Name: e.name, Ref: img.Ref, Path: filepath.Join(out, e.name+".tar")}
	b.Rebuilt, err = image.Build(b.Path, img)
	return b, err
}

// versionFlag is the linker flag that sets the version.
func versionFlag(version string) string {
	return "-X github.com/holdfast-dev/holdfast/internal/version.Version=" + version
}

// goBinary compiles a static binary from our source tree.
func (s *source) goBinary(ctx context.Context, pkg, ldflags string) (string, error) {
	out := filepath.Join(s.scratch, filepath.Base(pkg))
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	// -buildvcs=false: the image is to say what the source is, not the state of
	// a checkout, and the same source is to give the same bytes.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", out, pkg)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}

// toolchainBinary returns the path of one of the toolchain's binaries.
func (s *source) toolchainBinary(ctx context.Context, name string) (string, error) {
	if s.binaries == "" {
		dir, err := toolchain.Build(ctx, toolchain.Options{Root: s.root, Out: s.progress})
		if err != nil {
			return "", fmt.Errorf("toolchain: %w", err)
		}
		s.binaries = dir
	}
	return staticBinary(s.binaries, name)
}

// suiteBinary returns the path of one of the programs of Kubernetes' suite.
func (s *source) suiteBinary(ctx context.Context, name string) (string, error) {
	if s.suite == "" {
		dir, err := toolchain.Build(ctx, toolchain.Options{Set: toolchain.Suite, Root: s.root, Out: s.progress})
		if err != nil {
			return "", fmt.Errorf("toolchain: %w", err)
		}
		s.suite = dir
	}
	return staticBinary(s.suite, name)
}

// staticBinary returns the path of a program that can start in an image which
// holds nothing else.
func staticBinary(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	static, err := isStatic(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not in %s: `go run ./cmd/sandbox build` builds it into a folder and prints that", name, dir)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !static {
		return "", fmt.Errorf("%s is dynamically linked: it would not start in an image that holds nothing else; build it with CGO_ENABLED=0", path)
	}
	return path, nil
}

// busybox returns this machine's busybox and the names of its applets.
func (s *source) busybox(ctx context.Context) (path string, applets []string, err error) {
	wanted := tool{name: "busybox", debian: "busybox-static"}
	path, found := wanted.find(s.programDirs)
	if !found {
		return "", nil, missingTools{wanted}
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, fmt.Errorf("busybox: %w", err)
	}
	static, err := isStatic(path)
	if err != nil {
		return "", nil, fmt.Errorf("busybox: %w", err)
	}
	if !static {
		return "", nil, fmt.Errorf("%s is dynamically linked; install the static one with: apt-get install busybox-static", path)
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return "", nil, fmt.Errorf("%s --list: %w", path, err)
	}
	return path, strings.Fields(string(list)), nil
}

// isStatic tells whether the program at path starts without a dynamic linker.
func isStatic(path string) (bool, error) {
	file, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}
