// Package debian takes files out of the distribution's packages without
// installing them: what a package starts, adds or asks on installation does not
// happen. apt chooses the versions and checks signatures, by the machine's own
// lists. It is for Debian and Ubuntu.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Package is one package in the version that apt would take now.
type Package struct {
	// Name as apt knows it, File the name of its file, which has the version.
	Name, File string
}

// Closure lists a package and all that it depends on, as for a machine that
// has none of it.
func Closure(ctx context.Context, name string) ([]Package, error) {
	out, err := output(ctx, "", "apt-get", "install", "--print-uris", "-qq", "--no-install-recommends",
		"-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1", name)
	if err != nil {
		return nil, fmt.Errorf("look up package %s (run apt-get update): %w", name, err)
	}
	return parseURIs(out)
}

// parseURIs reads lines such as
//
//	'http://deb.debian.org/…/libpq5_15.20-0%2bdeb12u1_amd64.deb' libpq5_15.20-0+deb12u1_amd64.deb 205248 SHA256:…
func parseURIs(out string) ([]Package, error) {
	var all []Package
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(line, "'") {
			continue
		}
		name, _, ok := strings.Cut(fields[1], "_")
		if !ok {
			return nil, fmt.Errorf("apt-get names a file that is no package's: %q", line)
		}
		all = append(all, Package{Name: name, File: fields[1]})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("apt-get names no package: %q", out)
	}
	return all, nil
}

// Unpack fetches packages and unpacks them together into the folder dir, whole
// or not at all. A folder that is there is taken for the outcome of an earlier
// call: name it after the versions.
func Unpack(ctx context.Context, dir string, names ...string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, err := output(ctx, tmp, "apt-get", append([]string{"download", "-o", "APT::Sandbox::User=root"}, names...)...); err != nil {
		return fmt.Errorf("fetch %s: %w", strings.Join(names, " "), err)
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != len(names) {
		return fmt.Errorf("fetch %d packages: apt-get brought %d files: %v", len(names), len(files), files)
	}
	root := filepath.Join(tmp, "root")
	for _, file := range files {
		if _, err := output(ctx, tmp, "dpkg-deb", "-x", file, root); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
	}
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another process may have been faster
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
