package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
)

// record is what a sandbox writes down about itself, for Open.
type record struct {
	Name    string    `json:"name"`
	Dir     string    `json:"dir"`
	Created time.Time `json:"created"`
	Nodes   []Node    `json:"nodes"`
	// APIPort and EC2Port are on 127.0.0.1 of the machine.
	APIPort          int           `json:"apiPort"`
	EC2Port          int           `json:"ec2Port"`
	Binaries         string        `json:"binaries"`
	ControllerPolicy string        `json:"controllerPolicy,omitempty"`
	Cgroups          cgroup.Layout `json:"cgroups"`
}

// save writes the record in one step: a reader sees the old one or the new one.
func (r record) save() error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record sandbox %s: %w", r.Name, err)
	}
	path := paths{r.Dir}.record()
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return fmt.Errorf("record sandbox %s: %w", r.Name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record sandbox %s: %w", r.Name, err)
	}
	return nil
}

// ErrNotFound says that there is no sandbox of that name.
var ErrNotFound = errors.New("no such sandbox")

func loadRecord(dir string) (record, error) {
	var r record
	raw, err := os.ReadFile(paths{dir}.record())
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w in %s", ErrNotFound, dir)
	}
	if err != nil {
		return r, fmt.Errorf("read about the sandbox in %s: %w", dir, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read about the sandbox in %s: %w", dir, err)
	}
	return r, nil
}

// isOurs says whether a folder may be used, and deleted, as a sandbox's: it is
// empty, or it has the record that is written before anything else, or, if that was
// lost, what the first process of a sandbox in this folder was told.
func isOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into folder %s: %w; choose another one", dir, err)
	}
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(paths{dir}.record()) || e.Name() == filepath.Base(paths{dir}.record())+".new" {
			return nil
		}
	}
	if spec, err := machine.ReadSpec(paths{dir}.spec(topName)); err == nil && sameFolder(spec.State, dir) {
		return nil
	}
	return fmt.Errorf("folder %s holds files but no sandbox: choose an empty one, or one that does not exist", dir)
}
