package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// patience is how long the suite may take to end when it is interrupted: it deletes
// the namespaces of its specs.
const patience = time.Minute

// suite is Kubernetes' suite against a cluster.
type suite struct {
	cluster *testenv.Cluster
	// dir holds e2e.test and ginkgo.
	dir string
	// results is the folder for reports and output.
	results string
	// procs is how many specs run side by side.
	procs int
	out   io.Writer
}

// prepare builds what the suite needs and loads the images that its Pods run.
func (s *suite) prepare(ctx context.Context) error {
	var err error
	if s.dir, err = toolchain.Build(ctx, toolchain.Options{Set: toolchain.Suite, Root: s.cluster.Root, Out: s.out}); err != nil {
		return fmt.Errorf("build the suite: %w", err)
	}
	built, err := catalog.Build(ctx, catalog.Options{
		Out: filepath.Join(s.cluster.Root, "out", "images"), Binaries: s.cluster.Binaries(),
		Only: catalog.SuiteNames(), Version: version.Version, Progress: s.out,
	})
	if err != nil {
		return err
	}
	if err := s.knowsImages(ctx, built); err != nil {
		return err
	}
	var tars []string
	for _, b := range built {
		tars = append(tars, b.Path)
	}
	if err := s.cluster.LoadImages(ctx, tars...); err != nil {
		return fmt.Errorf("load the suite's images: %w", err)
	}
	return os.MkdirAll(s.results, 0o755)
}

// knowsImages refuses images under names that this version of the suite does not
// ask for: its Pods would wait for a registry.
func (s *suite) knowsImages(ctx context.Context, built []catalog.Built) error {
	said, err := exec.CommandContext(ctx, filepath.Join(s.dir, "e2e.test"), "--list-images").Output()
	if err != nil {
		return fmt.Errorf("ask the suite for its images: %w", err)
	}
	asked := strings.Fields(string(said))
	for _, b := range built {
		if !slices.Contains(asked, b.Ref) {
			return fmt.Errorf("the suite does not ask for %s: see `e2e.test --list-images` for the version to give it in internal/image/catalog", b.Ref)
		}
	}
	return nil
}

// defined asks the suite for the specs that it has for the manifests.
func (s *suite) defined(ctx context.Context) ([]spec, error) {
	name := filepath.Join(s.results, "defined.json")
	args := append([]string{"--ginkgo.dry-run", "--ginkgo.no-color", "--ginkgo.json-report=" + name}, s.programArguments()...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "e2e.test"), args...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ask the suite for its specs: %w\n%s", err, said)
	}
	r, err := openReport(name)
	return r.specs, err
}

// run runs the specs of these names and returns the report. That specs failed is no
// error; that there is no report is one.
func (s *suite) run(ctx context.Context, names []string) (report, error) {
	log, err := os.Create(filepath.Join(s.results, "output.txt"))
	if err != nil {
		return report{}, fmt.Errorf("output of the suite: %w", err)
	}
	defer log.Close()
	name := filepath.Join(s.results, "report.json")
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return report{}, fmt.Errorf("report of an earlier run: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "ginkgo"), s.arguments(names)...)
	cmd.Stdout = io.MultiWriter(log, &progress{out: s.out, started: time.Now(), total: len(names)})
	cmd.Stderr = cmd.Stdout // one goroutine writes both
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = patience
	ended := cmd.Run()
	if exit := (*exec.ExitError)(nil); ended != nil && !errors.As(ended, &exit) {
		return report{}, fmt.Errorf("run the suite: %w", ended)
	}
	r, err := openReport(name)
	if err != nil {
		return report{}, fmt.Errorf("the suite left no report, its output is in %s: %w", log.Name(), errors.Join(ended, err))
	}
	if ended != nil && !r.anyFailed() {
		r.broken = append(r.broken, fmt.Sprintf("the suite ended with %v, and no spec failed: see %s", ended, log.Name()))
	}
	return r, nil
}

func openReport(name string) (report, error) {
	f, err := os.Open(name)
	if err != nil {
		return report{}, fmt.Errorf("report of the suite: %w", err)
	}
	defer f.Close()
	return readReport(f)
}

// arguments are ginkgo's: its own, the program, and the program's. ginkgo looks for
// an expression in a spec's full name, which begins with the suite's name.
func (s *suite) arguments(names []string) []string {
	args := []string{
		fmt.Sprintf("--procs=%d", s.procs), "-v", "--silence-skips", "--no-color", "--timeout=2h",
		"--output-dir=" + s.results, "--json-report=report.json", "--junit-report=junit.xml",
	}
	for _, name := range names {
		args = append(args, "--focus="+regexp.QuoteMeta(prefix+name)+"$")
	}
	args = append(args, filepath.Join(s.dir, "e2e.test"), "--")
	return append(args, s.programArguments()...)
}

// programArguments are those of e2e.test itself.
func (s *suite) programArguments() []string {
	args := []string{
		"--kubeconfig=" + s.cluster.Kubeconfig(), "--kubectl-path=" + filepath.Join(s.cluster.Binaries(), "kubectl"),
		"--repo-root=" + s.cluster.Root,
	}
	for _, m := range manifests {
		args = append(args, "--storage.testdriver="+filepath.Join(s.cluster.Root, "test", "conformance", "manifests", m.file))
	}
	return args
}
