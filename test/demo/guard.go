package main

import (
	"context"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// spare is the claim of the member that the set is made smaller by.
const spare = "data-db-2"

func (d *demo) policy(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "policy.yaml"); err != nil {
		return nil, err
	}
	err := testenv.Eventually(ctx, patience, "the policy holds", func(ctx context.Context) (string, error) {
		_, err := d.Kubectl(ctx, "apply", "--dry-run=server", "-f", d.manifest("claim-large.yaml"))
		if refusal(err) == "" {
			return "claim-large.yaml is let through", err
		}
		return "", nil
	})
	return []string{"StoragePolicy demo: EBS volumes are encrypted, wait for their Pod, have at most 4 GiB, and go only after a snapshot",
		"a dry run is refused already, by the two replicas of holdfast-manager behind the API server"}, err
}

// refusal is what a webhook told the user; empty where err is no refusal.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), " denied the request: ")
	return strings.TrimSpace(text)
}

// refused runs kubectl and wants a refusal that contains all of want.
func (d *demo) refused(ctx context.Context, want []string, args ...string) ([]string, error) {
	_, err := d.Kubectl(ctx, args...)
	if err == nil {
		return nil, fmt.Errorf("kubectl %s was let through", strings.Join(args, " "))
	}
	text := refusal(err)
	if text == "" || !containsAll(text, want) {
		return nil, fmt.Errorf("want a refusal with %s: %w", strings.Join(want, ", "), err)
	}
	return strings.Split(strings.ReplaceAll(text, "; StoragePolicy ", "\nStoragePolicy "), "\n"), nil
}

func (d *demo) badClass(ctx context.Context) ([]string, error) {
	return d.refused(ctx, []string{"storageClass.parameters", "encrypted", "storageClass.volumeBindingMode", "Immediate"}, "apply", "-f", d.manifest("class-careless.yaml"))
}

func (d *demo) badClaim(ctx context.Context) ([]string, error) {
	return d.refused(ctx, []string{"claim.maxSize", "5Gi", "at most 4Gi"}, "apply", "-f", d.manifest("claim-large.yaml"))
}

func (d *demo) protected(ctx context.Context) ([]string, error) {
	if err := d.scaleTo(ctx, 2); err != nil {
		return nil, err
	}
	if err := d.WaitGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db-2"}}, patience); err != nil {
		return nil, err
	}
	seen, err := d.refused(ctx, []string{"rule deletion", spare, "not there"}, "-n", namespace, "delete", "pvc", spare, "--wait=false")
	if err != nil {
		return nil, err
	}
	if _, err := d.refused(ctx, []string{"rule deletion", spare}, "delete", "namespace", namespace, "--wait=false"); err != nil {
		return nil, err
	}
	return append(seen, "its namespace is refused too, before anything in it goes"), nil
}

func (d *demo) right(ctx context.Context) ([]string, error) {
	if err := d.apply(ctx, "class-right.yaml"); err != nil {
		return nil, err
	}
	pv, err := d.persistentVolume(ctx, spare)
	if err != nil {
		return nil, err
	}
	if err := d.apply(ctx, "snapshot-spare.yaml"); err != nil {
		return nil, err
	}
	if _, err := d.waitSnapshot(ctx, "spare-copy"); err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spare}}
	err = testenv.Eventually(ctx, patience, "claim "+spare+" may go", func(ctx context.Context) (string, error) {
		err := d.Client.Delete(ctx, claim)
		if text := refusal(err); text != "" {
			return text, nil
		}
		return "", client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, err
	}
	if err := d.WaitGone(ctx, claim, patience); err != nil {
		return nil, err
	}
	id := pv.Spec.CSI.VolumeHandle
	return []string{
		"class demo-right: encrypted, WaitForFirstConsumer; claim of 1 GiB: accepted",
		fmt.Sprintf("snapshot spare-copy is ready: claim %s goes, and volume %s with it", spare, id),
	}, d.volumeGone(ctx, id)
}

// waitSnapshot waits until a snapshot is ready.
func (d *demo) waitSnapshot(ctx context.Context, name string) (*snapshotv1.VolumeSnapshot, error) {
	snapshot := &snapshotv1.VolumeSnapshot{}
	return snapshot, testenv.Eventually(ctx, patience, "snapshot "+name+" ready", func(ctx context.Context) (string, error) {
		if err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, snapshot); err != nil {
			return "", err
		}
		s := snapshot.Status
		if s == nil || s.ReadyToUse == nil || !*s.ReadyToUse {
			return "not ready", nil
		}
		return "", nil
	})
}

// deleteNamespace takes the policies away and then the namespace, which is
// refused until the manager has seen that the one with guardrails has gone.
func (d *demo) deleteNamespace(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "delete", "storagepolicy", "demo", growthPolicy, "--ignore-not-found"); err != nil {
		return err
	}
	return testenv.Eventually(ctx, 2*patience, "namespace "+namespace+" deleted", func(ctx context.Context) (string, error) {
		_, err := d.Kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")
		if text := refusal(err); text != "" {
			return text, nil
		}
		return "", err
	})
}
