//go:build e2e

package examples

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// example is a folder of examples/ while it is played.
type example struct {
	*stage.Stage
	dir     string
	applied []string
}

// tests are the tests of the folders, each under the folder's name.
var tests = map[string]func(*testing.T, *example){
	"01-gp3-claim-and-pod":       claimAndPod,
	"02-statefulset":             statefulSet,
	"03-snapshot-and-restore":    snapshotAndRestore,
	"04-online-expansion":        onlineExpansion,
	"05-in-tree-migration":       inTreeMigration,
	"06-wrong-zone":              wrongZone,
	"07-retain-and-delete":       retainAndDelete,
	"08-raw-block-and-read-only": rawBlockAndReadOnly,
	"09-io2-database":            io2Database,
	"10-filesystem-options":      filesystemOptions,
	"11-attributes-class":        attributesClass,
	"13-clone":                   clone,
	"14-shared-device":           sharedDevice,
	"15-group-snapshot":          groupSnapshot,
	"19-hourly-snapshots":        hourlySnapshots,
	"20-nightly-snapshots":       nightlySnapshots,
	"21-snapshots-by-driver":     snapshotsByDriver,
	"23-one-instant":             oneInstant,
	"25-automatic-expansion":     automaticExpansion,
}

// elsewhere are the folders that another test plays: refusals and warnings need
// an API server and the webhooks, and no volumes; a database has tests of its own.
var elsewhere = map[string]string{
	"16-database-tier":            "webhooks: TestWebhooks/examples",
	"17-development-tier":         "webhooks: TestWebhooks/examples",
	"18-pre-deployment-checklist": "webhooks: TestWebhooks/examples",
	"22-scheduled-tier":           "webhooks: TestWebhooks/examples",
	"24-postgresql":               "test/e2e/postgresql",
	"26-grown-statefulset":        "test/e2e/templates",
	"27-orphaned-claims":          "test/e2e/orphans",
}

// TestExamples plays each folder; a folder without a test, or a manifest that
// its test did not apply, is a failure.
func TestExamples(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || elsewhere[e.Name()] != "" {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			play, ok := tests[e.Name()]
			if !ok {
				t.Fatalf("examples/%s has no test: add it to the table `tests`", e.Name())
			}
			number, _, _ := strings.Cut(e.Name(), "-")
			x := &example{Stage: stage.For(t, "example-"+number), dir: filepath.Join(root, "examples", e.Name())}
			t.Cleanup(x.deleteClasses)
			play(t, x)
			x.allApplied()
		})
	}
}

// manifests are the folder's manifests in their order.
func (x *example) manifests() []string {
	x.T.Helper()
	files, err := filepath.Glob(filepath.Join(x.dir, "*.yaml"))
	x.Must(err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

func (x *example) allApplied() {
	x.T.Helper()
	for _, f := range x.manifests() {
		if !slices.Contains(x.applied, f) {
			x.T.Errorf("%s/%s was not applied", x.dir, f)
		}
	}
}

// apply applies manifests whose names begin with the numbers, as `kubectl
// apply -f` does.
func (x *example) apply(numbers ...string) {
	x.T.Helper()
	for _, n := range numbers {
		x.applyWith(n, nil)
	}
}

// applyWith is apply with words in capitals replaced, as the README's sed does.
func (x *example) applyWith(number string, words map[string]string) {
	x.T.Helper()
	for _, f := range x.manifests() {
		if !strings.HasPrefix(f, number+"-") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(x.dir, f))
		x.Must(err)
		manifest := string(text)
		for word, value := range words {
			if !strings.Contains(manifest, word) {
				x.T.Fatalf("%s has no word %s to replace", f, word)
			}
			manifest = strings.ReplaceAll(manifest, word, value)
		}
		path := filepath.Join(x.T.TempDir(), f)
		x.Must(os.WriteFile(path, []byte(manifest), 0o600))
		x.Run("apply", "-f", path)
		x.applied = append(x.applied, f)
		return
	}
	x.T.Fatalf("%s has no manifest %s-…", x.dir, number)
}

// path matches a path below examples/ in a README's commands.
var path = regexp.MustCompile(`examples/[-0-9a-z/.]*[0-9a-z/]`)

// TestReadmesNameTheirFiles holds that what a reader copies from a README is there.
func TestReadmesNameTheirFiles(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	readmes, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(readmes) == 0 {
		t.Fatalf("%d READMEs, %v", len(readmes), err)
	}
	for _, readme := range readmes {
		text, err := os.ReadFile(readme)
		if err != nil {
			t.Fatal(err)
		}
		folder := "examples/" + filepath.Base(filepath.Dir(readme))
		for _, named := range path.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, named)); err != nil || !strings.HasPrefix(named, folder) {
				t.Errorf("%s names %s, which is not there or not its own", readme, named)
			}
		}
	}
}

// deleteClasses deletes the cluster-scoped objects of an example. It does not wait:
// a VolumeAttributesClass goes with the last claim that names it.
func (x *example) deleteClasses() {
	for _, f := range x.manifests() {
		if !strings.HasPrefix(f, "10-") {
			continue
		}
		if out, err := x.Kubectl(context.Background(), "delete", "-f", filepath.Join(x.dir, f), "--ignore-not-found", "--wait=false"); err != nil {
			x.T.Errorf("delete classes: %v\n%s", err, out)
		}
	}
}
