package examples

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
)

// manifest is one object of one file.
type manifest struct {
	file   string
	object runtime.Object
}

// folders returns the examples.
func folders(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("[0-9][0-9]-*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("examples: %v, %v", dirs, err)
	}
	return dirs
}

// manifests decodes every object of an example; a field that Kubernetes does
// not know is an error.
func manifests(t *testing.T, dir string) []manifest {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: manifests %v, %v", dir, files, err)
	}
	var out []manifest
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range bytes.Split(data, []byte("\n---\n")) {
			object, _, err := strict.Decode(doc, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, manifest{file, object})
		}
	}
	return out
}

// Whoever applies an example must be able to take it away again, and to apply
// all of them side by side.
func TestExamplesKeepToTheirNamespace(t *testing.T) {
	for _, dir := range folders(t) {
		own := "example-" + dir[:2]
		for _, m := range manifests(t, dir) {
			o, err := meta.Accessor(m.object)
			if err != nil {
				t.Fatal(err)
			}
			switch m.object.(type) {
			case *corev1.Namespace:
				if o.GetName() != own {
					t.Errorf("%s: namespace %s, want %s", m.file, o.GetName(), own)
				}
			case *storagev1.StorageClass, *storagev1.VolumeAttributesClass, *snapshotv1.VolumeSnapshotClass, *groupsnapshotv1.VolumeGroupSnapshotClass, *v1alpha1.StoragePolicy:
				if !strings.HasPrefix(o.GetName(), own+"-") {
					t.Errorf("%s: %s is the whole cluster's: its name is to begin with %s-", m.file, o.GetName(), own)
				}
			default:
				if o.GetNamespace() != own {
					t.Errorf("%s: %s is in namespace %q, want %s", m.file, o.GetName(), o.GetNamespace(), own)
				}
			}
		}
	}
}

// The class of a claim or a snapshot is one of the same example.
func TestExamplesNameTheirOwnClasses(t *testing.T) {
	for _, dir := range folders(t) {
		all := manifests(t, dir)
		var made []string
		for _, m := range all {
			switch c := m.object.(type) {
			case *storagev1.StorageClass:
				made = append(made, c.Name)
				if *c.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer && !isRefused(m.file) {
					t.Errorf("%s: class %s makes volumes before it is known in which zone", m.file, c.Name)
				}
			case *snapshotv1.VolumeSnapshotClass:
				made = append(made, c.Name)
			case *groupsnapshotv1.VolumeGroupSnapshotClass:
				made = append(made, c.Name)
			case *storagev1.VolumeAttributesClass:
				made = append(made, c.Name)
			}
		}
		for _, m := range all {
			for _, used := range classesOf(m.object) {
				if !slices.Contains(made, used) {
					t.Errorf("%s: class %q is none of the example's: %v", m.file, used, made)
				}
			}
		}
	}
}

// isRefused says whether a manifest is there to be refused.
func isRefused(file string) bool { return strings.HasSuffix(file, "-refused.yaml") }

func classesOf(o runtime.Object) []string {
	var classes []string
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		if c := o.Spec.StorageClassName; c != nil {
			classes = append(classes, *c)
		}
		if c := o.Spec.VolumeAttributesClassName; c != nil {
			classes = append(classes, *c)
		}
		if c := o.Annotations[v1alpha1.AnnotationSnapshotClass]; c != "" {
			classes = append(classes, c)
		}
	case *appsv1.StatefulSet:
		for _, c := range o.Spec.VolumeClaimTemplates {
			classes = append(classes, *c.Spec.StorageClassName)
		}
	case *snapshotv1.VolumeSnapshot:
		classes = append(classes, *o.Spec.VolumeSnapshotClassName)
	case *v1alpha1.SnapshotSchedule:
		if c := o.Spec.SnapshotClassName; c != "" {
			classes = append(classes, c)
		}
		if c := o.Spec.GroupSnapshotClassName; c != "" {
			classes = append(classes, c)
		}
		for _, c := range o.Spec.SnapshotClassNamesByDriver {
			classes = append(classes, c.Name)
		}
	case *groupsnapshotv1.VolumeGroupSnapshot:
		classes = append(classes, *o.Spec.VolumeGroupSnapshotClassName)
	}
	return classes
}

// What the webhook would refuse is refused here.
func TestExampleSchedulesCanBeActedOn(t *testing.T) {
	seen := 0
	for _, dir := range folders(t) {
		for _, m := range manifests(t, dir) {
			s, is := m.object.(*v1alpha1.SnapshotSchedule)
			if !is {
				continue
			}
			seen++
			if _, errs := schedule.Compile(&s.Spec); len(errs) > 0 {
				t.Errorf("%s: %v", m.file, errs.ToAggregate())
			}
		}
	}
	if seen == 0 {
		t.Error("no example has a SnapshotSchedule")
	}
}

// Examples are copied: they confine their Pods, and cost little.
func TestExamplesAreConfinedAndSmall(t *testing.T) {
	limit := resource.MustParse("4Gi")
	for _, dir := range folders(t) {
		level := ""
		for _, m := range manifests(t, dir) {
			switch o := m.object.(type) {
			case *corev1.Namespace:
				level = o.Labels["pod-security.kubernetes.io/enforce"]
				if level != "restricted" && level != "baseline" {
					t.Errorf("%s: Pod Security level %q", m.file, level)
				}
			case *corev1.PersistentVolumeClaim:
				if size := o.Spec.Resources.Requests.Storage(); size.Cmp(limit) > 0 {
					t.Errorf("%s: claim of %s, want at most %s", m.file, size, limit.String())
				}
			case *corev1.Pod:
				judgePod(t, m.file, level, o.Spec)
			case *appsv1.StatefulSet:
				judgePod(t, m.file, level, o.Spec.Template.Spec)
			}
		}
	}
}

// images are those that package catalog can make.
var images = []string{"docker.io/library/busybox:1.37", "docker.io/library/postgres:17"}

func judgePod(t *testing.T, file, level string, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: no seccomp profile", file)
	}
	if level == "restricted" && (s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot) {
		t.Errorf("%s: the Pod may run as root, which its namespace refuses", file)
	}
	for _, c := range pod.Containers {
		if !slices.Contains(images, c.Image) {
			t.Errorf("%s: image %s: clusters without a registry have %v only", file, c.Image, images)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: container %s has no memory limit", file, c.Name)
		}
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container %s may gain privileges or keeps capabilities", file, c.Name)
		}
	}
}

// A README that names a file that is not there, or forgets one, is worth nothing.
func TestREADMEsApplyEveryFile(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`examples/([0-9][0-9]-[a-z0-9-]+/[0-9][0-9]-[a-zA-Z0-9-]+\.yaml)`)
	for _, dir := range folders(t) {
		if !bytes.Contains(index, fmt.Appendf(nil, "](%s/)", dir)) {
			t.Errorf("README.md does not list %s", dir)
		}
		readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, match := range named.FindAllStringSubmatch(string(readme), -1) {
			said = append(said, match[1])
			if _, err := os.Stat(match[1]); err != nil {
				t.Errorf("%s/README.md: %v", dir, err)
			}
		}
		wholeFolder := bytes.Contains(readme, fmt.Appendf(nil, "kubectl apply -f examples/%s/\n", dir))
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !wholeFolder && !slices.Contains(said, file) {
				t.Errorf("%s/README.md never applies %s", dir, filepath.Base(file))
			}
		}
	}
}
