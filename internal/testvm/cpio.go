package testvm

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Modes of archive entries, as in stat(2).
const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeChar = 0o020600
)

// archive writes a cpio archive in the "newc" format, the kernel's format for
// an initial root file system (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w       io.Writer
	written int64
	inode   int
	dirs    map[string]bool
	err     error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: w, dirs: map[string]bool{"/": true}}
}

// file adds a file and the folders above it.
func (a *archive) file(name string, content []byte) {
	a.dir(path.Dir(name))
	a.entry(name, modeFile, content, 0, 0)
}

// dir adds a folder and those above it, each once.
func (a *archive) dir(name string) {
	if a.dirs[name] {
		return
	}
	a.dir(path.Dir(name))
	a.dirs[name] = true
	a.entry(name, modeDir, nil, 0, 0)
}

// char adds a character device node.
func (a *archive) char(name string, major, minor int) {
	a.dir(path.Dir(name))
	a.entry(name, modeChar, nil, major, minor)
}

// end writes the trailer and returns the first error of all.
func (a *archive) end() error {
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	return a.err
}

func (a *archive) entry(name string, mode int, content []byte, major, minor int) {
	name = strings.TrimPrefix(name, "/")
	a.inode++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0)
	a.write([]byte(header + name + "\x00"))
	a.pad()
	a.write(content)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() {
	if rest := int(a.written % 4); rest != 0 {
		a.write(slices.Repeat([]byte{0}, 4-rest))
	}
}

func (a *archive) write(data []byte) {
	if a.err != nil {
		return
	}
	var n int
	n, a.err = a.w.Write(data)
	a.written += int64(n)
}
