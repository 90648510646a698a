//go:build envtest

package schedule

import (
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Within what time a manager has noticed that kinds came, or went: it asks for
// those that are served each minute.
const (
	noticed     = 45 * time.Second
	noticedGone = time.Minute + noticed
)

// testKinds: the CRDs of snapshots are missing when the manager starts, come,
// and go again, and the same process goes on.
func testKinds(t *testing.T) {
	crds := snapshotCRDs(t)
	remove(t, crds)
	ns := namespace(t, 2)
	m := start(t, options{running: true})
	s := byHand(t, ns, "once they are there")
	ready := func(reason string) func() error {
		return func() error {
			if c := meta.FindStatusCondition(status(t, s).Conditions, "Ready"); c == nil || c.Reason != reason {
				return fmt.Errorf("Ready is %+v, want %s", c, reason)
			}
			return nil
		}
	}
	eventually(t, "it says that the kinds are missing", noticed, ready(v1alpha1.ReasonSnapshotKindsMissing))
	for _, name := range []string{"holdfast_schedule_expected_interval_seconds", "holdfast_schedule_active_since_timestamp_seconds", "holdfast_schedule_last_success_timestamp_seconds"} {
		eventually(t, name+" can raise an alert", noticed, func() error {
			if n := m.series(name, ns); n != 1 {
				return fmt.Errorf("%d series", n)
			}
			return nil
		})
	}

	install(t, crds)
	create(t, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "came-late", Annotations: map[string]string{defaultClassAnnotation: "true"}},
		Driver:     driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	})
	eventually(t, "the run that waited is made", noticed, func() error {
		if n := len(taken(t, s)); n != 2 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
	for _, o := range taken(t, s) {
		progress(t, o, cutAt(time.Now(), true))
	}
	eventually(t, "the watch that came late works", noticed, func() error {
		if n := status(t, s).ReadyCount; n != 2 {
			return fmt.Errorf("%d are ready", n)
		}
		return nil
	})

	remove(t, crds)
	eventually(t, "it says so once they are gone", noticedGone, ready(v1alpha1.ReasonSnapshotKindsMissing))
	install(t, crds)
	eventually(t, "and goes on once they are back", noticed, func() error {
		if err := ready(v1alpha1.ReasonSnapshotKindsMissing)(); err == nil {
			return fmt.Errorf("still missing")
		}
		return nil
	})
}

// snapshotCRDs are those of the snapshot-controller, as installed.
func snapshotCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	s := scheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.Group == "snapshot.storage.k8s.io" {
			crds = append(crds, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Annotations: d.Annotations}, Spec: d.Spec})
		}
	}
	if len(crds) != 3 {
		t.Fatalf("%d CRDs of snapshots, want 3", len(crds))
	}
	return crds
}

// install brings CRDs back.
func install(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if _, err := envtest.InstallCRDs(server.cfg, envtest.CRDInstallOptions{CRDs: copiesOf(crds)}); err != nil {
		t.Fatal(err)
	}
}

// remove takes CRDs away, with all of their objects, and waits for it.
func remove(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if err := envtest.UninstallCRDs(server.cfg, envtest.CRDInstallOptions{CRDs: copiesOf(crds)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRDs go", noticed, func() error {
		err := server.client.List(t.Context(), &snapshotv1.VolumeSnapshotList{})
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("listing answers %w", err)
		}
		return nil
	})
}

func copiesOf(crds []*apiextensionsv1.CustomResourceDefinition) (all []*apiextensionsv1.CustomResourceDefinition) {
	for _, d := range crds {
		all = append(all, d.DeepCopy())
	}
	return all
}
