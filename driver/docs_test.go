package driver

import (
	"os"
	"strings"
	"testing"
)

// TestParametersAreDocumented: docs/driver.md has a row for each key that a class
// may carry, and none for a key that it may not.
func TestParametersAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/driver.md")
	if err != nil {
		t.Fatal(err)
	}
	for section, keys := range map[string]string{
		"## StorageClass":          keyList(volumeTable),
		"## VolumeAttributesClass": keyList(mutableTable),
		"## VolumeSnapshotClass":   keyList(snapshotTable),
	} {
		documented := documentedKeys(string(data), section)
		for _, key := range strings.Split(keys, ", ") {
			if !documented[key] {
				t.Errorf("docs/driver.md, section %q: no row for %s", section, key)
			}
			delete(documented, key)
		}
		for key := range documented {
			t.Errorf("docs/driver.md, section %q: a row for %s, which no class may carry", section, key)
		}
	}
}

// documentedKeys are the first cells of all tables of a section, without their quotes.
func documentedKeys(text, section string) map[string]bool {
	keys := map[string]bool{}
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			inside = line == section
		case inside && strings.HasPrefix(line, "| `"):
			key, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
			keys[key] = true
		}
	}
	return keys
}
