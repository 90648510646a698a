package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
)

// run executes the command line and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestListShowsEveryImageWithItsPurpose(t *testing.T) {
	out, err := run(t, "list")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(catalog.Names()) {
		t.Errorf("%d lines for %d images:\n%s", len(lines), len(catalog.Names()), out)
	}
	for i, name := range catalog.Names() {
		if fields := strings.Fields(lines[i]); fields[0] != name || len(fields) < 4 {
			t.Errorf("line %q does not say what %s is", lines[i], name)
		}
	}
}

func TestBadInputIsOneSentence(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown image":     {[]string{"build", "--out", t.TempDir(), "--only", "drvier"}, `there is no image "drvier": choose from driver, driver-node`},
		"unwritable folder": {[]string{"build", "--out", "/proc/images", "--only", "pause"}, "folder of the images: mkdir /proc/images"},
		"no such toolchain": {[]string{"build", "--out", t.TempDir(), "--only", "csi-resizer", "--binaries", "/no/such"}, "csi-resizer is not in /no/such: `go run ./cmd/sandbox build`"},
		"occupied folder":   {[]string{"rootfs", "pause", ".."}, "folder .. is not empty"},
		"no version":        {[]string{"build", "--out", t.TempDir(), "--version", ""}, "no version given"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v\nwant one line with %q", err, tc.want)
			}
		})
	}
}
