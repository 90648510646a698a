package toolchain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// crdMarker is there once all definitions are.
const crdMarker = "crd/.complete"

// CRDs is the folder with the VolumeSnapshot definitions, given the one that
// Build returned.
func CRDs(dir string) string { return filepath.Join(dir, "crd") }

// copyCRDs takes the definitions out of the module that ships them.
func (o *Options) copyCRDs(ctx context.Context, dir string) error {
	pin := filepath.Join(o.Root, "sandbox", crdPin)
	if _, err := o.goTool(ctx, pin, "mod", "download", crdModule); err != nil {
		return fmt.Errorf("get the VolumeSnapshot definitions: %w", err)
	}
	out, err := o.goTool(ctx, pin, "list", "-m", "-f", "{{.Dir}}", crdModule)
	if err != nil {
		return fmt.Errorf("find the VolumeSnapshot definitions: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(out), filepath.FromSlash(crdFolder))
	files, err := filepath.Glob(filepath.Join(source, "*storage.k8s.io_*.yaml"))
	if err != nil {
		return fmt.Errorf("find the VolumeSnapshot definitions: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("no definitions in %s", source)
	}
	if err := os.MkdirAll(CRDs(dir), 0o755); err != nil {
		return fmt.Errorf("copy the VolumeSnapshot definitions: %w", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("copy the VolumeSnapshot definitions: %w", err)
		}
		if err := os.WriteFile(filepath.Join(CRDs(dir), filepath.Base(f)), raw, 0o644); err != nil {
			return fmt.Errorf("copy the VolumeSnapshot definitions: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(dir, crdMarker), nil, 0o644)
}
