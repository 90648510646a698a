package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/elfdeps"
	"github.com/holdfast-dev/holdfast/internal/image"
)

// tool is a program of this machine, or a file that one reads, and the Debian
// package that brings it.
type tool struct {
	name, debian string
	kind         toolKind
}

type toolKind int

const (
	program toolKind = iota // an ELF program, taken with its libraries
	script                  // a shell script; its shell is a program of its own
	data                    // a file at that absolute path
)

// nodeTools is what the node service and k8s.io/mount-utils v0.37 run: format,
// check (fsck picks fsck.<type> by itself), probe, mount, grow, and blockdev
// for the read-only bit of a device; and the repair tools for the hand of
// whoever must mend a file system that fsck -a refuses. The shell is there for
// fsck.xfs alone, which is a script.
var nodeTools = []tool{
	{name: "mkfs.ext3", debian: "e2fsprogs"},
	{name: "mkfs.ext4", debian: "e2fsprogs"},
	{name: "fsck.ext3", debian: "e2fsprogs"},
	{name: "fsck.ext4", debian: "e2fsprogs"},
	{name: "e2fsck", debian: "e2fsprogs"},
	{name: "resize2fs", debian: "e2fsprogs"},
	// Without it mke2fs knows no file system types and lays them out otherwise.
	{name: "/etc/mke2fs.conf", debian: "e2fsprogs", kind: data},
	{name: "mkfs.xfs", debian: "xfsprogs"},
	{name: "xfs_repair", debian: "xfsprogs"},
	{name: "xfs_growfs", debian: "xfsprogs"},
	{name: "fsck.xfs", debian: "xfsprogs", kind: script},
	{name: "fsck", debian: "util-linux"},
	{name: "blkid", debian: "util-linux"},
	{name: "blockdev", debian: "util-linux"},
	{name: "mount", debian: "mount"},
	{name: "umount", debian: "mount"},
	{name: "dash", debian: "dash"},
}

// programDirs is where tools are looked for: the distribution's folders, and
// never a PATH that differs from user to user. /usr comes first so that a
// merged and a split /usr give the same image.
var programDirs = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// toolFiles returns the tools with the libraries of the programs among them.
func (s *source) toolFiles(tools []tool) ([]image.File, error) {
	var files []image.File
	var programs []string
	var missing missingTools
	for _, t := range tools {
		path, found := t.find(s.programDirs)
		switch {
		case !found:
			missing = append(missing, t)
		case t.kind == program:
			programs = append(programs, path)
		case t.kind == script:
			files = append(files, image.File{Path: path, Mode: 0o755, Source: path})
		default:
			files = append(files, image.File{Path: path, Mode: 0o644, Source: path})
		}
	}
	if len(missing) > 0 {
		return nil, missing
	}
	closure, err := elfdeps.Closure(programs...)
	if err != nil {
		return nil, fmt.Errorf("libraries of the node's tools: %w", err)
	}
	return append(files, programFiles(closure)...), nil
}

// find returns the path at which the tool is on this machine and in the image.
func (t tool) find(dirs []string) (string, bool) {
	candidates := []string{t.name}
	if t.kind != data {
		candidates = nil
		for _, dir := range dirs {
			candidates = append(candidates, filepath.Join(dir, t.name))
		}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}

// programFiles turns a closure (path in the image → file here) into entries.
// One program of several names (mke2fs, e2fsck) is stored once and linked, and
// /bin/sh is dash.
func programFiles(closure map[string]string) []image.File {
	var files []image.File
	first := map[string]string{} // file here → its first path in the image
	for _, path := range slices.Sorted(maps.Keys(closure)) {
		here := closure[path]
		if stored, again := first[here]; again {
			files = append(files, image.File{Path: path, Link: stored})
			continue
		}
		first[here] = path
		files = append(files, image.File{Path: path, Mode: 0o755, Source: here})
		if filepath.Base(path) == "dash" {
			files = append(files, image.File{Path: "/bin/sh", Link: path})
		}
	}
	return files
}

// missingTools says in one sentence what is missing and how to get it.
type missingTools []tool

func (m missingTools) Error() string {
	var names, packages []string
	for _, t := range m {
		names = append(names, t.name)
		packages = append(packages, t.debian)
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	return fmt.Sprintf("missing on this machine: %s; install with: apt-get install %s",
		strings.Join(names, " "), strings.Join(packages, " "))
}

// caCertificates returns the machine's bundle of certificate authorities.
func (s *source) caCertificates() (string, error) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	if _, err := os.Stat(bundle); errors.Is(err, fs.ErrNotExist) {
		return "", missingTools{{name: bundle, debian: "ca-certificates", kind: data}}
	} else if err != nil {
		return "", fmt.Errorf("CA certificates: %w", err)
	}
	return bundle, nil
}
