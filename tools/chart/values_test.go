package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the table of values in the chart's README")

const (
	controllerPods = "Deployment/holdfast-controller.spec.template.spec"
	managerPods    = "Deployment/holdfast-manager.spec.template.spec"
	nodePods       = "DaemonSet/holdfast-node.spec.template.spec"
)

// changed is a row of what each value changes: the value, and every line that
// is then another than by default.
var changed = map[string]struct {
	set  string
	want []string
}{
	"images.repository": {"images: {repository: registry.example.com/holdfast}", []string{
		nodePods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-driver-node:v0.1.0 -> registry.example.com/holdfast/holdfast-driver-node:v0.1.0",
		controllerPods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-driver:v0.1.0 -> registry.example.com/holdfast/holdfast-driver:v0.1.0",
		managerPods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-manager:v0.1.0 -> registry.example.com/holdfast/holdfast-manager:v0.1.0",
	}},
	"images.tag": {"images: {tag: v9.9.9}", []string{
		nodePods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-driver-node:v0.1.0 -> ghcr.io/holdfast-dev/holdfast-driver-node:v9.9.9",
		controllerPods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-driver:v0.1.0 -> ghcr.io/holdfast-dev/holdfast-driver:v9.9.9",
		managerPods + ".containers[0].image: ghcr.io/holdfast-dev/holdfast-manager:v0.1.0 -> ghcr.io/holdfast-dev/holdfast-manager:v9.9.9",
	}},
	"images.sidecarRepository": {"images: {sidecarRepository: 'localhost:5000/csi'}", []string{
		controllerPods + ".containers[1].image: registry.k8s.io/sig-storage/csi-provisioner:v6.4.0 -> localhost:5000/csi/csi-provisioner:v6.4.0",
		controllerPods + ".containers[2].image: registry.k8s.io/sig-storage/csi-attacher:v4.13.0 -> localhost:5000/csi/csi-attacher:v4.13.0",
		controllerPods + ".containers[3].image: registry.k8s.io/sig-storage/csi-resizer:v2.3.0 -> localhost:5000/csi/csi-resizer:v2.3.0",
		controllerPods + ".containers[4].image: registry.k8s.io/sig-storage/csi-snapshotter:v8.7.0 -> localhost:5000/csi/csi-snapshotter:v8.7.0",
	}},
	"images.pullPolicy": {"images: {pullPolicy: Always}", []string{
		nodePods + ".containers[0].imagePullPolicy: IfNotPresent -> Always",
		controllerPods + ".containers[0].imagePullPolicy: IfNotPresent -> Always",
		controllerPods + ".containers[1].imagePullPolicy: IfNotPresent -> Always",
		controllerPods + ".containers[2].imagePullPolicy: IfNotPresent -> Always",
		controllerPods + ".containers[3].imagePullPolicy: IfNotPresent -> Always",
		controllerPods + ".containers[4].imagePullPolicy: IfNotPresent -> Always",
		managerPods + ".containers[0].imagePullPolicy: IfNotPresent -> Always",
	}},
	"images.pullSecrets": {"images: {pullSecrets: [mirror]}", []string{
		nodePods + ".imagePullSecrets[0].name: + mirror",
		controllerPods + ".imagePullSecrets[0].name: + mirror",
		managerPods + ".imagePullSecrets[0].name: + mirror",
	}},
	"logLevel": {"logLevel: 1", []string{
		nodePods + ".containers[0].args[7]: + --v=1",
		controllerPods + ".containers[0].args[4]: + --v=1",
		managerPods + ".containers[0].args[1]: + --v=1",
	}},
	"driver.clusterID": {"driver: {clusterID: prod-1}", []string{
		controllerPods + ".containers[0].args[4]: + --k8s-tag-cluster-id=prod-1",
	}},
	"driver.extraTags": {"driver: {extraTags: {team: storage, cost center: '4711'}}", []string{
		controllerPods + ".containers[0].args[4]: + --extra-tags=cost center=4711,team=storage",
	}},
	"driver.controller.replicas": {"driver: {controller: {replicas: 3}}", []string{
		"Deployment/holdfast-controller.spec.replicas: 2 -> 3",
	}},
	"driver.controller.serviceAccountAnnotations": {"driver: {controller: {serviceAccountAnnotations: {a: b}}}", []string{
		"ServiceAccount/holdfast-controller.metadata.annotations.a: + b",
	}},
	"driver.controller.resources": {"driver: {controller: {resources: {limits: {memory: 1Gi}}}}", []string{
		controllerPods + ".containers[0].resources.limits.memory: 256Mi -> 1Gi",
	}},
	"driver.controller.sidecarResources": {"driver: {controller: {sidecarResources: {limits: {memory: 1Gi}}}}", []string{
		controllerPods + ".containers[1].resources.limits.memory: 256Mi -> 1Gi",
		controllerPods + ".containers[2].resources.limits.memory: 256Mi -> 1Gi",
		controllerPods + ".containers[3].resources.limits.memory: 256Mi -> 1Gi",
		controllerPods + ".containers[4].resources.limits.memory: 256Mi -> 1Gi",
	}},
	"driver.controller.nodeSelector": {"driver: {controller: {nodeSelector: {pool: system}}}", []string{
		controllerPods + ".nodeSelector.pool: + system",
	}},
	"driver.controller.tolerations": {"driver: {controller: {tolerations: [{key: pool, operator: Exists}]}}", []string{
		controllerPods + ".tolerations[3].key: + pool",
		controllerPods + ".tolerations[3].operator: + Exists",
	}},
	"driver.controller.affinity": {"driver: {controller: {affinity: {nodeAffinity: {a: b}}}}", []string{
		controllerPods + ".affinity.nodeAffinity.a: + b",
	}},
	"driver.controller.env": {"driver: {controller: {env: [{name: AWS_REGION, value: eu-west-1}]}}", []string{
		controllerPods + ".containers[0].env[0].name: + AWS_REGION",
		controllerPods + ".containers[0].env[0].value: + eu-west-1",
	}},
	"driver.controller.extraArgs": {"driver: {controller: {extraArgs: [--remove-startup-taint=false]}}", []string{
		controllerPods + ".containers[0].args[4]: + --remove-startup-taint=false",
	}},
	"driver.node.resources": {"driver: {node: {resources: {requests: {cpu: 1}}}}", []string{
		nodePods + ".containers[0].resources.requests.cpu: 10m -> 1",
	}},
	"driver.node.nodeSelector": {"driver: {node: {nodeSelector: {kubernetes.io/arch: arm64}}}", []string{
		nodePods + ".nodeSelector.kubernetes.io/arch: + arm64",
	}},
	"driver.node.tolerations": {"driver: {node: {tolerations: [{key: a, effect: NoSchedule}]}}", []string{
		nodePods + ".tolerations[1].effect: + NoSchedule",
		nodePods + ".tolerations[1].key: + a",
	}},
	"driver.node.affinity": {"driver: {node: {affinity: {nodeAffinity: {a: b}}}}", []string{
		nodePods + ".affinity.nodeAffinity.a: + b",
	}},
	"driver.node.extraArgs": {"driver: {node: {extraArgs: [--device-identity=xen]}}", []string{
		nodePods + ".containers[0].args[7]: + --device-identity=xen",
	}},
	"manager.replicas": {"manager: {replicas: 3}", []string{
		"Deployment/holdfast-manager.spec.replicas: 2 -> 3",
	}},
	"manager.resources": {"manager: {resources: {limits: {memory: 1Gi}}}", []string{
		managerPods + ".containers[0].resources.limits.memory: 256Mi -> 1Gi",
	}},
	"manager.nodeSelector": {"manager: {nodeSelector: {pool: system}}", []string{
		managerPods + ".nodeSelector.pool: + system",
	}},
	"manager.tolerations": {"manager: {tolerations: [{operator: Exists}]}", []string{
		managerPods + ".tolerations[1].operator: + Exists",
	}},
	"manager.affinity": {"manager: {affinity: {nodeAffinity: {a: b}}}", []string{
		managerPods + ".affinity.nodeAffinity.a: + b",
	}},
	"manager.extraArgs": {"manager: {extraArgs: [--metrics-address=]}", []string{
		managerPods + ".containers[0].args[1]: + --metrics-address=",
	}},
}

