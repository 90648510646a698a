package sandbox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// packImage packs a static program as the only file of an image, in the
// form that `docker save` writes and `ctr images import` reads.
func packImage(program, image, target string) error {
	raw, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("pack an image: %w", err)
	}
	name := filepath.Base(program)
	layer, err := tarOf(tarFile{name: name, mode: 0o755, data: raw})
	if err != nil {
		return fmt.Errorf("pack an image: %w", err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/" + name}, "User": "65535:65535"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hexSum(layer)}},
	})
	if err != nil {
		return fmt.Errorf("pack an image: %w", err)
	}
	configName := hexSum(config) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{image}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("pack an image: %w", err)
	}
	archive, err := tarOf(
		tarFile{name: configName, mode: 0o644, data: config},
		tarFile{name: "manifest.json", mode: 0o644, data: manifest},
		tarFile{name: "layer.tar", mode: 0o644, data: layer})
	if err != nil {
		return fmt.Errorf("pack an image: %w", err)
	}
	if err := os.WriteFile(target, archive, 0o644); err != nil {
		return fmt.Errorf("write an image: %w", err)
	}
	return nil
}

type tarFile struct {
	name string
	mode int64
	data []byte
}

func tarOf(files ...tarFile) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
