//go:build e2e

package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/version"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// The driver that is not ours, where testdata installs it, and its topology.
const (
	block       = "block.example.com"
	blockSystem = "block-system"
	rack        = "topology.block.example.com/rack"
)

// TestForeign: the manager starts in a cluster without snapshot kinds. They come,
// and claims of both drivers are copied, age out and are restored, while those
// that cannot be copied are named.
func TestForeign(t *testing.T) {
	system := stage.For(t, blockSystem)
	bringKinds := withoutKinds(system)
	install(system)
	s := stage.New(t)
	p := begin(s)
	p.waits()
	bringKinds()
	s.Step("the snapshot kinds have come")
	t.Run("beside", func(t *testing.T) {
		t.Run("policy", func(t *testing.T) {
			t.Parallel()
			testPolicy(t)
		})
		t.Run("copies", func(t *testing.T) {
			t.Parallel()
			p.Stage = s.With(t)
			p.copied()
		})
	})
}

// install brings the driver, and takes it away when the test ends.
func install(s *stage.Stage) {
	s.T.Helper()
	built, err := catalog.Build(s.T.Context(), catalog.Options{
		Out: filepath.Join(s.Root, "out", "images"), Binaries: s.Binaries(), Only: []string{"block-driver"}, Version: version.Version,
	})
	s.Must(err)
	s.Must(s.LoadImages(s.T.Context(), built[0].Path))
	s.T.Cleanup(func() { uninstall(s) })
	s.Run("apply", "-k", manifests(s))
	s.Run("-n", blockSystem, "rollout", "status", "deployment/block-holdfast-controller", "--timeout", stage.Patience.String())
	s.Run("-n", blockSystem, "rollout", "status", "daemonset/block-holdfast-node", "--timeout", stage.Patience.String())
	s.Eventually("every node is in a rack", func(ctx context.Context) (string, error) {
		var nodes corev1.NodeList
		err := s.Client.List(ctx, &nodes)
		for _, n := range nodes.Items {
			if n.Labels[rack] != "rack-"+n.Labels[corev1.LabelTopologyZone] {
				return fmt.Sprintf("%s is in %q", n.Name, n.Labels[rack]), err
			}
		}
		return "", err
	})
	s.Step("%s is installed", block)
}

func manifests(s *stage.Stage) string {
	return filepath.Join(s.Root, "test", "e2e", "foreign", "testdata")
}

// uninstall waits until nothing is left of the driver's volumes and copies, which
// only the driver can delete, and then takes the driver away.
func uninstall(s *stage.Stage) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stage.Patience)
	defer cancel()
	if s.T.Failed() {
		out, err := s.Kubectl(ctx, "-n", blockSystem, "logs", "-l", "app.kubernetes.io/name=holdfast", "--all-containers", "--prefix", "--tail=40", "--max-log-requests=20")
		s.T.Logf("logs of %s (%v)\n%s", block, err, out)
	}
	err := testenv.Eventually(ctx, stage.Patience, "nothing is left of "+block, func(ctx context.Context) (string, error) {
		var left []string
		var volumes corev1.PersistentVolumeList
		var attached storagev1.VolumeAttachmentList
		var contents snapshotv1.VolumeSnapshotContentList
		err := errors.Join(s.Client.List(ctx, &volumes), s.Client.List(ctx, &attached), client.IgnoreNotFound(s.Client.List(ctx, &contents)))
		for _, v := range volumes.Items {
			if v.Spec.CSI != nil && v.Spec.CSI.Driver == block {
				left = append(left, "volume "+v.Name)
			}
		}
		for _, a := range attached.Items {
			if a.Spec.Attacher == block {
				left = append(left, "attachment "+a.Name)
			}
		}
		for _, c := range contents.Items {
			if c.Spec.Driver != block {
				continue
			}
			left = append(left, "content "+c.Name)
			if s.T.Failed() { // a retained one would stay
				err = errors.Join(err, release(ctx, s, c.Name))
			}
		}
		return strings.Join(left, ", "), err
	})
	if err != nil {
		s.T.Error(err)
	}
	if out, err := s.Kubectl(ctx, "delete", "-k", manifests(s), "--ignore-not-found"); err != nil {
		s.T.Errorf("uninstall: %v\n%s", err, out)
	}
	if out, err := s.Kubectl(ctx, "label", "nodes", "--all", rack+"-"); err != nil {
		s.T.Errorf("take the nodes out of their racks: %v\n%s", err, out)
	}
	for _, n := range s.Nodes() {
		if out, err := s.NodeCommand(ctx, n.Name, "rm", "-rf", "/var/lib/kubelet/plugins/"+block); err != nil {
			s.T.Errorf("folder of the driver on %s: %v\n%s", n.Name, err, out)
		}
	}
}

// release has a content, and what it stands for, deleted.
func release(ctx context.Context, s *stage.Stage, content string) error {
	_, err := s.Kubectl(ctx, "patch", "volumesnapshotcontent", content, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	if err == nil {
		_, err = s.Kubectl(ctx, "delete", "volumesnapshotcontent", content, "--wait=false")
	}
	return err
}

// classOf has a StorageClass be another driver's.
func classOf(driver string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.Provisioner = driver }
}

// snapshotClass makes a VolumeSnapshotClass of the driver that is not ours.
func snapshotClass(s *stage.Stage, suffix string, policy snapshotv1.DeletionPolicy) string {
	s.T.Helper()
	c := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + suffix}, Driver: block, DeletionPolicy: policy}
	s.Create(c)
	return c.Name
}

// apply has kubectl apply a manifest.
func apply(s *stage.Stage, manifest string) {
	s.T.Helper()
	name := filepath.Join(s.T.TempDir(), "manifest.yaml")
	s.Must(os.WriteFile(name, []byte(manifest), 0o600))
	s.Run("-n", s.Namespace, "apply", "-f", name)
}

// copies are those of a schedule that are ready, the oldest first.
func copies(s *stage.Stage, schedule string) (ready []snapshotv1.VolumeSnapshot) {
	s.T.Helper()
	var list snapshotv1.VolumeSnapshotList
	s.Must(s.Client.List(s.T.Context(), &list, client.InNamespace(s.Namespace), client.MatchingLabels{"holdfast.dev/schedule": schedule}))
	for _, o := range list.Items {
		if o.DeletionTimestamp == nil && o.Status != nil && ptr.Deref(o.Status.ReadyToUse, false) {
			ready = append(ready, o)
		}
	}
	return ready
}
