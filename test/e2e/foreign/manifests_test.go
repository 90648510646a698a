package foreign

import (
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestManifestsStandBesideOurs: the driver that is not ours is installed beside
// Holdfast and taken away again, so it has no object in common with it.
func TestManifestsStandBesideOurs(t *testing.T) {
	ours := objects(t, "../../../config/overlays/sandbox")
	foreign := objects(t, "testdata")
	if len(foreign) < 20 {
		t.Errorf("only %d objects: %v", len(foreign), foreign)
	}
	for id := range foreign {
		if ours[id] {
			t.Errorf("%s is Holdfast's own", id)
		}
	}
	if !foreign["CSIDriver//block.example.com"] {
		t.Errorf("there is no CSIDriver block.example.com in %v", foreign)
	}
}

// objects are the objects of a folder, as kind/namespace/name.
func objects(t *testing.T, dir string) map[string]bool {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	all := map[string]bool{}
	for _, r := range resources.Resources() {
		all[strings.Join([]string{r.GetKind(), r.GetNamespace(), r.GetName()}, "/")] = true
	}
	return all
}
