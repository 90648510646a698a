package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
)

// pages are what users read, with paths from the root of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "config/*.md", "config/*/*.md", "charts/*/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("%d pages are found, there are more", len(all))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is what stands below a heading of the second level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// table is the rows of the table whose head has these cells, without marks of code.
func table(t *testing.T, text string, head ...string) [][]string {
	t.Helper()
	var rows [][]string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case slices.Equal(cells, head):
			inside = true
		case inside && strings.HasPrefix(cells[0], "---"):
		case inside:
			if len(cells) != len(head) || slices.Contains(cells, "") {
				t.Errorf("a row lacks a cell: %s", line)
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("there is no table with the head %q", head)
	}
	return rows
}

// code is a cell's text without the marks of code.
func code(cell string) string { return strings.Trim(cell, "`") }

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span  = regexp.MustCompile("`[^`\n]*`")
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// blocks are a page's blocks of code in a language.
func blocks(page, language string) []string {
	var all []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			all = append(all, m[2])
		}
	}
	return all
}

// anchors are what a link to a page may end in, as GitHub makes them from headings.
func anchors(page string) []string {
	var all []string
	for line := range strings.Lines(fence.ReplaceAllString(page, "")) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, "")
		all = append(all, strings.ReplaceAll(heading, " ", "-"))
	}
	return all
}

// TestLinksLead: a link inside the repository leads to a file, and to a heading
// of it.
func TestLinksLead(t *testing.T) {
	for _, page := range pages(t) {
		prose := span.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := page
			if to != "" {
				target = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s: no heading there is called that", page, m[1])
			}
		}
	}
}

// TestManifestsAreRight: what a reader copies is accepted. Kinds of others are
// left to them.
func TestManifestsAreRight(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	schedules := 0
	for _, page := range pages(t) {
		for _, block := range blocks(read(t, page), "yaml") {
			if !strings.HasPrefix(block, "apiVersion:") {
				continue
			}
			for _, doc := range bytes.Split([]byte(block), []byte("\n---\n")) {
				object, _, err := strict.Decode(doc, nil, nil)
				switch s, is := object.(*v1alpha1.SnapshotSchedule); {
				case runtime.IsNotRegisteredError(err):
				case err != nil:
					t.Errorf("%s: %v\n%s", page, err, doc)
				case is:
					schedules++
					if _, errs := schedule.Compile(&s.Spec); len(errs) > 0 {
						t.Errorf("%s: %v\n%s", page, errs, doc)
					}
				}
			}
		}
	}
	if schedules == 0 {
		t.Error("no page has a SnapshotSchedule")
	}
}
