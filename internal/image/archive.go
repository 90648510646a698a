package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// formatVersion changes when the same inputs are to give other bytes.
const formatVersion = 1

// Build writes the image to the docker-archive tar at path, unless the tar
// there was made from the same inputs. Beside the tar it keeps their digest in
// a file with the suffix ".inputs". Both appear by renaming, the digest last,
// so that an interrupted Build is repeated and never trusted.
func Build(path string, i Image) (rebuilt bool, err error) {
	files, err := i.entries()
	if err != nil {
		return false, err
	}
	want, err := inputs(i, files)
	if err != nil {
		return false, err
	}
	if upToDate(path, want) {
		return false, nil
	}
	if err := os.Remove(inputsPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("image %s: %w", i.Ref, err)
	}
	img, err := assemble(i, files)
	if err != nil {
		return false, fmt.Errorf("image %s: %w", i.Ref, err)
	}
	ref, err := name.NewTag(i.Ref, name.StrictValidation)
	if err != nil {
		return false, fmt.Errorf("image %s: %w", i.Ref, err)
	}
	write := func(w io.Writer) error { return tarball.Write(ref, img, w) }
	if err := writeFile(path, write); err != nil {
		return false, fmt.Errorf("image %s: %w", i.Ref, err)
	}
	write = func(w io.Writer) error { _, err := io.WriteString(w, want+"\n"); return err }
	if err := writeFile(inputsPath(path), write); err != nil {
		return false, fmt.Errorf("image %s: %w", i.Ref, err)
	}
	return true, nil
}

func inputsPath(path string) string { return path + ".inputs" }

// upToDate tells whether the tar is there and was made from these inputs.
func upToDate(path, want string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	have, err := os.ReadFile(inputsPath(path))
	return err == nil && strings.TrimSpace(string(have)) == want
}

// assemble makes the image of one layer.
func assemble(i Image, files []File) (v1.Image, error) {
	content, err := layerTar(files)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(content, types.DockerUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", runtime.GOARCH, v1.Time{Time: epoch}
	config.Config = v1.Config{Entrypoint: i.Entrypoint, Cmd: i.Cmd, StopSignal: i.StopSignal, User: i.User, Env: i.Env, Labels: i.Labels}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return img, nil
}

// writeFile writes beside path and renames, so that path is whole or absent.
func writeFile(path string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	if err := errors.Join(tmp.Chmod(0o644), write(tmp), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}
