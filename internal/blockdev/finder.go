package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Want says which device is wanted.
type Want struct {
	Volume ebs.VolumeID
	// AttachedAs is the device name of the attachment ("/dev/xvdaa"). It
	// proves a Xen disk; NVMe disks choose their own names and ignore it.
	AttachedAs string
	// Partition of the disk, 0 for the whole disk.
	Partition int
}

// Finder finds the devices of volumes on this instance.
type Finder struct {
	identity Identity
	tree     Tree
	clock    clock.WithTicker
	patience time.Duration
}

// Options of a Finder; the zero value is right for a Nitro instance.
type Options struct {
	Identity Identity // "" means NVMe
	Tree     Tree
	Clock    clock.WithTicker // nil means the real one
	// Patience is how long Wait waits for a device that is not there; 0 means
	// DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is half a minute: the attachment is complete before a node
// is asked to stage, so that the kernel needs well under a second; udev and a
// busy hypervisor are given the rest. It is shorter than kubelet's two
// minutes, so that the answer says what is missing.
const DefaultPatience = 30 * time.Second

// pollInterval is the time between two looks; a look reads a few sysfs files.
const pollInterval = 100 * time.Millisecond

// NewFinder returns a Finder.
func NewFinder(o Options) *Finder {
	if o.Identity == "" {
		o.Identity = NVMe
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	return &Finder{identity: o.Identity, tree: o.Tree, clock: o.Clock, patience: o.Patience}
}

// Wait returns the volume's device, proved, as soon as it is there. It ends
// with an error that wraps ErrWrongDevice at once if another volume's disk is
// in its place, with ErrNoDevice when its patience is over, and with the
// context's error when that ends first.
func (f *Finder) Wait(ctx context.Context, want Want) (Device, error) {
	return f.poll(ctx, func() (Device, error) { return f.Find(want) })
}

// WaitForSize returns the device once the kernel sees at least this size of
// it: a grown volume's new size reaches the instance a moment after EC2
// reports it. What is still too small after the Finder's patience is returned
// with an error that wraps ErrTooSmall. Of a partition it is the disk that has to
// have the size: the volume is the disk, and nobody grows its partitions.
func (f *Finder) WaitForSize(ctx context.Context, number Device, atLeastBytes int64) (Device, error) {
	return f.poll(ctx, func() (Device, error) {
		d, err := f.tree.ByNumber(number.Major, number.Minor)
		if err != nil {
			return d, err
		}
		name, err := f.tree.diskOf(d.Name)
		if err != nil {
			return d, fmt.Errorf("disk of %s: %w", d.Path, err)
		}
		disk := d
		if name != d.Name {
			if disk, err = f.tree.ByName(name); err != nil {
				return d, err
			}
		}
		if disk.SizeBytes < atLeastBytes {
			return d, fmt.Errorf("%s has %d bytes, wanted are %d: %w", disk.Path, disk.SizeBytes, atLeastBytes, ErrTooSmall)
		}
		return d, nil
	})
}

// poll looks until look succeeds, fails for good, or time is over.
func (f *Finder) poll(ctx context.Context, look func() (Device, error)) (Device, error) {
	deadline := f.clock.NewTimer(f.patience)
	defer deadline.Stop()
	tick := f.clock.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		d, err := look()
		if err == nil || !errors.Is(err, ErrNoDevice) && !errors.Is(err, ErrTooSmall) {
			return d, err
		}
		select {
		case <-ctx.Done():
			return Device{}, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-deadline.C():
			return Device{}, fmt.Errorf("%w after %v", err, f.patience)
		case <-tick.C():
		}
	}
}

// Find looks once.
func (f *Finder) Find(want Want) (Device, error) {
	disk, err := f.findDisk(want)
	if err != nil {
		return Device{}, err
	}
	if err := f.prove(disk, want); err != nil {
		return Device{}, err
	}
	d, err := f.tree.ByName(partitionName(disk, want.Partition))
	if errors.Is(err, fs.ErrNotExist) {
		return Device{}, fmt.Errorf("%s has no partition %d: %w", f.tree.dev(disk), want.Partition, ErrNoDevice)
	}
	if err != nil {
		return Device{}, fmt.Errorf("volume %s: %w", want.Volume, err)
	}
	if err := f.tree.checkNode(d); err != nil {
		return Device{}, fmt.Errorf("volume %s: %w", want.Volume, err)
	}
	if d.SizeBytes == 0 {
		// A disk that is being attached, or a loop device without a file, shows no size.
		return Device{}, fmt.Errorf("volume %s: %s has no size yet: %w", want.Volume, d.Path, ErrNoDevice)
	}
	return d, nil
}

// findDisk returns the kernel's name of the disk in the volume's place,
// unproved.
func (f *Finder) findDisk(want Want) (string, error) {
	if f.identity == Xen {
		return f.xenDisk(want)
	}
	link := f.tree.dev("disk", "by-id", linkName(string(want.Volume)))
	target, err := filepath.EvalSymlinks(link)
	switch {
	case err == nil:
		return filepath.Base(target), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("volume %s: follow %s: %w", want.Volume, link, err)
	case f.identity == NVMe:
		return f.diskBySerial(want.Volume)
	}
	return "", fmt.Errorf("volume %s: no link %s: %w", want.Volume, link, ErrNoDevice)
}

// xenDisk is the disk of the attachment's name.
func (f *Finder) xenDisk(want Want) (string, error) {
	name, ok := strings.CutPrefix(want.AttachedAs, "/dev/")
	if !ok || name == "" || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("volume %s: attachment's device name %q is not of the form /dev/xvdaa: %w",
			want.Volume, want.AttachedAs, ErrUnprovable)
	}
	if _, err := f.tree.attribute(name, "dev"); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("volume %s: no disk %s: %w", want.Volume, want.AttachedAs, ErrNoDevice)
		}
		return "", err
	}
	return name, nil
}

