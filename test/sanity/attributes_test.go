//go:build sanity

package sanity

import "os"

// attributes writes what a VolumeAttributesClass holds and names the file.
func (b *bench) attributes() string {
	b.t.Helper()
	path := b.path("attributes.yaml")
	if err := os.WriteFile(path, []byte("throughput: \"250\"\ntagSpecification_1: tier=gold\n"), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}
