package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// source is the chart's folder, configuration that of what it is made from.
const (
	source        = "../../charts/holdfast"
	configuration = "../../config"
)

// objects are rendered objects by "Kind/name".
type objects map[string]map[string]any

// load reads the chart as helm does.
func load(t testing.TB, path string) *chartv2.Chart {
	t.Helper()
	c, err := loader.Load(path)
	if err != nil {
		t.Fatalf("load the chart %s: %v", path, err)
	}
	return c
}

// values reads YAML texts, the later over the earlier as with several -f.
func values(t testing.TB, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		var v map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
			t.Fatalf("values %q: %v", text, err)
		}
		merge(all, v)
	}
	return all
}

func merge(into, from map[string]any) {
	for key, v := range from {
		below, isMap := v.(map[string]any)
		if there, was := into[key].(map[string]any); isMap && was {
			merge(there, below)
			continue
		}
		into[key] = v
	}
}

// template is `helm template holdfast charts/holdfast --namespace holdfast-system`.
func template(c *chartv2.Chart, namespace string, v map[string]any) (objects, error) {
	install := action.NewInstall(&action.Configuration{})
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace = "holdfast", namespace
	install.KubeVersion = &common.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}
	made, err := install.Run(c, v)
	if err != nil {
		return nil, err
	}
	all := objects{}
	for _, text := range regexp.MustCompile(`(?m)^---\n`).Split(made.(*releasev1.Release).Manifest, -1) {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
			return nil, fmt.Errorf("what helm rendered: %w\n%s", err, text)
		}
		if o == nil {
			continue // comments
		}
		if err := all.add(o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rendered is template with the namespace that the chart wants.
func rendered(t testing.TB, v map[string]any) objects {
	t.Helper()
	all, err := template(load(t, source), "holdfast-system", v)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kustomized is what `kubectl apply -k` applies.
func kustomized(t testing.TB, dir string) objects {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(configuration, dir))
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	all := objects{}
	for _, r := range resources.Resources() {
		raw, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		if err := all.add(o); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (all objects) add(o map[string]any) error {
	name := fmt.Sprint(o["kind"], "/", o["metadata"].(map[string]any)["name"])
	if all[name] != nil {
		return fmt.Errorf("%s is there twice", name)
	}
	all[name] = o
	return nil
}

// withoutHelm takes away what Helm adds to objects of the chart, and holds that
// it is there.
func (all objects) withoutHelm(t testing.TB) objects {
	t.Helper()
	for name, o := range all {
		metadata := o["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		if labels["app.kubernetes.io/managed-by"] != "Helm" || labels["helm.sh/chart"] != "holdfast-"+load(t, source).Metadata.Version {
			t.Errorf("%s has not Helm's labels: %v", name, labels)
		}
		delete(labels, "app.kubernetes.io/managed-by")
		delete(labels, "helm.sh/chart")
		annotations, _ := metadata["annotations"].(map[string]any)
		if kept := annotations["helm.sh/resource-policy"] == "keep"; kept != strings.HasPrefix(name, "CustomResourceDefinition/") {
			t.Errorf("%s is kept by an uninstallation: %v", name, kept)
		}
		delete(annotations, "helm.sh/resource-policy")
		for key, left := range map[string]map[string]any{"labels": labels, "annotations": annotations} {
			if len(left) == 0 {
				delete(metadata, key)
			}
		}
	}
	return all
}

// changes lists where two sets of objects differ, a line a place, sorted.
func changes(before, after objects) []string {
	old, now := before.leaves(), after.leaves()
	var lines []string
	for path, v := range now {
		switch was, there := old[path]; {
		case !there:
			lines = append(lines, path+": + "+v)
		case was != v:
			lines = append(lines, path+": "+was+" -> "+v)
		}
	}
	for path, v := range old {
		if _, there := now[path]; !there {
			lines = append(lines, path+": - "+v)
		}
	}
	slices.Sort(lines)
	return lines
}

// leaves are the scalar values by their path.
func (all objects) leaves() map[string]string {
	out := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(path+"."+key, v[key])
			}
			if len(v) == 0 {
				out[path] = "{}"
			}
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), item)
			}
			if len(v) == 0 {
				out[path] = "[]"
			}
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	for name, o := range all {
		walk(name, o)
	}
	return out
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
