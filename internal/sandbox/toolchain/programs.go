package toolchain

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Set is a number of programs that are built together, into one folder.
type Set string

// The sets. A change of one's pins builds nothing of another's again.
const (
	// Cluster is what a sandbox is made of.
	Cluster Set = "cluster"
	// Suite is Kubernetes' end-to-end suite: e2e.test, agnhost, which most of its
	// Pods run, and ginkgo, which runs its specs side by side.
	Suite Set = "suite"
)

// module is a folder below sandbox/ with a go.mod, and what is built from it.
type module struct {
	name     string
	tags     string
	ldflags  string
	packages []string
	// tests are packages whose tests are built as a program.
	tests []string
	// version, if set, is the Go module whose version the programs report.
	version string
}

// strip leaves out symbol tables: they double the size of what nobody debugs here.
const strip = "-s -w"

// modules is all that is built, those first that a cluster cannot do without.
var modules = map[Set][]module{Cluster: {
	{
		name: "kubernetes", ldflags: strip, version: "k8s.io/kubernetes",
		packages: []string{
			"k8s.io/kubernetes/cmd/kube-apiserver",
			"k8s.io/kubernetes/cmd/kube-controller-manager",
			"k8s.io/kubernetes/cmd/kube-scheduler",
			"k8s.io/kubernetes/cmd/kubelet",
			"k8s.io/kubernetes/cmd/kubectl",
			"k8s.io/kubernetes/cmd/kube-proxy",
		},
	},
	{name: "etcd", ldflags: strip, packages: []string{"go.etcd.io/etcd/server/v3"}},
	{
		// The btrfs and devmapper snapshotters need C libraries.
		name: "containerd", ldflags: strip, tags: "no_btrfs,no_devmapper",
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
	},
	{
		name: "csi", ldflags: strip,
		packages: []string{
			"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
			"github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
			"github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
			"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
			"github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
			"github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
		},
	},
}, Suite: {
	{
		name: "e2e", ldflags: strip, version: "k8s.io/kubernetes",
		packages: []string{
			"k8s.io/kubernetes/test/images/agnhost",
			"github.com/onsi/ginkgo/v2/ginkgo",
		},
		tests: []string{"k8s.io/kubernetes/test/e2e"},
	},
}}

// crdModule ships the VolumeSnapshot definitions, in crdFolder; it is pinned by
// the module of this name.
const (
	crdModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"
	crdFolder = "config/crd"
	crdPin    = "csi"
)

// programName is the file that a package is built to. etcd's command is the root
// of its module, whose path ends in "server/v3".
func programName(pkg string) string {
	if pkg == "go.etcd.io/etcd/server/v3" {
		return "etcd"
	}
	return path.Base(pkg)
}

// linkFlags is what the linker is told. Kubernetes' programs take their version
// from there: without, they say "v0.0.0-master+$Format:%H$", which the API shows
// as the version of servers and nodes.
func (m module) linkFlags(goMod string) (string, error) {
	if m.version == "" {
		return m.ldflags, nil
	}
	version, err := requiredVersion(goMod, m.version)
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("version %q of %s in sandbox/%s/go.mod has no major, minor and patch", version, m.version, m.name)
	}
	const at = " -X k8s.io/component-base/version."
	return m.ldflags + at + "gitVersion=" + version + at + "gitMajor=" + parts[0] + at + "gitMinor=" + parts[1] + at + "gitTreeState=clean", nil
}

// requiredVersion finds the version of a module in the text of a go.mod.
func requiredVersion(goMod, modulePath string) (string, error) {
	re := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(modulePath) + `\s+(v\S+)`)
	m := re.FindStringSubmatch(goMod)
	if m == nil {
		return "", fmt.Errorf("no requirement of %s in go.mod", modulePath)
	}
	return m[1], nil
}
