//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// linkName is the name that udev gives an EBS volume on a Nitro instance: its
// serial is the volume id without the dash.
// https://docs.aws.amazon.com/ebs/latest/userguide/nvme-ebs-volumes.html
func linkName(volumeID string) string {
	return "nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(volumeID, "-", "")
}

func linkPath(devDir, volumeID string) string {
	return filepath.Join(devDir, "disk", "by-id", linkName(volumeID))
}

// Attach shows the volume in devDir. If it is shown there already nothing
// changes, but a node or link that is missing comes back.
func (f *Files) Attach(volumeID, devDir string) error {
	f.loops.Lock()
	defer f.loops.Unlock()
	path := f.volumePath(volumeID)
	n, ok, err := f.shown(volumeID, devDir)
	if err != nil {
		return fmt.Errorf("attach %s: %w", volumeID, err)
	}
	if !ok {
		if n, err = f.makeLoop(path); err != nil {
			return fmt.Errorf("attach %s: %w", volumeID, err)
		}
	}
	if err := show(devDir, volumeID, n); err != nil {
		if !ok {
			err = errors.Join(err, f.clear(n))
		}
		return fmt.Errorf("attach %s: %w", volumeID, err)
	}
	return nil
}

// shown is the loop device that devDir shows for the volume, if it is really
// one on the volume's file.
func (f *Files) shown(volumeID, devDir string) (int, bool, error) {
	target, err := os.Readlink(linkPath(devDir, volumeID))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(target), "loop"))
	if err != nil {
		return 0, false, fmt.Errorf("%s points at %s, which is no loop device", linkPath(devDir, volumeID), target)
	}
	loops, err := f.loopsOn(f.volumePath(volumeID))
	return n, slices.Contains(loops, n), err
}

// show makes the device node, where it is missing, and the link.
func show(devDir, volumeID string, n int) error {
	node := filepath.Join(devDir, loopName(n))
	err := unix.Mknod(node, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n))))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("device node %s: %w", node, err)
	}
	link := linkPath(devDir, volumeID)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	fresh := link + ".new"
	if err := remove(fresh); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join("..", "..", loopName(n)), fresh); err != nil {
		return err
	}
	return os.Rename(fresh, link)
}

// Detach takes the volume out of devDir, unless the device is in use there:
// mounted, or held open. With force the link goes at once and the device as
// soon as the last user closes it.
func (f *Files) Detach(volumeID, devDir string, force bool) (bool, error) {
	f.loops.Lock()
	defer f.loops.Unlock()
	n, ok, err := f.shown(volumeID, devDir)
	if err != nil {
		return false, fmt.Errorf("detach %s: %w", volumeID, err)
	}
	if ok {
		if !force && f.claimed(n) {
			return false, nil
		}
		if err := f.clear(n); err != nil {
			return false, fmt.Errorf("detach %s: %w", volumeID, err)
		}
		bound, err := f.loopsOn(f.volumePath(volumeID))
		if err != nil {
			return false, fmt.Errorf("detach %s: %w", volumeID, err)
		}
		if !force && slices.Contains(bound, n) {
			return false, nil // somebody holds it open; the kernel frees it at the last close
		}
	}
	if err := remove(linkPath(devDir, volumeID)); err != nil {
		return false, fmt.Errorf("detach %s: %w", volumeID, err)
	}
	return true, nil
}

// clearStrays frees the loop devices on a volume that none of devDirs shows.
func (f *Files) clearStrays(volumeID string, devDirs []string) error {
	f.loops.Lock()
	defer f.loops.Unlock()
	var known []int
	for _, dev := range devDirs {
		n, ok, err := f.shown(volumeID, dev)
		if err != nil {
			return err
		}
		if ok {
			known = append(known, n)
		}
	}
	loops, err := f.loopsOn(f.volumePath(volumeID))
	if err != nil {
		return err
	}
	for _, n := range loops {
		if !slices.Contains(known, n) {
			if err := f.clear(n); err != nil {
				return err
			}
		}
	}
	return nil
}
