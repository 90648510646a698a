package testvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// ports is the number of hot-plug slots, and with it of disks at a time.
const ports = 6

// disks are the machine's disks: sparse files in dir.
type disks struct {
	dir      string
	monitor  *monitor
	attached map[string]plug
	plugs    int // how many there have been, for names that QEMU has not seen
}

// plug is where a disk is plugged in, in QEMU's names.
type plug struct {
	port         int
	node, device string
}

func newDisks(dir string, m *monitor) *disks {
	return &disks{dir: dir, monitor: m, attached: map[string]plug{}}
}

func (d *disks) file(disk string) string { return filepath.Join(d.dir, filepath.Base(disk)+".img") }

// handle does what a test asks for.
func (d *disks) handle(ctx context.Context, r wire.Request) wire.Answer {
	var answer wire.Answer
	var err error
	switch r.Do {
	case wire.Attach:
		err = d.attach(r)
	case wire.Detach:
		err = d.detach(ctx, r.Disk)
	case wire.Copy:
		err = copySparse(d.file(r.From), d.file(r.Disk))
	case wire.Checksum:
		answer.Checksum, err = checksum(d.file(r.Disk))
	default:
		err = fmt.Errorf("unknown request %q", r.Do)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// attach plugs an NVMe disk into a free port.
func (d *disks) attach(r wire.Request) error {
	if _, ok := d.attached[r.Disk]; ok {
		return fmt.Errorf("disk %s is attached already", r.Disk)
	}
	port, err := d.freePort()
	if err != nil {
		return err
	}
	if err := makeDisk(d.file(r.Disk), r.SizeBytes); err != nil {
		return err
	}
	d.plugs++
	p := plug{port: port, node: fmt.Sprintf("node%d", d.plugs), device: fmt.Sprintf("disk%d", d.plugs)}
	if err := d.monitor.call("blockdev-add", backend(p.node, d.file(r.Disk), r.FailReads)); err != nil {
		return err
	}
	err = d.monitor.call("device_add", map[string]any{
		"driver": "nvme", "id": p.device, "serial": r.Serial, "drive": p.node, "bus": portName(port),
	})
	if err != nil {
		return errors.Join(err, d.monitor.call("blockdev-del", map[string]any{"node-name": p.node}))
	}
	d.attached[r.Disk] = p
	return nil
}

// detach pulls a disk out and waits until it is gone.
func (d *disks) detach(ctx context.Context, disk string) error {
	p, ok := d.attached[disk]
	if !ok {
		return fmt.Errorf("disk %s is not attached", disk)
	}
	if err := d.monitor.call("device_del", map[string]any{"id": p.device}); err != nil {
		return err
	}
	if err := d.monitor.waitDeleted(ctx, p.device); err != nil {
		return err
	}
	delete(d.attached, disk)
	return d.monitor.call("blockdev-del", map[string]any{"node-name": p.node})
}

// backend describes a disk's file to QEMU.
func backend(node, file string, failReads bool) map[string]any {
	image := map[string]any{"driver": "file", "filename": file}
	if failReads {
		const inputOutputError = 5 // EIO
		image = map[string]any{
			"driver": "blkdebug", "image": image,
			"inject-error": []any{map[string]any{"event": "none", "iotype": "read", "errno": inputOutputError}},
		}
	}
	return map[string]any{"driver": "raw", "node-name": node, "file": image}
}

func (d *disks) freePort() (int, error) {
	used := map[int]bool{}
	for _, p := range d.attached {
		used[p.port] = true
	}
	for port := range ports {
		if !used[port] {
			return port, nil
		}
	}
	return 0, fmt.Errorf("all %d ports are taken", ports)
}

func portName(port int) string { return fmt.Sprintf("port%d", port) }

// makeDisk makes a sparse file of this size, or makes one larger; 0 leaves the
// size as it is.
func makeDisk(file string, sizeBytes int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && sizeBytes > info.Size() {
		err = f.Truncate(sizeBytes)
	}
	return errors.Join(err, f.Close())
}

// blocks calls use for each block of a file that is not all zeros: disks are
// mostly holes.
func blocks(file string, use func(offset int64, block []byte) error) (sizeBytes int64, err error) {
	source, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return 0, err
	}
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for offset := int64(0); offset < info.Size(); offset += int64(len(block)) {
		n, err := source.ReadAt(block, offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if bytes.Equal(block[:n], zeros[:n]) {
			continue
		}
		if err := use(offset, block[:n]); err != nil {
			return 0, err
		}
	}
	return info.Size(), nil
}

// copySparse copies a file without its zeros.
func copySparse(from, to string) error {
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, err := blocks(from, func(offset int64, block []byte) error {
		_, err := target.WriteAt(block, offset)
		return err
	})
	if err == nil {
		err = target.Truncate(size)
	}
	return errors.Join(err, target.Close())
}

// checksum tells contents apart: the SHA-256 of all that is not zero and where
// it is.
func checksum(file string) (string, error) {
	sum := sha256.New()
	size, err := blocks(file, func(offset int64, block []byte) error {
		fmt.Fprintf(sum, "%d:", offset)
		_, err := sum.Write(block)
		return err
	})
	fmt.Fprintf(sum, "size %d", size)
	return hex.EncodeToString(sum.Sum(nil)), err
}
