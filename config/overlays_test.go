package config

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What an overlay changes is listed here: nothing else may differ from default,
// so that what is tested in the sandbox is what runs in a cluster.
func TestOverlaysChangeOnly(t *testing.T) {
	const container = "Deployment/holdfast-controller.spec.template.spec.containers[0]"
	affinity := "DaemonSet/holdfast-node.spec.template.spec.affinity: added"
	for dir, want := range map[string][]string{
		"overlays/eks": {affinity},
		"testdata/selinux": {
			"CSIDriver/ebs.csi.aws.com.spec.seLinuxMount: added",
			"DaemonSet/holdfast-node.spec.template.spec.containers[0].volumeMounts: 5 entries -> 7",
			"DaemonSet/holdfast-node.spec.template.spec.volumes: 5 entries -> 7",
		},
		"testdata/cert-manager": {
			"Certificate/holdfast-webhook-ca: added",
			"Certificate/holdfast-webhook: added",
			"Deployment/holdfast-manager.spec.template.spec.containers[0].args: 1 entries -> 2",
			"Deployment/holdfast-manager.spec.template.spec.containers[0].volumeMounts: added",
			"Deployment/holdfast-manager.spec.template.spec.volumes: added",
			"Issuer/holdfast-self-signed: added",
			"Issuer/holdfast-webhook-ca: added",
			"MutatingWebhookConfiguration/holdfast.metadata.annotations: added",
			"ValidatingWebhookConfiguration/holdfast.metadata.annotations: added",
		},
		"testdata/hooks": {
			"ClusterRole/holdfast-hooks: added",
			"ClusterRoleBinding/holdfast-hooks: added",
			"Deployment/holdfast-manager.spec.template.spec.containers[0].args: 1 entries -> 2",
			"Role/holdfast-hooks: added",
			"RoleBinding/holdfast-hooks: added",
		},
		"testdata/statefulset-recreate": {
			"ClusterRole/holdfast-statefulset-recreate: added",
			"ClusterRoleBinding/holdfast-statefulset-recreate: added",
			"Deployment/holdfast-manager.spec.template.spec.containers[0].args: 1 entries -> 2",
			"Role/holdfast-statefulset-recreate: added",
			"RoleBinding/holdfast-statefulset-recreate: added",
		},
		"overlays/eks-irsa": {
			affinity,
			"ServiceAccount/holdfast-controller.metadata.annotations: added",
		},
		"overlays/sandbox": {
			"ClusterRole/holdfast-hooks: added",
			"ClusterRole/holdfast-statefulset-recreate: added",
			"ClusterRoleBinding/holdfast-hooks: added",
			"ClusterRoleBinding/holdfast-statefulset-recreate: added",
			affinity,
			`DaemonSet/holdfast-node.spec.template.spec.containers[0].args[4]: --device-identity=nvme -> --device-identity=loop-backing-file`,
			container + ".env: added",
			container + ".envFrom: added",
			"Deployment/holdfast-manager.spec.template.spec.containers[0].args: 1 entries -> 4",
			"Role/holdfast-hooks: added",
			"Role/holdfast-statefulset-recreate: added",
			"RoleBinding/holdfast-hooks: added",
			"RoleBinding/holdfast-statefulset-recreate: added",
			"Secret/holdfast-aws: added",
		},
	} {
		t.Run(dir, func(t *testing.T) {
			got := changes(byName(render(t, "default")), byName(render(t, dir)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("changes to default (-want +got)\n%s", diff)
			}
		})
	}
}

func byName(objects []object) map[string]any {
	out := map[string]any{}
	for _, o := range objects {
		out[o.name] = o.data
	}
	return out
}

// changes lists where two trees of objects differ, one line a place, sorted.
func changes(before, after map[string]any) []string {
	lines := diffMaps("", before, after)
	slices.Sort(lines)
	return lines
}

func diffMaps(at string, before, after map[string]any) []string {
	var lines []string
	keys := map[string]bool{}
	for key := range before {
		keys[key] = true
	}
	for key := range after {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		path := key
		if at != "" {
			path = at + "." + key
		}
		old, had := before[key]
		now, has := after[key]
		switch {
		case !had:
			lines = append(lines, path+": added")
		case !has:
			lines = append(lines, path+": removed")
		default:
			lines = append(lines, diff(path, old, now)...)
		}
	}
	return lines
}

func diff(at string, before, after any) []string {
	oldMap, wasMap := before.(map[string]any)
	newMap, isMap := after.(map[string]any)
	if wasMap && isMap {
		return diffMaps(at, oldMap, newMap)
	}
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	if wasList && isList && len(oldList) != len(newList) {
		return []string{fmt.Sprintf("%s: %d entries -> %d", at, len(oldList), len(newList))}
	}
	if wasList && isList {
		var lines []string
		for i := range oldList {
			lines = append(lines, diff(fmt.Sprintf("%s[%d]", at, i), oldList[i], newList[i])...)
		}
		return lines
	}
	if cmp.Equal(before, after) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v -> %v", at, before, after)}
}
