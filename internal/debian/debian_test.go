package debian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURIs(t *testing.T) {
	got, err := parseURIs(`'http://deb.debian.org/debian/pool/main/liba/libacl/libacl1_2.3.1-3_amd64.deb' libacl1_2.3.1-3_amd64.deb 31488 SHA256:0a
'http://deb.debian.org/debian/pool/main/l/llvm/libllvm14_14.0.6-12_amd64.deb' libllvm14_1%3a14.0.6-12_amd64.deb 21840232 SHA256:0b
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{{"libacl1", "libacl1_2.3.1-3_amd64.deb"}, {"libllvm14", "libllvm14_1%3a14.0.6-12_amd64.deb"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got)\n%s", diff)
	}
	for name, out := range map[string]string{"nothing": "", "prose": "Reading package lists...\n", "no version": "'http://x/y.deb' y.deb 1 SHA256:0c\n"} {
		if got, err := parseURIs(out); err == nil {
			t.Errorf("%s: packages %v, want an error", name, got)
		}
	}
}

// A folder of an earlier call is the outcome: nothing is fetched again.
func TestUnpackTakesWhatIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "there")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(t.Context(), dir, "no-such-package-of-any-distribution"); err != nil {
		t.Error(err)
	}
}