// elsewhere are values that TestChartIsConfig holds to a folder of config/, or
// that say what is installed at all.
var elsewhere = []string{"driver.enabled", "driver.selinux", "manager.enabled", "certManager.enabled", "hooks.enabled", "statefulSetRecreate.enabled", "monitoring.enabled", "monitoring.labels", "crds.install"}

func TestEachValueChangesOnly(t *testing.T) {
	plain := rendered(t, nil)
	for name, row := range changed {
		t.Run(name, func(t *testing.T) {
			got := changes(plain, rendered(t, values(t, row.set)))
			slices.Sort(row.want)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("changes with %s (-want +got)\n%s", row.set, diff)
			}
		})
	}
	t.Run("crds.install", func(t *testing.T) {
		for _, line := range changes(plain, rendered(t, values(t, "crds: {install: false}"))) {
			if !strings.HasPrefix(line, "CustomResourceDefinition/") {
				t.Errorf("crds.install=false changes %s", line)
			}
		}
	})
	t.Run("monitoring.labels", func(t *testing.T) {
		enabled := rendered(t, values(t, "monitoring: {enabled: true}"))
		got := changes(enabled, rendered(t, values(t, "monitoring: {enabled: true, labels: {release: prom}}")))
		slices.Sort(got)
		var want []string
		for _, name := range []string{"PodMonitor/holdfast-controller", "PodMonitor/holdfast-manager", "PrometheusRule/holdfast-driver", "PrometheusRule/holdfast-manager"} {
			want = append(want, name+".metadata.labels.release: + prom")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("changes with labels (-want +got)\n%s", diff)
		}
	})
	var have []string
	for _, v := range documented(t) {
		if v.leaf {
			have = append(have, v.path)
		}
	}
	want := append(slices.Collect(maps.Keys(changed)), elsewhere...)
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("values with a test and values of the schema (-tested +schema)\n%s", diff)
	}
}

