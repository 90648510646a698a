//go:build envtest

package webhooks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testExamples plays the examples of guardrails. What their READMEs show of
// refusals and warnings is what a user sees.
func testExamples(t *testing.T) {
	t.Run("16-database-tier", databaseTier)
	t.Run("17-development-tier", developmentTier)
	t.Run("18-pre-deployment-checklist", checklist)
	t.Run("22-scheduled-tier", scheduledTier)
	t.Run("five minutes", fiveMinutes)
	t.Run("a first policy", firstPolicy)
}

// example is a folder of examples/.
type example struct {
	*testing.T
	dir, namespace, readme string
}

// openExample reads the folder that the test is named after, and applies its
// namespace, classes and policy.
func openExample(t *testing.T) *example {
	t.Helper()
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	x := &example{T: t, dir: filepath.Join("..", "examples", name), namespace: "example-" + name[:2]}
	readme, err := os.ReadFile(filepath.Join(x.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	x.readme = string(readme)
	for _, number := range []string{"00", "10", "20"} {
		accepted(t, number, x.apply(number))
	}
	server.warnings.taken()
	return x
}

// objects are those of a manifest, told by its number.
func (x *example) objects(number string) []client.Object {
	x.Helper()
	files, err := filepath.Glob(filepath.Join(x.dir, number+"-*.yaml"))
	if err != nil || len(files) != 1 {
		x.Fatalf("manifests %s of %s: %v, %v", number, x.dir, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		x.Fatal(err)
	}
	var objects []client.Object
	for _, doc := range strings.Split(string(data), "\n---\n") {
		objects = append(objects, decoded(x.T, doc))
	}
	return objects
}

// decoded is the object of a manifest. A field that is unknown is an error.
func decoded(t *testing.T, manifest string) client.Object {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme(), serializer.EnableStrict).UniversalDeserializer()
	object, _, err := strict.Decode([]byte(manifest), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	return object.(client.Object)
}

// guide is a section of docs/guardrails.md.
func guide(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "guardrails.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the guide has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// fiveMinutes does what the guide begins with, and sees what it shows.
func fiveMinutes(t *testing.T) {
	text := guide(t, "Five minutes")
	manifests := regexp.MustCompile(`(?s)<<'EOF'\n(.*?)\nEOF\n`).FindAllStringSubmatch(text, -1)
	if len(manifests) != 2 {
		t.Fatalf("the guide applies %d manifests, want a policy and a claim", len(manifests))
	}
	policy, claim := decoded(t, manifests[0][1]), decoded(t, manifests[1][1])
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "try", Labels: map[string]string{"tier": "db"}}}, policy)
	claim.SetNamespace("try")
	eventually(t, "the claim is refused", func() error {
		err := server.client.Create(t.Context(), claim.DeepCopyObject().(client.Object), client.DryRunAll)
		if err == nil {
			return errors.New("it is let through")
		}
		if _, message, _ := strings.Cut(err.Error(), " denied the request: "); message == "" || !strings.Contains(text, `admission webhook "claims.holdfast.dev" denied the request: `+message+"\n") {
			t.Fatalf("the guide shows another refusal than %v", err)
		}
		return nil
	})
	accepted(t, "the policy goes", server.client.Delete(t.Context(), policy))
}

// firstPolicy holds that the API server takes the policy that the guide gives.
func firstPolicy(t *testing.T) {
	_, manifest, _ := strings.Cut(guide(t, "A first policy"), "```yaml\n")
	manifest, _, _ = strings.Cut(manifest, "```\n")
	accepted(t, "the first policy of the guide", server.client.Create(t.Context(), decoded(t, manifest), client.DryRunAll))
}

// apply makes the objects of a manifest as kubectl does: on past a refusal.
func (x *example) apply(number string, options ...client.CreateOption) error {
	x.Helper()
	var errs []error
	for _, o := range x.objects(number) {
		errs = append(errs, server.client.Create(x.Context(), o, options...))
	}
	return errors.Join(errs...)
}

// holds waits until the policy refuses or warns of a manifest.
func (x *example) holds(number string) {
	x.Helper()
	eventually(x.T, "the policy holds", func() error {
		err := x.apply(number, client.DryRunAll)
		if apierrors.IsForbidden(err) || strings.Contains(server.warnings.taken(), "StoragePolicy") {
			return nil
		}
		return fmt.Errorf("%s is let through in silence: %w", number, err)
	})
	server.warnings.taken()
}

// refusedAsWritten holds that err is a refusal, and that the README shows it.
func (x *example) refusedAsWritten(what string, err error) {
	x.Helper()
	if err == nil {
		x.Fatalf("%s is let through", what)
	}
	_, message, found := strings.Cut(err.Error(), " denied the request: ")
	if !found || !strings.Contains(x.readme, message) {
		x.Errorf("%s: README.md does not show the refusal:\n%v", what, err)
	}
}

// warnedAsWritten holds that there were warnings, and that the README shows each.
func (x *example) warnedAsWritten(what string, err error) {
	x.Helper()
	accepted(x.T, what, err)
	warned := server.warnings.taken()
	if warned == "" {
		x.Errorf("%s: no warning", what)
	}
	for w := range strings.Lines(warned) {
		if w = strings.TrimSpace(w); !strings.Contains(x.readme, "Warning: "+w) {
			x.Errorf("%s: README.md does not show the warning:\n%s", what, w)
		}
	}
}

// quietly holds that the manifest is accepted without a warning, once the
// informers have seen what goes before.
func (x *example) quietly(number string) {
	x.Helper()
	objects := x.objects(number)
	before, last := objects[:len(objects)-1], objects[len(objects)-1]
	create(x.T, before...)
	eventually(x.T, number+" is accepted without a warning", func() error {
		server.warnings.taken()
		err := server.client.Create(x.Context(), last.DeepCopyObject().(client.Object), client.DryRunAll)
		if w := server.warnings.taken(); err == nil && w != "" {
			return errors.New(w)
		}
		return err
	})
	create(x.T, last)
}

func databaseTier(t *testing.T) {
	x := openExample(t)
	ctx, c := t.Context(), server.client
	x.holds("50")
	x.quietly("30")
	x.refusedAsWritten("a claim of a bad class", x.apply("40"))
	x.refusedAsWritten("a set that deletes its data", c.Create(ctx, x.objects("50")[2]))

	for _, ordinal := range []string{"0", "1"} { // as the StatefulSet controller and the driver do
		data := claimOf(x.namespace, "data-postgresql-"+ordinal, "1Gi", func(p *corev1.PersistentVolumeClaim) {
			p.Labels, p.Spec.StorageClassName = map[string]string{"app": "postgresql"}, ptr("example-16-gp3")
			bound(p)
		})
		create(t, data)
		data.Status.Phase = corev1.ClaimBound
		accepted(t, "bind", c.Status().Update(ctx, data))
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "data-postgresql-1"}}
	grown := claim.DeepCopy()
	accepted(t, "read", c.Get(ctx, client.ObjectKeyFromObject(grown), grown))
	grown.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("10Gi")
	x.refusedAsWritten("a claim that grows tenfold", c.Update(ctx, grown))

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "postgresql"}}
	scale := func() error {
		return c.SubResource("scale").Update(ctx, set.DeepCopy(), client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}), client.DryRunAll)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: x.namespace}}
	eventually(t, "the claims are seen", func() error {
		if err := c.Delete(ctx, namespace.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "postgresql-0") || !strings.Contains(err.Error(), "postgresql-1") {
			return fmt.Errorf("the namespace may go: %w", err)
		}
		return nil
	})
	x.refusedAsWritten("a smaller set", scale())
	x.refusedAsWritten("a claim's deletion", c.Delete(ctx, claim.DeepCopy()))

	accepted(t, "a snapshot", x.apply("60"))
	taken := x.objects("60")[0].(*snapshotv1.VolumeSnapshot)
	accepted(t, "read", c.Get(ctx, client.ObjectKeyFromObject(taken), taken))
	taken.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr(true), CreationTime: ptr(metav1.NewTime(time.Now().Add(time.Second)))}
	accepted(t, "the snapshot is ready", c.Status().Update(ctx, taken))
	eventually(t, "with it the set may be made smaller", scale)
	accepted(t, "and the claim deleted", c.Delete(ctx, claim.DeepCopy(), client.DryRunAll))
	x.refusedAsWritten("the namespace still holds the other claim", c.Delete(ctx, namespace))
}

func developmentTier(t *testing.T) {
	x := openExample(t)
	x.holds("50")
	accepted(t, "a claim that names no class", x.apply("30"))
	given := &corev1.PersistentVolumeClaim{}
	accepted(t, "read", server.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: "scratch"}, given))
	if class := given.Spec.StorageClassName; class == nil || *class != "example-17-gp3" {
		t.Errorf("the claim that names no class has %v, want the policy's", class)
	}
	server.warnings.taken()
	x.warnedAsWritten("a claim of an old class", x.apply("40"))
	x.refusedAsWritten("a claim too large", x.apply("50"))
	accepted(t, "data of development may go", server.client.Delete(t.Context(), given))
}

func checklist(t *testing.T) {
	x := openExample(t)
	x.holds("30")
	x.warnedAsWritten("a set that is not ready", x.apply("30", client.DryRunAll))
	x.quietly("40")
}

func scheduledTier(t *testing.T) {
	x := openExample(t)
	x.holds("40")
	x.quietly("30") // no controller runs here: the policy's schedule is not there yet
	x.refusedAsWritten("a claim that opts out", x.apply("40"))
	x.quietly("50")
}
