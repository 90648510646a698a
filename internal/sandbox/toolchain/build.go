package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// heartbeat is how often a long build says that it is still at it. The API server
// takes seven minutes on two cores.
const heartbeat = 30 * time.Second

// CacheVariable names the environment variable that overrides the cache folder.
const CacheVariable = "HOLDFAST_CACHE"

// Options say what to build, and where. The zero value builds the cluster of the
// repository that the current folder is in, into the user's cache folder, silently.
type Options struct {
	// Set is what to build. Default: Cluster.
	Set Set
	// Root is the root of the repository.
	Root string
	// Cache is the cache folder. Default: $HOLDFAST_CACHE, or "holdfast" in the
	// user's cache folder.
	Cache string
	// Out is told what is being built, how far it is and how long it took.
	Out io.Writer
}

func (o *Options) complete() error {
	var err error
	if o.Set == "" {
		o.Set = Cluster
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Root == "" {
		if o.Root, err = FindRoot("."); err != nil {
			return err
		}
	}
	if o.Cache == "" {
		o.Cache, err = DefaultCache()
	}
	return err
}

// DefaultCache is $HOLDFAST_CACHE, or "holdfast" in the user's cache folder.
func DefaultCache() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w; set %s", err, CacheVariable)
	}
	return filepath.Join(dir, "holdfast"), nil
}

// RepositoryModule is the module path of this repository.
const RepositoryModule = "github.com/holdfast-dev/holdfast"

// FindRoot is the root of the repository that the folder is in.
func FindRoot(from string) (string, error) {
	dir, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		raw, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && isRepository(string(raw)) {
			return d, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not in the repository of %s: go there, its sandbox folder says what to build", dir, RepositoryModule)
		}
	}
}

func isRepository(goMod string) bool {
	for line := range strings.Lines(goMod) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "module" {
			return f[1] == RepositoryModule
		}
	}
	return false
}

// buildTime is what two cores take, with nothing in Go's build cache.
var buildTime = map[Set]string{Cluster: "half an hour", Suite: "a few minutes"}

// task is one program to build.
type task struct {
	module  module
	pkg     string
	program string
	ldflags string
	// test says that the package's tests are the program.
	test bool
}

// Build builds what is not there yet and returns the folder with the programs of
// the set.
func Build(ctx context.Context, o Options) (string, error) {
	if err := o.complete(); err != nil {
		return "", err
	}
	goVersion, err := goVersion(ctx)
	if err != nil {
		return "", err
	}
	key, tasks, err := plan(o.Set, o.Root, goVersion)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(o.Cache, "bin", key)
	if done, err := complete(o.Set, dir, tasks); err != nil || done {
		return dir, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w; set %s to a folder that can be written", err, CacheVariable)
	}
	unlock, err := lock(ctx, dir+".lock", o.Out)
	if err != nil {
		return "", err
	}
	defer unlock()
	started := time.Now()
	fmt.Fprintf(o.Out, "building %d programs into %s (once; %s on a small machine)\n", len(tasks), dir, buildTime[o.Set])
	for i, t := range tasks {
		if err := o.build(ctx, dir, t, fmt.Sprintf("[%d/%d]", i+1, len(tasks))); err != nil {
			return "", err
		}
	}
	if o.Set == Cluster {
		if err := o.copyCRDs(ctx, dir); err != nil {
			return "", err
		}
	}
	fmt.Fprintf(o.Out, "all %d programs are there after %s\n", len(tasks), time.Since(started).Round(time.Second))
	return dir, nil
}

// plan lists the programs of a set and computes the name of their folder.
func plan(set Set, root, goVersion string) (key string, tasks []task, err error) {
	sum := sha256.New()
	fmt.Fprintln(sum, goVersion, "CGO_ENABLED=0")
	for _, m := range modules[set] {
		dir := filepath.Join(root, "sandbox", m.name)
		goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			return "", nil, fmt.Errorf("read the pins of %s: %w", m.name, err)
		}
		goSum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil {
			return "", nil, fmt.Errorf("read the pins of %s: %w", m.name, err)
		}
		ldflags, err := m.linkFlags(string(goMod))
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintln(sum, m.name, m.tags, ldflags, m.packages, len(goMod), len(goSum))
		sum.Write(goMod)
		sum.Write(goSum)
		for _, pkg := range m.packages {
			tasks = append(tasks, task{module: m, pkg: pkg, program: programName(pkg), ldflags: ldflags})
		}
		for _, pkg := range m.tests {
			fmt.Fprintln(sum, "test", pkg)
			tasks = append(tasks, task{module: m, pkg: pkg, program: programName(pkg) + ".test", ldflags: ldflags, test: true})
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], tasks, nil
}

// complete says whether every program is there, and with a cluster's programs the
// definitions.
func complete(set Set, dir string, tasks []task) (bool, error) {
	var names []string
	if set == Cluster {
		names = append(names, crdMarker)
	}
	for _, t := range tasks {
		names = append(names, t.program)
	}
	for _, n := range names {
		_, err := os.Stat(filepath.Join(dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for built programs: %w", err)
		}
	}
	return true, nil
}

// build builds one program, unless it is there.
func (o *Options) build(ctx context.Context, dir string, t task, position string) error {
	target := filepath.Join(dir, t.program)
	if _, err := os.Stat(target); err == nil {
		fmt.Fprintf(o.Out, "%s %s: there already\n", position, t.program)
		return nil
	}
	fmt.Fprintf(o.Out, "%s %s: building\n", position, t.program)
	started := time.Now()
	stop := o.tellProgress(position+" "+t.program, started)
	defer stop()
	temp := target + ".part"
	args := []string{"build"}
	if t.test {
		args = []string{"test", "-c", "-vet=off"} // others' tests, which others vet: minutes
	}
	args = append(args, "-o", temp, "-ldflags", t.ldflags)
	if t.module.tags != "" {
		args = append(args, "-tags", t.module.tags)
	}
	if _, err := o.goTool(ctx, filepath.Join(o.Root, "sandbox", t.module.name), append(args, t.pkg)...); err != nil {
		return fmt.Errorf("build %s: %w", t.program, err)
	}
	if err := os.Rename(temp, target); err != nil {
		return fmt.Errorf("build %s: %w", t.program, err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("build %s: %w", t.program, err)
	}
	fmt.Fprintf(o.Out, "%s %s: %d MiB in %s\n", position, t.program, info.Size()>>20, time.Since(started).Round(100*time.Millisecond))
	return nil
}

// tellProgress says every while that the build goes on, until it is stopped.
func (o *Options) tellProgress(what string, started time.Time) (stop func()) {
	tick := time.NewTicker(heartbeat)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-tick.C:
				fmt.Fprintf(o.Out, "%s: still building after %s\n", what, now.Sub(started).Round(time.Second))
			}
		}
	}()
	return func() { close(quit); <-done }
}

// goTool runs the go command in a folder and returns what it printed.
func (o *Options) goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func goVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w; install Go from https://go.dev/dl and put it in PATH", err)
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

// Own builds commands of this repository into a folder. Go's cache makes that
// quick when nothing has changed.
func Own(ctx context.Context, o Options, dir string, packages ...string) error {
	if err := o.complete(); err != nil {
		return err
	}
	args := append([]string{"build", "-ldflags", strip, "-o", dir + string(filepath.Separator)}, packages...)
	if _, err := o.goTool(ctx, o.Root, args...); err != nil {
		return fmt.Errorf("build %s: %w", strings.Join(packages, ", "), err)
	}
	return nil
}