// diskBySerial goes through all NVMe disks.
func (f *Finder) diskBySerial(volume ebs.VolumeID) (string, error) {
	disks, err := f.nvmeDisks()
	if err != nil {
		return "", fmt.Errorf("list disks: %w", err)
	}
	var found []string
	for _, disk := range disks {
		serial, err := f.tree.attribute(disk, "device", "serial")
		if err == nil && serial == serialOf(string(volume)) {
			found = append(found, disk)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("volume %s: no link %s and no NVMe disk with serial %s among %v: %w",
			volume, linkName(string(volume)), serialOf(string(volume)), disks, ErrNoDevice)
	}
	return "", fmt.Errorf("volume %s: disks %v all have its serial: %w", volume, found, ErrWrongDevice)
}

// nvmeDisks lists whole NVMe disks: names of the form nvme1n1. Partitions
// (nvme1n1p1) and the hidden paths of multipath disks (nvme1c0n1) are left out.
func (f *Finder) nvmeDisks() ([]string, error) {
	entries, err := os.ReadDir(f.tree.sys("class", "block"))
	if err != nil {
		return nil, err
	}
	var disks []string
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), "nvme")
		if ok && !strings.ContainsAny(rest, "pc") {
			disks = append(disks, entry.Name())
		}
	}
	slices.Sort(disks)
	return disks, nil
}

// prove is nil if disk is the wanted volume.
func (f *Finder) prove(disk string, want Want) error {
	if f.identity == Xen {
		driver, err := os.Readlink(f.tree.sys("class", "block", disk, "device", "driver"))
		if err != nil || filepath.Base(driver) != xenBlockDriver {
			return fmt.Errorf("volume %s: %s is not a Xen disk (driver %q): %w",
				want.Volume, f.tree.dev(disk), filepath.Base(driver), ErrWrongDevice)
		}
		return nil
	}
	owner, evidence, err := f.owner(disk)
	switch {
	case err != nil:
		return fmt.Errorf("volume %s: identity of %s: %w", want.Volume, f.tree.dev(disk), err)
	case owner == want.Volume:
		return nil
	case f.identity == LoopBackingFile && evidence == "":
		// A loop device that has no file yet will have one in a moment.
		return fmt.Errorf("volume %s: %s has no backing file: %w", want.Volume, f.tree.dev(disk), ErrNoDevice)
	}
	return fmt.Errorf("volume %s: %s is not it, its identity is %q: %w", want.Volume, f.tree.dev(disk), evidence, ErrWrongDevice)
}

// xenBlockDriver is the kernel's driver of Xen disks (drivers/block/xen-blkfront.c).
const xenBlockDriver = "vbd"

// ByNumber returns the device with this number.
func (f *Finder) ByNumber(major, minor uint32) (Device, error) {
	return f.tree.ByNumber(major, minor)
}

// Owner tells which volume the device with this number is, and false where
// nothing can tell: Xen disks, and disks that are no EBS volumes.
func (f *Finder) Owner(major, minor uint32) (ebs.VolumeID, bool, error) {
	if f.identity == Xen {
		return "", false, nil
	}
	d, err := f.tree.ByNumber(major, minor)
	if err != nil {
		return "", false, err
	}
	disk, err := f.tree.diskOf(d.Name)
	if err != nil {
		return "", false, err
	}
	owner, _, err := f.owner(disk)
	return owner, owner != "", err
}

// owner reads the evidence that a disk carries (its serial number, its backing
// file; empty if it has none) and the volume id in it (empty if there is none).
func (f *Finder) owner(disk string) (owner ebs.VolumeID, evidence string, err error) {
	attribute, decode := []string{"device", "serial"}, volumeOfSerial
	if f.identity == LoopBackingFile {
		attribute, decode = []string{"loop", "backing_file"}, volumeOfBackingFile
	}
	evidence, err = f.tree.attribute(disk, attribute...)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	volume, _ := decode(evidence)
	return ebs.VolumeID(volume), evidence, nil
}
