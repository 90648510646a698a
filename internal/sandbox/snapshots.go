package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// snapshotRole and snapshotBinding say what snapshot-controller may do: the rights
// that its project lists for it (external-snapshotter,
// deploy/kubernetes/snapshot-controller).
const (
	snapshotRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "sandbox:snapshot-controller"}
rules:
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, watch, update]}
- {apiGroups: [""], resources: [events], verbs: [list, watch, create, update, patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotclasses], verbs: [get, list, watch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [create, get, list, watch, update, delete, patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents/status], verbs: [patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [create, get, list, watch, update, patch, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots/status], verbs: [update, patch]}
- {apiGroups: [groupsnapshot.storage.k8s.io], resources: [volumegroupsnapshotclasses], verbs: [get, list, watch]}
- {apiGroups: [groupsnapshot.storage.k8s.io], resources: [volumegroupsnapshotcontents], verbs: [create, get, list, watch, update, delete, patch]}
- {apiGroups: [groupsnapshot.storage.k8s.io], resources: [volumegroupsnapshotcontents/status], verbs: [patch]}
- {apiGroups: [groupsnapshot.storage.k8s.io], resources: [volumegroupsnapshots], verbs: [get, list, watch, update, patch]}
- {apiGroups: [groupsnapshot.storage.k8s.io], resources: [volumegroupsnapshots/status], verbs: [update, patch]}
`
	snapshotBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "sandbox:snapshot-controller"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "sandbox:snapshot-controller"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: snapshot-controller}
`
)

// startSnapshots brings the VolumeSnapshot kinds and their controller, which are
// the cluster's own business, not that of a driver.
func (s *Sandbox) startSnapshots(ctx context.Context) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	files, err := filepath.Glob(filepath.Join(toolchain.CRDs(s.rec.Binaries), "*.yaml"))
	if err != nil {
		return fmt.Errorf("find the VolumeSnapshot definitions: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("no VolumeSnapshot definitions in %s: build them with `sandbox build`", toolchain.CRDs(s.rec.Binaries))
	}
	g, applying := errgroup.WithContext(ctx)
	for _, f := range files {
		g.Go(func() error {
			raw, err := os.ReadFile(f)
			if err != nil {
				return fmt.Errorf("read a VolumeSnapshot definition: %w", err)
			}
			return s.apply(applying, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/", raw)
		})
	}
	g.Go(func() error { return s.apply(applying, rbac+"clusterroles/", []byte(snapshotRole)) })
	g.Go(func() error { return s.apply(applying, rbac+"clusterrolebindings/", []byte(snapshotBinding)) })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.launch(ctx, SnapshotController); err != nil {
		return err
	}
	// It answers once it has found all kinds.
	if err := s.awaitComponent(ctx, SnapshotController); err != nil {
		return err
	}
	s.progress("VolumeSnapshots are there")
	return nil
}

// apply creates the object, or makes it what the manifest says, by server-side
// apply. The collection's path ends in a slash.
func (s *Sandbox) apply(ctx context.Context, collection string, manifest []byte) error {
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		return fmt.Errorf("read a manifest for %s: %w", collection, err)
	}
	url := fmt.Sprintf("https://127.0.0.1:%d%s%s?fieldManager=sandbox&force=true", s.rec.APIPort, collection, object.Metadata.Name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(manifest))
	if err != nil {
		return fmt.Errorf("apply %s: %w", object.Metadata.Name, err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	if _, err := do(s.api, req); err != nil {
		return fmt.Errorf("apply %s: %w", object.Metadata.Name, err)
	}
	return nil
}
