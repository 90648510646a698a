package catalog

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/debian"
	"github.com/holdfast-dev/holdfast/internal/image"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// postgresqlEntry is a real PostgreSQL, in the distribution's version, under the
// name of the image that people run.
var postgresqlEntry = entry{
	"postgresql", "stand-in for postgres, from the distribution's packages, which are unpacked and not installed",
	fixed("docker.io/library/postgres:17"), postgresqlImage, true,
}

//go:embed postgres-entrypoint.sh
var postgresEntrypoint []byte

// postgresqlImage is busybox with the server and its programs. As in the image
// that it stands in for, user and group postgres are 999.
func postgresqlImage(ctx context.Context, s *source) (image.Image, error) {
	root, err := postgresqlPackages(ctx)
	if err != nil {
		return image.Image{}, err
	}
	bin, err := oneFolder(root, "usr/lib/postgresql/*/bin")
	if err != nil {
		return image.Image{}, err
	}
	files, err := postgresqlFiles(root, bin)
	if err != nil {
		return image.Image{}, err
	}
	img, err := busyboxImage(ctx, s)
	if err != nil {
		return image.Image{}, err
	}
	for _, f := range img.Files {
		switch f.Path {
		case "/etc/passwd":
			f.Content = append(slices.Clone(f.Content), "postgres:x:999:999:PostgreSQL:/var/lib/postgresql:/bin/sh\n"...)
		case "/etc/group":
			f.Content = append(slices.Clone(f.Content), "postgres:x:999:\n"...)
		}
		files = append(files, f)
	}
	const data = "/var/lib/postgresql/data"
	img.Files = append(files,
		image.File{Path: "/usr/local/bin/docker-entrypoint.sh", Mode: 0o755, Content: postgresEntrypoint},
		image.File{Path: data, Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		image.File{Path: "/var/run/postgresql", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	)
	img.Entrypoint, img.Cmd = []string{"docker-entrypoint.sh"}, []string{"postgres"}
	img.StopSignal = "SIGINT" // SIGTERM would wait for clients to leave
	img.User = "999:999"
	img.Env = []string{searchPath + ":/" + bin, "PGDATA=" + data}
	return img, nil
}

// postgresqlPackages unpacks server, programs and libraries into the cache and
// returns their root folder.
func postgresqlPackages(ctx context.Context) (string, error) {
	all, err := debian.Closure(ctx, "postgresql")
	if err != nil {
		return "", err
	}
	var names []string
	versions := sha256.New()
	for _, p := range all {
		if neededByPostgreSQL(p.Name) {
			names = append(names, p.Name)
			fmt.Fprintln(versions, p.File)
		}
	}
	cache, err := toolchain.DefaultCache()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "debian", "postgresql-"+hex.EncodeToString(versions.Sum(nil))[:16])
	return dir, debian.Unpack(ctx, dir, names...)
}

// neededByPostgreSQL tells the server's own packages, without the compiler that
// it may use, and libraries from what installs and looks after a server.
func neededByPostgreSQL(pkg string) bool {
	for _, other := range []string{"libllvm", "libz3", "libperl", "libpam-", "libc-"} {
		if strings.HasPrefix(pkg, other) {
			return false
		}
	}
	return pkg == "zlib1g" || strings.HasPrefix(pkg, "lib") && !strings.HasSuffix(pkg, "-perl") ||
		strings.HasPrefix(pkg, "postgresql-") && !strings.Contains(pkg, "common")
}

func oneFolder(root, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("want one %s in %s, got %v, %w", pattern, root, found, err)
	}
	return filepath.Rel(root, found[0])
}

// postgresqlFiles are the programs, their modules and data, and the shared
// libraries of all packages.
func postgresqlFiles(root, bin string) ([]image.File, error) {
	version := path.Base(path.Dir(bin))
	var files []image.File
	for _, take := range []struct {
		dir  string
		want func(name string) bool
		deep bool
	}{
		{bin, func(string) bool { return true }, false},
		{path.Join(path.Dir(bin), "lib"), isLibrary, false},
		{"usr/share/postgresql/" + version, func(name string) bool { return !strings.HasPrefix(name, "man/") }, true},
		{"lib64", isLibrary, false},
		{"lib/*-linux-gnu*", isLibrary, false},
		{"usr/lib64", isLibrary, false},
		{"usr/lib/*-linux-gnu*", isLibrary, false},
	} {
		dirs, err := filepath.Glob(filepath.Join(root, take.dir))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			more, err := filesOf(root, dir, take.deep, take.want)
			if err != nil {
				return nil, err
			}
			files = append(files, more...)
		}
	}
	return files, nil
}

func isLibrary(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// filesOf lists the wanted files of a folder below root, with their modes, and
// links as they are; deep says whether the folders in it count.
func filesOf(root, dir string, deep bool, want func(name string) bool) ([]image.File, error) {
	var files []image.File
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if !deep {
				return fs.SkipDir
			}
			return nil
		}
		if !want(name) {
			return nil
		}
		f := image.File{Path: strings.TrimPrefix(p, root)}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case info.Mode().IsRegular():
			f.Mode, f.Source = info.Mode().Perm(), p
		case info.Mode()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(p)
		default:
			return fmt.Errorf("%s is neither file nor link", p)
		}
		files = append(files, f)
		return err
	})
	return files, err
}
