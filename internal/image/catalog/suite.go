package catalog

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/image"
)

// suiteEntries are stand-ins for the images that the storage specs of Kubernetes'
// end-to-end suite run, under the names that `e2e.test --list-images` of the
// version pinned in sandbox/e2e prints. What the specs do with each was read in
// k8s.io/kubernetes/test/e2e/storage.
func suiteEntries() []entry {
	const registry = "registry.k8s.io/"
	const images = registry + "e2e-test-images/"
	return []entry{
		{"e2e-agnhost", "for Kubernetes' e2e suite: agnhost, which mounts, serves and enters nodes", fixed(images + "agnhost:2.66.1"), agnhostImage, true},
		{"e2e-busybox", "for Kubernetes' e2e suite: busybox", fixed(images + "busybox:1.37.0-2"), busyboxImage, true},
		{"e2e-nginx", "for Kubernetes' e2e suite: stand-in for nginx, of which it uses the shell", fixed(images + "nginx:1.27.0-2"), busyboxImage, true},
		{"e2e-glibc", "for Kubernetes' e2e suite: stand-in for glibc-dns-testing, of which it uses dd", fixed(images + "glibc-dns-testing:2.1.1"), glibcImage, true},
		{"e2e-pause", "for Kubernetes' e2e suite: pause", fixed(registry + "pause:3.10.2"), pauseImage, true},
	}
}

// SuiteNames are the short names of the images that Kubernetes' suite runs.
func SuiteNames() []string {
	var names []string
	for _, e := range suiteEntries() {
		names = append(names, e.name)
	}
	return names
}

// agnhostImage is busybox with agnhost: besides agnhost's own commands the specs
// run a shell, and nsenter to look at a node.
func agnhostImage(ctx context.Context, s *source) (image.Image, error) {
	agnhost, err := s.suiteBinary(ctx, "agnhost")
	if err != nil {
		return image.Image{}, err
	}
	img, err := busyboxImage(ctx, s)
	if err != nil {
		return image.Image{}, err
	}
	img.Files = append(img.Files, image.File{Path: "/agnhost", Mode: 0o755, Source: agnhost})
	img.Entrypoint, img.Cmd = []string{"/agnhost"}, []string{"pause"}
	return img, nil
}

// glibcTools are what the specs want GNU's for: dd around the page cache
// (oflag=nocache), which busybox does not know. The shell is not busybox's, which
// would run its own dd.
var glibcTools = []tool{{name: "dd", debian: "coreutils"}, {name: "dash", debian: "dash"}}

func glibcImage(ctx context.Context, s *source) (image.Image, error) {
	img, err := busyboxImage(ctx, s)
	if err != nil {
		return image.Image{}, err
	}
	tools, err := s.toolFiles(glibcTools)
	if err != nil {
		return image.Image{}, err
	}
	for _, f := range img.Files {
		if f.Path != "/bin/sh" && f.Path != "/bin/dd" {
			tools = append(tools, f)
		}
	}
	img.Files = tools
	return img, nil
}
