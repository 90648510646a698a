package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every flag of every subcommand has a row in docs/driver.md, with its default,
// and every row there has its flag.
func TestEveryFlagIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/driver.md")
	if err != nil {
		t.Fatal(err)
	}
	_, flags, found := strings.Cut(string(data), "\n## Flags\n")
	if !found {
		t.Fatal("docs/driver.md has no section Flags")
	}
	flags, _, _ = strings.Cut(flags, "\n## ")
	for _, cmd := range newRootCommand().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		_, section, found := strings.Cut(flags, "\n### `"+cmd.Name()+"`\n")
		if !found {
			t.Errorf("docs/driver.md: no section for %s", cmd.Name())
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		compareFlags(t, cmd, rowsOf(section))
	}
}

// rowsOf reads a table of flags: defaults by flag.
func rowsOf(section string) map[string]string {
	rows := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.HasPrefix(cells[1], " `--") {
			rows[strings.Trim(cells[1], " `-")] = strings.Trim(cells[2], " `")
		}
	}
	return rows
}

// flagName finds the names in a help text.
var flagName = regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z0-9-]+)`)

func compareFlags(t *testing.T, cmd *cobra.Command, rows map[string]string) {
	t.Helper()
	flags := cmd.LocalNonPersistentFlags()
	for _, match := range flagName.FindAllStringSubmatch(flags.FlagUsages(), -1) {
		name := match[1]
		if name == "help" {
			continue
		}
		want := flags.Lookup(name).DefValue
		if want == "" {
			want = "–"
		}
		if got, there := rows[name]; !there || got != want {
			t.Errorf("docs/driver.md: %s: --%s has default %q, the row says %q (a row there is: %t)", cmd.Name(), name, want, got, there)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/driver.md: %s has no flag --%s", cmd.Name(), name)
	}
}