// A wrong value stops helm before anything is rendered, and says where it is.
func TestWrongValuesAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"drvier: {}":                                                 "'drvier' not allowed",
		"driver: {controller: {replica: 2}}":                         "at '/driver/controller': additional properties 'replica' not allowed",
		"driver: {controller: {replicas: 0}}":                        "at '/driver/controller/replicas': minimum",
		"driver: {controller: {replicas: two}}":                      "at '/driver/controller/replicas': got string, want integer",
		"driver: {controller: {resources: {limit: {memory: 1Gi}}}}":  "at '/driver/controller/resources': additional properties 'limit' not allowed",
		"driver: {controller: {resources: {limits: {memory: 1GB}}}}": "at '/driver/controller/resources/limits/memory'",
		"driver: {controller: {tolerations: [{effects: x}]}}":        "at '/driver/controller/tolerations/0': additional properties 'effects' not allowed",
		"driver: {controller: {affinity: {nodeAfinity: {}}}}":        "at '/driver/controller/affinity': additional properties 'nodeAfinity' not allowed",
		"driver: {controller: {env: [{value: x}]}}":                  "at '/driver/controller/env/0': missing property 'name'",
		"driver: {controller: {extraArgs: ['v=1']}}":                 "at '/driver/controller/extraArgs/0'",
		"driver: {controller: {extraArgs: --v=1}}":                   "at '/driver/controller/extraArgs': got string, want array",
		"driver: {extraTags: {team: 'a,b'}}":                         "at '/driver/extraTags/team'",
		"driver: {extraTags: {'a=b': c}}":                            "at '/driver/extraTags': additional properties 'a=b' not allowed",
		"driver: {enabled: 'yes'}":                                   "at '/driver/enabled': got string, want boolean",
		"driver: {clusterID: 'a b'}":                                 "at '/driver/clusterID'",
		"manager: {replicas: 1}":                                     "at '/manager/replicas': minimum",
		"images: {pullPolicy: Sometimes}":                            "at '/images/pullPolicy': value must be one of",
		"images: {repository: ''}":                                   "at '/images/repository'",
		"images: {tag: 'v1:2'}":                                      "at '/images/tag'",
		"logLevel: 7":                                                "at '/logLevel': value must be one of",
		"certManager: {issuer: x}":                                   "at '/certManager': additional properties 'issuer' not allowed",
		"statefulSetRecreate: {enabled: 1}":                          "at '/statefulSetRecreate/enabled': got number, want boolean",
		"hooks: {enabled: 1}":                                        "at '/hooks/enabled': got number, want boolean",
		"crds: {keep: false}":                                        "at '/crds': additional properties 'keep' not allowed",
	} {
		if _, err := template(load(t, source), "holdfast-system", values(t, set)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", set, err, want)
		}
	}
	// As a part of an umbrella chart it is given Helm's own key.
	if _, err := template(load(t, source), "holdfast-system", values(t, "global: {team: storage}")); err != nil {
		t.Errorf("values that an umbrella chart shares: %v", err)
	}
}

