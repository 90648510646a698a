package blockdev

import (
	"errors"
	"fmt"
	"strings"
)

// Identity says what proves that a device is a given volume.
type Identity string

// The identities.
const (
	// NVMe: Nitro instances, where the serial number is the volume id.
	NVMe Identity = "nvme"
	// Xen: older instances, whose disks have no serial; the device name of
	// the attachment is all there is.
	Xen Identity = "xen"
	// LoopBackingFile: loop devices that stand for volumes, of files named
	// after the volume. For machines without EBS only.
	LoopBackingFile Identity = "loop-backing-file"
)

// ParseIdentity reads the value of a flag.
func ParseIdentity(s string) (Identity, error) {
	switch id := Identity(s); id {
	case NVMe, Xen, LoopBackingFile:
		return id, nil
	}
	return "", fmt.Errorf("device identity %q is unknown: use %s, %s or %s", s, NVMe, Xen, LoopBackingFile)
}

// Errors that callers branch on. Test with errors.Is.
var (
	// ErrNoDevice: the volume's device has not appeared on this instance.
	ErrNoDevice = errors.New("device not found on this instance")
	// ErrWrongDevice: what was found in the volume's place is not the volume.
	ErrWrongDevice = errors.New("device is not the volume")
	// ErrUnprovable: nothing was given that could prove a device.
	ErrUnprovable = errors.New("nothing proves which device it is")
	// ErrTooSmall: the instance does not see the volume's new size yet.
	ErrTooSmall = errors.New("device has not grown yet")
)

// serialOf is the NVMe serial number of a volume: its id without the dash.
func serialOf(volume string) string {
	return strings.Replace(volume, "-", "", 1)
}

// volumeOfSerial turns a serial number back into a volume id; ok is false for
// disks that are not EBS volumes (instance store, other vendors).
func volumeOfSerial(serial string) (volume string, ok bool) {
	rest, found := strings.CutPrefix(serial, "vol")
	if !found || rest == "" || strings.Trim(rest, "0123456789abcdef") != "" {
		return "", false
	}
	return "vol-" + rest, true
}

// linkName is the name under /dev/disk/by-id that udev gives an EBS volume.
func linkName(volume string) string {
	return "nvme-Amazon_Elastic_Block_Store_" + serialOf(volume)
}

// backingFileSuffix ends the names of files that stand for volumes.
const backingFileSuffix = ".img"

// volumeOfBackingFile turns a loop device's backing file into a volume id. The
// kernel appends " (deleted)" to the name of a file that was removed.
func volumeOfBackingFile(path string) (volume string, ok bool) {
	base := path[strings.LastIndexByte(path, '/')+1:]
	name, found := strings.CutSuffix(base, backingFileSuffix)
	if !found || !strings.HasPrefix(name, "vol-") {
		return "", false
	}
	return name, true
}

// partitionName is the kernel's name of a disk's partition: a disk whose name
// ends in a digit gets a "p" between (nvme1n1p1, loop0p1, xvdaa1).
func partitionName(disk string, partition int) string {
	if partition == 0 {
		return disk
	}
	if last := disk[len(disk)-1]; last >= '0' && last <= '9' {
		return fmt.Sprintf("%sp%d", disk, partition)
	}
	return fmt.Sprintf("%s%d", disk, partition)
}
