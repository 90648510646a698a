//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	// groups are the cgroups to pause for a copy, pausing is held meanwhile.
	groups  []string
	pausing sync.Mutex
}

// New keeps content below dir, which it makes. Loop devices are opened in the
// /dev that this process sees.
func New(dir string) (*Files, error) {
	f := &Files{dir: dir, machineDev: "/dev", patience: 5 * time.Second}
	for kind := range kinds {
		if err := os.MkdirAll(f.path(kind), 0o755); err != nil {
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

// CopyVolume makes a file with what has reached another volume, zeros behind it.
func (f *Files) CopyVolume(sourceID, volumeID string, size int64) error {
	path := f.volumePath(volumeID)
	if err := f.copyStill([]copied{{f.volumePath(sourceID), path}}); err != nil {
		return fmt.Errorf("volume %s from %s: %w", volumeID, sourceID, err)
	}
	if err := os.Truncate(path, size); err != nil {
		return errors.Join(fmt.Errorf("volume %s: %w", volumeID, err), os.Remove(path))
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

// DeleteVolume removes the file and frees the loop devices on it. While somebody
// holds such a device open the file stays, with ErrBound: only by its file can
// the device be told from those of others, now and when all is cleared away.
func (f *Files) DeleteVolume(volumeID string) error {
	if err := f.discard(f.volumePath(volumeID)); err != nil {
		return fmt.Errorf("delete %s: %w", volumeID, err)
	}
	return nil
}

// CreateSnapshots copies what has reached the volumes, given by the id of the
// snapshot that each becomes. What an instance still holds in its own cache has
// not, as with EBS: it has to be synced first.
func (f *Files) CreateSnapshots(volumeOf map[string]string) error {
	var files []copied
	for snapshotID, volumeID := range volumeOf {
		files = append(files, copied{f.volumePath(volumeID), f.snapshotPath(snapshotID)})
	}
	if err := f.copyStill(files); err != nil {
		return fmt.Errorf("snapshots of volumes %v: %w", slices.Sorted(maps.Values(volumeOf)), err)
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

// kinds are the folders of content and the names that the simulator gives to
// the files in them; it makes ids as EC2 does.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
var kinds = map[string]*regexp.Regexp{
	"volumes":   regexp.MustCompile(`^vol-[0-9a-f]{17}\.img$`),
	"snapshots": regexp.MustCompile(`^snap-[0-9a-f]{17}\.img$`),
}

// Vacant fails where the folder holds images, whatever their names are.
func (f *Files) Vacant() error {
	for kind := range kinds {
		entries, err := os.ReadDir(f.path(kind))
		if err != nil {
			return fmt.Errorf("folder of disks: %w", err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) {
				return fmt.Errorf("%s is there, of which nothing tells whose it is: choose another folder, move it away, or bring the records back",
					f.path(kind, e.Name()))
			}
		}
	}
	return nil
}

// Reconcile brings files and devices to what the records say. A file without
// record goes if its name is one that the simulator gives; others are not ours.
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
	for kind, ours := range kinds {
		entries, err := os.ReadDir(f.path(kind))
		errs = append(errs, err)
		for _, e := range entries {
			path := f.path(kind, e.Name())
			if ours.MatchString(e.Name()) && !keep[path] {
				if err := f.discard(path); !errors.Is(err, ErrBound) { // the next start tries again
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// ErrBound says that a file is still behind a loop device. It can be removed when
// the last user of the device has closed it.
var ErrBound = errors.New("a loop device is still bound to the file")

// discard removes a file and the loop devices on it.
func (f *Files) discard(path string) error {
	f.loops.Lock()
	defer f.loops.Unlock()
	loops, err := f.loopsOn(path)
	if err != nil {
		return err
	}
	for _, l := range loops {
		if err := f.clearStack(l); err != nil {
			return err
		}
	}
	if loops, err = f.loopsOn(path); err != nil {
		return err
	}
	if len(loops) > 0 {
		return fmt.Errorf("%w: /dev/%s on %s: unmount or close it", ErrBound, loopName(loops[0]), path)
	}
	return remove(path)
}
