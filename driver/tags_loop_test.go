package driver

import "testing"

// A range over a number would go on for ages, and no context ends it.
func TestTemplatesDoNotLoop(t *testing.T) {
	for text, fine := range map[string]bool{
		`{{ range 9223372036854775807 }}{{ end }}`:                                                false,
		`{{ if true }}{{ else }}{{ range 9 }}x{{ end }}{{ end }}`:                                 false,
		`{{ define "a" }}{{ with 1 }}{{ range 9 }}x{{ end }}{{ end }}{{ end }}{{ template "a" }}`: false,
		`{{ if contains "a" .PVCName }}x{{ else }}y{{ end }}`:                                     true,
	} {
		if v, err := fillTemplate(text, map[string]string{"PVCName": "abc"}); (err == nil) != fine {
			t.Errorf("%s: %q, %v; want it taken: %v", text, v, err, fine)
		}
	}
}
