package testvm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// module is a kernel module, ready to be loaded.
type module struct {
	name    string
	content []byte
}

// modulesOf returns the named modules with those that they depend on, in the
// order in which they must be loaded. Names that the kernel has built in, or
// does not have, are left out: what misses them fails by itself.
func modulesOf(ctx context.Context, dir string, names []string) ([]module, error) {
	files, err := moduleFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	var out []module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		file, ok := files[moduleName(name)]
		if !ok || seen[file] {
			return nil
		}
		seen[file] = true
		content, err := readModule(ctx, file)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		depends, err := moduleDepends(content)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, d := range depends {
			if err := add(d); err != nil {
				return err
			}
		}
		out = append(out, module{name: moduleName(name), content: content})
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moduleName is a module's name in one spelling: the kernel takes "-" and "_"
// for the same.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// moduleFiles maps module names to files.
func moduleFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, _, ok := strings.Cut(entry.Name(), ".ko"); ok && entry.Type().IsRegular() {
			files[moduleName(name)] = path
		}
		return nil
	})
	return files, err
}

// readModule reads a module file, unpacked.
func readModule(ctx context.Context, file string) ([]byte, error) {
	switch filepath.Ext(file) {
	case ".ko":
		return os.ReadFile(file)
	case ".xz":
		out, err := output(ctx, "", "xz", "-dc", file)
		return []byte(out), err
	case ".zst":
		out, err := output(ctx, "", "zstd", "-dcq", file)
		return []byte(out), err
	}
	return nil, fmt.Errorf("%s: unknown compression", file)
}

// moduleDepends reads the "depends" entry of a module's .modinfo section:
// strings of the form key=value, each ended by a zero byte.
func moduleDepends(content []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	data, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(string(data), "\x00") {
		if value, ok := strings.CutPrefix(entry, "depends="); ok && value != "" {
			return strings.Split(value, ","), nil
		}
	}
	return nil, nil
}