// value is a property of the schema.
type value struct {
	path, description, allowed string
	leaf                       bool
	standard                   any
}

// schema is the part of JSON schema that the chart's uses.
type schema struct {
	Type                 any               `json:"type"`
	Ref                  string            `json:"$ref"`
	Description          string            `json:"description"`
	Enum                 []any             `json:"enum"`
	Minimum              *int              `json:"minimum"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties *bool             `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	Defs                 map[string]schema `json:"$defs"`
}

func readSchema(t testing.TB) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal([]byte(read(t, filepath.Join(source, "values.schema.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Every object of the schema is closed, but for those whose inside is
// Kubernetes' own, which the API server checks, and Helm's key.
func TestSchemaIsClosed(t *testing.T) {
	open := []string{"/global", "/$defs/affinity/nodeAffinity", "/$defs/affinity/podAffinity", "/$defs/affinity/podAntiAffinity", "/$defs/env[]/valueFrom"}
	var walk func(path string, s schema)
	walk = func(path string, s schema) {
		if s.Type == "object" && (s.AdditionalProperties == nil || *s.AdditionalProperties) && !slices.Contains(open, path) {
			t.Errorf("%s takes any key: a typing error in it would be ignored", path)
		}
		for name, p := range s.Properties {
			walk(path+"/"+name, p)
		}
		for name, d := range s.Defs {
			walk(path+"/$defs/"+name, d)
		}
		if s.Items != nil {
			walk(path+"[]", *s.Items)
		}
	}
	walk("", readSchema(t))
}

// documented are the values of the schema with those of values.yaml, which must
// have the same ones.
func documented(t testing.TB) []value {
	t.Helper()
	var standard map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(source, "values.yaml"))), &standard); err != nil {
		t.Fatal(err)
	}
	var all []value
	var walk func(path string, s schema, standard map[string]any)
	walk = func(path string, s schema, standard map[string]any) {
		for name := range standard {
			if _, there := s.Properties[name]; !there {
				t.Errorf("values.yaml has %s%s, the schema has not", path, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			p, at := s.Properties[name], path+name
			if at == "global" {
				continue
			}
			if p.Description == "" {
				t.Errorf("%s has no description", at)
			}
			v, there := standard[name]
			if !there {
				t.Errorf("the schema has %s, values.yaml has not", at)
			}
			below, _ := v.(map[string]any)
			leaf := len(p.Properties) == 0
			all = append(all, value{path: at, description: p.Description, allowed: p.allowed(), leaf: leaf, standard: v})
			if !leaf {
				walk(at+".", p, below)
			}
		}
	}
	walk("", readSchema(t), standard)
	return all
}

// allowed says in a few words what a value may be.
func (s schema) allowed() string {
	switch {
	case s.Enum != nil:
		var words []string
		for _, e := range s.Enum {
			words = append(words, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(words, ", ")
	case s.Minimum != nil:
		return fmt.Sprintf("%v, at least %d", s.Type, *s.Minimum)
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/$defs/")
	}
	return fmt.Sprint(s.Type)
}

// The README's table is made of the schema and values.yaml: -update writes it.
func TestREADMEListsTheValues(t *testing.T) {
	const begin, end = "<!-- values: written by make generate -->\n", "<!-- end of values -->"
	var table strings.Builder
	table.WriteString("| value | what | allowed | default |\n|---|---|---|---|\n")
	for _, v := range documented(t) {
		if !v.leaf {
			continue
		}
		standard, err := json.Marshal(v.standard)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | `%s` |\n", v.path, v.description, v.allowed, standard)
	}
	file := filepath.Join(source, "README.md")
	text := read(t, file)
	head, rest, found := strings.Cut(text, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", file)
	}
	want := head + begin + table.String() + end + tail
	if want == text {
		return
	}
	if !*update {
		t.Fatalf("%s is not what schema and values.yaml say: run make generate\n%s", file, cmp.Diff(want, text))
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
