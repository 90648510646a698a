package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// epoch is the modification time of every entry and of the image.
var epoch = time.Unix(0, 0).UTC()

// layerTar returns the files as an uncompressed tar. Uncompressed, because the
// images are loaded on the machine that made them: compressing costs seconds
// and saves nothing there.
func layerTar(files []File) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		if err := writeEntry(w, f); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("close the layer: %w", err)
	}
	return buf.Bytes(), nil
}

// writeEntry writes one file, link or folder, owned by root.
func writeEntry(w *tar.Writer, f File) error {
	h := &tar.Header{
		Name:    strings.TrimPrefix(f.Path, "/"),
		Mode:    int64(f.Mode.Perm()),
		ModTime: epoch,
		Format:  tar.FormatPAX,
	}
	if f.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return w.WriteHeader(h)
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		return w.WriteHeader(h)
	}
	content, size, err := f.open()
	if err != nil {
		return err
	}
	defer content.Close()
	h.Typeflag, h.Size = tar.TypeReg, size
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// open returns the content of a regular file and its length.
func (f File) open() (io.ReadCloser, int64, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Content)), int64(len(f.Content)), nil
	}
	file, err := os.Open(f.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		file.Close()
		return nil, 0, fmt.Errorf("%s is no regular file", f.Source)
	}
	return file, info.Size(), nil
}

// inputs returns a digest of everything that decides an image's bytes.
func inputs(i Image, files []File) (string, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	head := i
	head.Files = nil
	if err := enc.Encode([]any{formatVersion, head}); err != nil {
		return "", err
	}
	for _, f := range files {
		sum := ""
		if f.Link == "" && !f.Mode.IsDir() {
			var err error
			if sum, err = contentSum(f); err != nil {
				return "", fmt.Errorf("image %s: read %s: %w", i.Ref, f.Path, err)
			}
		}
		if err := enc.Encode([]any{f.Path, f.Mode, f.Link, sum}); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func contentSum(f File) (string, error) {
	content, _, err := f.open()
	if err != nil {
		return "", err
	}
	defer content.Close()
	h := sha256.New()
	if _, err := io.Copy(h, content); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
