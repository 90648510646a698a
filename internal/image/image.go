package image

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Image says what an image is called, what it holds and what it runs.
type Image struct {
	// Ref is the full reference with its tag, "registry.k8s.io/pause:3.10".
	Ref string
	// Files is the content; missing parent folders are made (0755).
	Files []File
	// Entrypoint and Cmd are what runs, as in a Dockerfile.
	Entrypoint, Cmd []string
	// StopSignal ends what runs, "SIGINT"; empty means SIGTERM.
	StopSignal string
	// User is "uid:gid"; empty means root.
	User string
	// Env holds "NAME=value" entries.
	Env []string
	// Labels are the image's OCI annotations.
	Labels map[string]string
}

// File is one entry of an image. Exactly one of Source, Content and Link says
// what it is, unless Mode is a folder's.
type File struct {
	// Path is absolute, in the image.
	Path string
	// Mode holds the permission bits, and fs.ModeDir for a folder.
	// The set-user-id bit of a source is never taken over.
	Mode fs.FileMode
	// Source is a regular file on this machine.
	Source string
	// Content is the content itself.
	Content []byte
	// Link is the target of a symbolic link.
	Link string
}

// entries returns the files sorted by path with every parent folder made
// explicit, which is the order in which they are written.
func (i Image) entries() ([]File, error) {
	byPath := map[string]File{}
	for _, f := range i.Files {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Ref, err)
		}
		if _, twice := byPath[f.Path]; twice {
			return nil, fmt.Errorf("image %s: %s is listed twice", i.Ref, f.Path)
		}
		byPath[f.Path] = f
	}
	for _, f := range i.Files {
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			parent, there := byPath[dir]
			if !there {
				byPath[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			} else if !parent.Mode.IsDir() {
				return nil, fmt.Errorf("image %s: %s is no folder, but %s is to be in it", i.Ref, dir, f.Path)
			}
		}
	}
	files := make([]File, 0, len(byPath))
	for _, f := range byPath {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// check refuses an entry that does not say exactly one thing.
func (f File) check() error {
	if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
		return fmt.Errorf("path %q of an entry is not a clean absolute path", f.Path)
	}
	said := 0
	for _, is := range []bool{f.Source != "", f.Content != nil, f.Link != "", f.Mode.IsDir()} {
		if is {
			said++
		}
	}
	if said != 1 {
		return errors.New(f.Path + ": say exactly one of source, content, link and folder")
	}
	return nil
}
