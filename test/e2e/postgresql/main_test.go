//go:build e2e

package postgresql

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
	"github.com/holdfast-dev/holdfast/internal/version"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// bring loads PostgreSQL's image into the nodes, and makes it if need be.
func bring(s *stage.Stage) {
	s.T.Helper()
	built, err := catalog.Build(s.T.Context(), catalog.Options{
		Out: filepath.Join(s.Root, "out", "images"), Binaries: s.Binaries(), Only: []string{"postgresql"}, Version: version.Version,
	})
	s.Must(err)
	s.Must(s.LoadImages(s.T.Context(), built[0].Path))
}

// example is the folder that the test plays.
func example(s *stage.Stage) string { return filepath.Join(s.Root, "examples", "24-postgresql") }

// apply applies manifests of the example, with words replaced as its README's
// commands do.
func apply(s *stage.Stage, words map[string]string, files ...string) {
	s.T.Helper()
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(example(s), f))
		s.Must(err)
		manifest := string(text)
		for word, value := range words {
			if !strings.Contains(manifest, word) {
				s.T.Fatalf("%s has no word %s to replace", f, word)
			}
			manifest = strings.ReplaceAll(manifest, word, value)
		}
		path := filepath.Join(s.T.TempDir(), f)
		s.Must(os.WriteFile(path, []byte(manifest), 0o600))
		s.Run("apply", "-f", path)
	}
}

// deleteClasses takes away what is not in the example's namespace.
func deleteClasses(s *stage.Stage) {
	out, err := s.Kubectl(context.Background(), "delete", "-f", filepath.Join(example(s), "10-classes.yaml"), "--ignore-not-found", "--wait=false")
	if err != nil {
		s.T.Errorf("delete classes: %v\n%s", err, out)
	}
}
