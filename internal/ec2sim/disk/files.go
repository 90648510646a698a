//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Files keeps volumes and snapshots in a folder. Methods may be called from
// several goroutines, for one volume from one at a time.
type Files struct {
	dir string
	// machineDev is the machine's own /dev, with all loop devices.
	machineDev string
	// patience is for how long a snapshot's copy is made anew because the
	// volume was written to meanwhile.
	patience time.Duration
	// loops guards the making and clearing of loop devices.
	loops sync.Mutex
}

// New keeps content below dir, which it makes. Loop devices are opened in the
// /dev that this process sees.
func New(dir string) (*Files, error) {
	f := &Files{dir: dir, machineDev: "/dev", patience: 5 * time.Second}
	for _, d := range []string{f.path("volumes"), f.path("snapshots")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("folder of disks: %w", err)
		}
	}
	return f, nil
}

func (f *Files) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

func (f *Files) volumePath(id string) string   { return f.path("volumes", id+suffix) }
func (f *Files) snapshotPath(id string) string { return f.path("snapshots", id+suffix) }

const suffix = ".img"

// CreateVolume makes a sparse file, with the content of a snapshot if one is named.
func (f *Files) CreateVolume(volumeID, snapshotID string, size int64) error {
	path := f.volumePath(volumeID)
	if snapshotID != "" {
		if err := copyFile(f.snapshotPath(snapshotID), path); err != nil {
			return fmt.Errorf("volume %s from %s: %w", volumeID, snapshotID, err)
		}
		if err := os.Truncate(path, size); err != nil {
			return errors.Join(fmt.Errorf("volume %s: %w", volumeID, err), os.Remove(path))
		}
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("volume %s: %w", volumeID, err)
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("volume %s of %d bytes: %w", volumeID, size, err), os.Remove(path))
	}
	return nil
}

// Grow makes the file larger and tells the loop devices on it.
func (f *Files) Grow(volumeID string, size int64) error {
	path := f.volumePath(volumeID)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("grow %s: %w", volumeID, err)
	}
	if info.Size() < size {
		if err := os.Truncate(path, size); err != nil {
			return fmt.Errorf("grow %s: %w", volumeID, err)
		}
	}
	f.loops.Lock()
	defer f.loops.Unlock()
	loops, err := f.loopsOn(path)
	if err != nil {
		return fmt.Errorf("grow %s: %w", volumeID, err)
	}
	for _, l := range loops {
		if err := f.readCapacity(l); err != nil {
			return fmt.Errorf("grow %s: %w", volumeID, err)
		}
	}
	return nil
}

// DeleteVolume removes the file.
func (f *Files) DeleteVolume(volumeID string) error { return remove(f.volumePath(volumeID)) }

// CreateSnapshot copies what has reached the volume. What an instance still
// holds in its own cache has not, as with EBS: it has to be synced first.
func (f *Files) CreateSnapshot(volumeID, snapshotID string) error {
	if err := copyStill(f.volumePath(volumeID), f.snapshotPath(snapshotID), f.patience); err != nil {
		return fmt.Errorf("snapshot %s of %s: %w", snapshotID, volumeID, err)
	}
	return nil
}

// DeleteSnapshot removes the file.
func (f *Files) DeleteSnapshot(snapshotID string) error { return remove(f.snapshotPath(snapshotID)) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Reconcile brings files and devices to what the records say.
func (f *Files) Reconcile(volumes map[string][]string, snapshots []string) error {
	keep := map[string]bool{}
	for id := range volumes {
		keep[f.volumePath(id)] = true
	}
	for _, id := range snapshots {
		keep[f.snapshotPath(id)] = true
	}
	for path := range keep {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("a recorded disk has lost its content: %w", err)
		}
	}
	var errs []error
	for id, devDirs := range volumes {
		for _, dev := range devDirs {
			errs = append(errs, f.Attach(id, dev))
		}
		errs = append(errs, f.clearStrays(id, devDirs))
	}
	for _, kind := range []string{"volumes", "snapshots"} {
		entries, err := os.ReadDir(f.path(kind))
		errs = append(errs, err)
		for _, e := range entries {
			path := f.path(kind, e.Name())
			if strings.HasSuffix(path, suffix) && !keep[path] {
				errs = append(errs, f.discard(path))
			}
		}
	}
	return errors.Join(errs...)
}

// discard removes a file that no record knows, and the loop devices on it.
func (f *Files) discard(path string) error {
	f.loops.Lock()
	defer f.loops.Unlock()
	loops, err := f.loopsOn(path)
	if err != nil {
		return err
	}
	for _, l := range loops {
		if err := f.clear(l); err != nil {
			return err
		}
	}
	return remove(path)
}
