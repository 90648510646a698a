//go:build linux

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// pauseLimit is how long processes may take to stand still: one that waits
	// for its disk stops when that has answered.
	pauseLimit = 5 * time.Second
	pauseEvery = 2 * time.Millisecond
	// unpaused is how long a copy is tried before anything is paused for it.
	unpaused = 200 * time.Millisecond
)

// Pause has copies of a volume that is written to without a rest made while all
// processes of these cgroups stand still. The folders are of cgroup v2's
// hierarchy, which can do that beside v1 as well; one that is not there has no
// processes. Nothing is flushed: the copy has what had reached the volume, as
// if the instance had lost its power.
//
// What a killed predecessor has left standing goes on at once.
func (f *Files) Pause(groups []string) error {
	f.groups = groups
	return f.resume()
}

// copyStill copies files as they are together at one point in time. After an
// error there is no copy.
func (f *Files) copyStill(files []copied) error {
	patience := f.patience
	if len(f.groups) > 0 {
		patience = unpaused
	}
	err := copyAtRest(files, patience)
	if errors.Is(err, errRestless) && len(f.groups) > 0 {
		err = f.copyPaused(files)
	}
	if err != nil {
		for _, c := range files {
			err = errors.Join(err, remove(c.to))
		}
	}
	return err
}

// copyPaused copies files while nothing in the groups moves. The kernel may
// still write out what it holds for them, so they have to come to rest.
func (f *Files) copyPaused(files []copied) error {
	f.pausing.Lock()
	defer f.pausing.Unlock()
	err := f.pause()
	if err == nil {
		err = copyAtRest(files, f.patience)
	}
	return errors.Join(err, f.resume())
}

// pause returns when every process of the groups stands still.
func (f *Files) pause() error {
	if err := f.setFrozen("1"); err != nil {
		return err
	}
	tick := time.NewTicker(pauseEvery)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		moving, err := f.moving()
		if err != nil || moving == "" {
			return err
		}
		if time.Since(begin) > pauseLimit {
			return fmt.Errorf("processes of %s do not stand still after %s", moving, pauseLimit)
		}
	}
}

func (f *Files) resume() error { return f.setFrozen("0") }

// setFrozen writes each group's switch
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, "cgroup.freeze").
func (f *Files) setFrozen(value string) error {
	var errs []error
	for _, g := range f.groups {
		file, err := os.OpenFile(filepath.Join(g, "cgroup.freeze"), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = file.WriteString(value)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pause or resume the processes of %s: %w", g, err))
		}
	}
	return errors.Join(errs...)
}

// moving is a group that does not stand still yet, "" if there is none.
func (f *Files) moving() (string, error) {
	for _, g := range f.groups {
		events, err := os.ReadFile(filepath.Join(g, "cgroup.events"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look whether the processes of %s stand still: %w", g, err)
		}
		if !bytes.Contains(events, []byte("frozen 1")) {
			return g, nil
		}
	}
	return "", nil
}
