package testvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Kernel is a kernel image and its modules.
type Kernel struct {
	Image   string // a file
	Modules string // the folder lib/modules/<version>
}

// kernelPackage always depends on the newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// FindKernel returns the kernel that the environment names, else the
// distribution's own, which it fetches into the cache folder once.
func FindKernel(ctx context.Context, cache string) (Kernel, error) {
	if image, modules := os.Getenv("HOLDFAST_VM_KERNEL"), os.Getenv("HOLDFAST_VM_MODULES"); image != "" {
		if modules == "" {
			return Kernel{}, errors.New("HOLDFAST_VM_KERNEL is set and HOLDFAST_VM_MODULES is not: name the kernel's lib/modules/<version> folder")
		}
		return Kernel{Image: image, Modules: modules}, nil
	}
	if runtime.GOARCH != "amd64" {
		return Kernel{}, fmt.Errorf("test machines are amd64 only, this is %s", runtime.GOARCH)
	}
	pkg, err := newestKernel(ctx)
	if err != nil {
		return Kernel{}, err
	}
	dir := filepath.Join(cache, "vm", pkg)
	if k, err := kernelIn(dir); err == nil {
		return k, nil
	}
	if err := fetchKernel(ctx, pkg, dir); err != nil {
		return Kernel{}, err
	}
	return kernelIn(dir)
}

// newestKernel asks the package lists for the name of the newest kernel package.
func newestKernel(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "apt-cache", "depends", kernelPackage)
	if err != nil {
		return "", fmt.Errorf("look up %s (run apt-get update, or set HOLDFAST_VM_KERNEL): %w", kernelPackage, err)
	}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if key == "Depends" && strings.HasPrefix(value, "linux-image-") {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s depends on no kernel: %q", kernelPackage, out)
}

// fetchKernel unpacks a kernel package into dir, whole or not at all.
func fetchKernel(ctx context.Context, pkg, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, err := output(ctx, tmp, "apt-get", "download", "-o", "APT::Sandbox::User=root", pkg); err != nil {
		return fmt.Errorf("fetch %s: %w", pkg, err)
	}
	packages, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	if len(packages) != 1 {
		return fmt.Errorf("fetch %s: want one package file in %s, got %v", pkg, tmp, packages)
	}
	root := filepath.Join(tmp, "root")
	if _, err := output(ctx, tmp, "dpkg", "-x", packages[0], root); err != nil {
		return fmt.Errorf("unpack %s: %w", pkg, err)
	}
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, os.ErrExist) {
		if _, there := kernelIn(dir); there == nil {
			return nil // another process was faster
		}
		return err
	}
	return nil
}

// kernelIn finds the kernel in an unpacked package.
func kernelIn(dir string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("want one kernel in %s/boot, got %v", dir, images)
	}
	version := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		modules := filepath.Join(dir, lib, "modules", version)
		if _, err := os.Stat(modules); err == nil {
			return Kernel{Image: images[0], Modules: modules}, nil
		}
	}
	return Kernel{}, fmt.Errorf("no modules of %s in %s", version, dir)
}

// CacheDir is where fetched kernels are kept: $HOLDFAST_CACHE, else holdfast in
// the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("HOLDFAST_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder, set HOLDFAST_CACHE: %w", err)
	}
	return filepath.Join(dir, "holdfast"), nil
}

// output runs a program and returns what it prints; its complaints are in the error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
