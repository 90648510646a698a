package image

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Unpack writes the image's files below dir, as the Dockerfile copies them
// into a scratch image. It never follows links of what is there already: dir
// must not exist or be empty.
func Unpack(dir string, i Image) error {
	files, err := i.entries()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("image %s: %w", i.Ref, err)
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Ref, err)
	}
	if len(there) > 0 {
		return fmt.Errorf("image %s: folder %s is not empty", i.Ref, dir)
	}
	for _, f := range files {
		if err := unpackEntry(filepath.Join(dir, f.Path), f); err != nil {
			return fmt.Errorf("image %s: unpack %s: %w", i.Ref, f.Path, err)
		}
	}
	return nil
}

func unpackEntry(path string, f File) error {
	switch {
	case f.Mode.IsDir():
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		return os.Chmod(path, f.Mode)
	case f.Link != "":
		return os.Symlink(f.Link, path)
	}
	content, _, err := f.open()
	if err != nil {
		return err
	}
	defer content.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode.Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, content); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Chmod(path, f.Mode.Perm()) // the umask may have narrowed it
}
