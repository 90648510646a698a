package catalog

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/image"
)

// nonroot is the user that distroless images call nonroot; the Deployment
// names it too, so that the images' own choice is only a second line.
const nonroot = "65532:65532"

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// entry is one image of the catalog.
type entry struct {
	// name is the short name: of the tar, and for --only.
	name string
	// what is one line of help.
	what string
	// ref is the image's reference at a version of ours.
	ref func(version string) string
	// make lists the files; the reference is set by the caller.
	make func(ctx context.Context, s *source) (image.Image, error)
	// named says that it is built only where it is named: no installation runs it.
	named bool
}

// entries is the catalog, the driver's own images first.
var entries = slices.Concat([]entry{
	{"driver", "the driver's controller half: binary and CA certificates", ours("holdfast-driver"), controllerImage, false},
	{"driver-node", "the driver's node half: binary and file system tools", ours("holdfast-driver-node"), nodeImage, false},
	{"manager", "the manager: one binary", ours("holdfast-manager"), managerImage, false},
	{"pause", "stand-in for the container that holds a Pod's namespaces", fixed("registry.k8s.io/pause:3.10"), pauseImage, false},
	{"busybox", "stand-in for busybox, from this machine's static busybox", fixed("docker.io/library/busybox:1.37"), busyboxImage, false},
}, toolchainEntries(), suiteEntries(), []entry{postgresqlEntry, blockDriverEntry})

// ours is the reference of an image that carries the driver's version.
func ours(name string) func(version string) string {
	return func(version string) string { return "ghcr.io/holdfast-dev/" + name + ":" + version }
}

// fixed is the reference of an image that others version.
func fixed(ref string) func(version string) string {
	return func(string) string { return ref }
}

// toolchainEntries are the images that hold one static binary of the toolchain
// under the entry point that the registry's image has.
func toolchainEntries() []entry {
	var out []entry
	for _, t := range []struct{ name, version string }{
		{"csi-provisioner", "v6.4.0"},
		{"csi-attacher", "v4.13.0"},
		{"csi-resizer", "v2.3.0"},
		{"csi-snapshotter", "v8.7.0"},
		{"snapshot-controller", "v8.7.0"},
	} {
		ref := "registry.k8s.io/sig-storage/" + t.name + ":" + t.version
		out = append(out, entry{t.name, "stand-in for " + ref, fixed(ref), func(ctx context.Context, s *source) (image.Image, error) {
			binary, err := s.toolchainBinary(ctx, t.name)
			if err != nil {
				return image.Image{}, err
			}
			return image.Image{
				Files:      []image.File{{Path: "/" + t.name, Mode: 0o755, Source: binary}},
				Entrypoint: []string{"/" + t.name},
				User:       nonroot,
			}, nil
		}, false})
	}
	return out
}

// Names returns the short names of all images, in the order of building, those
// that are built only where they are named last.
func Names() []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.name
	}
	return names
}

// Refs returns the references of all images at a version of ours, in the order
// of building.
func Refs(version string) []string {
	refs := make([]string, len(entries))
	for i, e := range entries {
		refs[i] = e.ref(version)
	}
	return refs
}

// Describe returns one line about the image of that short name.
func Describe(name string) string {
	for _, e := range entries {
		if e.name == name {
			return e.what
		}
	}
	return ""
}

// selectEntries returns the named entries; if none is named, all of those that
// need no naming.
func selectEntries(names []string) ([]entry, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.named }), nil
	}
	var chosen []entry
	for _, name := range names {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no image %q: choose from %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, entries[i])
	}
	return chosen, nil
}

// driverLabels are the annotations of the driver's images.
// See https://github.com/opencontainers/image-spec/blob/main/annotations.md.
func driverLabels(version, title string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    title,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.source":   "https://github.com/holdfast-dev/holdfast",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

func managerImage(ctx context.Context, s *source) (image.Image, error) {
	manager, err := s.goBinary(ctx, "./cmd/holdfast-manager", versionFlag(s.version))
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Files:      []image.File{{Path: "/holdfast-manager", Mode: 0o755, Source: manager}},
		Entrypoint: []string{"/holdfast-manager"},
		User:       nonroot,
		Labels:     driverLabels(s.version, "Holdfast manager"),
	}, nil
}

func controllerImage(ctx context.Context, s *source) (image.Image, error) {
	driver, err := s.goBinary(ctx, "./cmd/holdfast-driver", versionFlag(s.version))
	if err != nil {
		return image.Image{}, err
	}
	certificates, err := s.caCertificates()
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Files: []image.File{
			{Path: "/holdfast-driver", Mode: 0o755, Source: driver},
			{Path: "/etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Source: certificates},
		},
		Entrypoint: []string{"/holdfast-driver"},
		User:       nonroot,
		Labels:     driverLabels(s.version, "Holdfast CSI driver, controller"),
	}, nil
}

func nodeImage(ctx context.Context, s *source) (image.Image, error) {
	driver, err := s.goBinary(ctx, "./cmd/holdfast-driver", versionFlag(s.version))
	if err != nil {
		return image.Image{}, err
	}
	files, err := s.toolFiles(nodeTools)
	if err != nil {
		return image.Image{}, err
	}
	files = append(files,
		image.File{Path: "/holdfast-driver", Mode: 0o755, Source: driver},
		// fsck and mount read both; the kernel's own list of mounts is the true one.
		image.File{Path: "/etc/fstab", Mode: 0o644, Content: []byte{}},
		image.File{Path: "/etc/mtab", Link: "/proc/self/mounts"},
		image.File{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	)
	return image.Image{
		Files:      files,
		Entrypoint: []string{"/holdfast-driver"},
		Env:        []string{searchPath},
		Labels:     driverLabels(s.version, "Holdfast CSI driver, node"),
	}, nil
}

// blockDriverEntry is the driver that is not ours, which test/e2e/foreign installs.
var blockDriverEntry = entry{
	"block-driver", "for tests: block.example.com, a CSI driver that is not ours, to stand before ours",
	fixed("localhost/e2e-block-driver:test"), blockDriverImage, true,
}

func blockDriverImage(ctx context.Context, s *source) (image.Image, error) {
	binary, err := s.goBinary(ctx, "./test/e2e/foreign/driver", "")
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Files:      []image.File{{Path: "/driver", Mode: 0o755, Source: binary}},
		Entrypoint: []string{"/driver"},
	}, nil
}

func pauseImage(ctx context.Context, s *source) (image.Image, error) {
	pause, err := s.goBinary(ctx, "./internal/image/pause", "")
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Files:      []image.File{{Path: "/pause", Mode: 0o755, Source: pause}},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535", // as in the registry's image
	}, nil
}

func busyboxImage(ctx context.Context, s *source) (image.Image, error) {
	busybox, applets, err := s.busybox(ctx)
	if err != nil {
		return image.Image{}, err
	}
	files := []image.File{
		{Path: "/bin/busybox", Mode: 0o755, Source: busybox},
		{Path: "/etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
		{Path: "/etc/group", Mode: 0o644, Content: []byte("root:x:0:\nnobody:x:65534:\n")},
		{Path: "/root", Mode: fs.ModeDir | 0o700},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	for _, applet := range applets {
		if applet != "busybox" {
			files = append(files, image.File{Path: "/bin/" + applet, Link: "busybox"})
		}
	}
	return image.Image{
		Files: files,
		Cmd:   []string{"sh"},
		Env:   []string{searchPath},
	}, nil
}
