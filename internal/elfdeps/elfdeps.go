package elfdeps

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Closure returns the given programs and everything that they are linked to,
// as a map from the path at which a file must appear to the file on this
// machine that holds its content (symbolic links resolved). Libraries appear
// in the folder where the dynamic linker found them under the name that the
// program asks for, so that the map needs no symbolic links.
//
// A file that is no ELF file (a script) is an error: its interpreter would be
// missing where the map is unpacked.
func Closure(paths ...string) (map[string]string, error) {
	r := resolver{dirs: libraryDirs("/etc/ld.so.conf"), files: map[string]string{}}
	for _, path := range paths {
		if err := r.add(path); err != nil {
			return nil, err
		}
	}
	return r.files, nil
}

// resolver collects files; dirs are the folders searched after a program's own
// DT_RUNPATH.
type resolver struct {
	dirs  []string
	files map[string]string
}

// add puts the file at path, and what it needs, into the result.
func (r *resolver) add(path string) error {
	path = filepath.Clean(path)
	if _, done := r.files[path]; done {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("find %s: %w", path, err)
	}
	file, err := elf.Open(real)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%s is not an ELF program: %w", path, err)
		}
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer file.Close()
	r.files[path] = real
	interpreter, err := interpreterOf(file)
	if err != nil {
		return fmt.Errorf("read the interpreter of %s: %w", path, err)
	}
	if interpreter != "" {
		if err := r.add(interpreter); err != nil {
			return fmt.Errorf("interpreter of %s: %w", path, err)
		}
	}
	return r.addLibraries(path, real, file)
}

// addLibraries adds the direct dependencies (DT_NEEDED) of file.
func (r *resolver) addLibraries(path, real string, file *elf.File) error {
	needed, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", path, err)
	}
	if len(needed) == 0 {
		return nil
	}
	dirs := append(ownLibraryDirs(file, filepath.Dir(real)), r.dirs...)
	for _, name := range needed {
		library, err := find(name, dirs, file.FileHeader)
		if err != nil {
			return fmt.Errorf("library of %s: %w", path, err)
		}
		if err := r.add(library); err != nil {
			return err
		}
	}
	return nil
}

// interpreterOf returns the path in the PT_INTERP header, empty for a static
// program or a library.
func interpreterOf(file *elf.File) (string, error) {
	for _, prog := range file.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(data, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(data), "\x00"), nil
	}
	return "", nil
}

// ownLibraryDirs returns DT_RPATH and DT_RUNPATH with $ORIGIN replaced.
func ownLibraryDirs(file *elf.File, origin string) []string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, err := file.DynString(tag)
		if err != nil {
			continue // a file without a dynamic section has no such folders
		}
		for _, value := range values {
			for dir := range strings.SplitSeq(value, ":") {
				dir = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(dir)
				if filepath.IsAbs(dir) {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

// find looks for a library of the same class and machine, as the dynamic
// linker does: one of another architecture in an earlier folder is passed over.
func find(name string, dirs []string, like elf.FileHeader) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		file, err := elf.Open(path)
		if err != nil {
			continue
		}
		same := file.Class == like.Class && file.Machine == like.Machine
		file.Close()
		if same {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %s: %w", name, strings.Join(dirs, ", "), fs.ErrNotExist)
}

// libraryDirs returns the dynamic linker's folders: those of ld.so.conf and
// its includes, then the built-in ones (ld.so(8)).
func libraryDirs(conf string) []string {
	dirs := readConf(conf, 0)
	for _, dir := range []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// maxIncludeDepth ends a chain of ld.so.conf files that include each other.
const maxIncludeDepth = 8

// readConf reads one ld.so.conf file; a missing one holds no folders.
func readConf(path string, depth int) []string {
	file, err := os.Open(path)
	if err != nil || depth > maxIncludeDepth {
		return nil
	}
	defer file.Close()
	var dirs []string
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			dirs = append(dirs, readIncluded(path, fields[1], depth)...)
		case len(fields) == 1 && filepath.IsAbs(fields[0]):
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}

// readIncluded reads the files of an include line, in the order of their names.
func readIncluded(from, pattern string, depth int) []string {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil // a malformed pattern matches nothing, as for ld.so
	}
	var dirs []string
	for _, match := range matches {
		dirs = append(dirs, readConf(match, depth+1)...)
	}
	return dirs
}
