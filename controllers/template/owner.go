package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// marks are the labels and annotations by which tools that keep objects in step
// with a source of their own mark what is theirs. A set that is made anew with
// another template would be fought over with them.
var marks = map[string]string{
	"argocd.argoproj.io/tracking-id":      "Argo CD",   // https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
	"argocd.argoproj.io/instance":         "Argo CD",   // a label that users choose where app.kubernetes.io/instance is taken
	"kustomize.toolkit.fluxcd.io/name":    "Flux",      // https://fluxcd.io/flux/components/kustomize/kustomizations/
	"helm.toolkit.fluxcd.io/name":         "Flux",      // https://fluxcd.io/flux/components/helm/helmreleases/
	"meta.helm.sh/release-name":           "Helm",      // https://helm.sh/docs/faq/changes_since_helm2/
	"kapp.k14s.io/app":                    "kapp",      // https://carvel.dev/kapp/docs/latest/config/
	"objectset.rio.cattle.io/id":          "Fleet",     // https://github.com/rancher/wrangler, pkg/apply
	"config.k8s.io/owning-inventory":      "cli-utils", // https://github.com/kubernetes-sigs/cli-utils
	"configmanagement.gke.io/managed":     "Config Sync",
	"operators.coreos.com/operator-owner": "an operator",
	"olm.owner":                           "Operator Lifecycle Manager",
}

// managedBy names the tool that manages an object, whatever it is.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
const managedBy = "app.kubernetes.io/managed-by"

// managers are the field managers of tools that need not mark their objects: Argo
// CD may track by a label that anybody may use.
var managers = []string{"argocd-controller", "argocd-application-controller", "kustomize-controller", "helm-controller", "helm", "fleetagent", "pulumi-kubernetes", "Terraform"}

// ownerOf says who else keeps a set as it is; empty: nobody is known to.
func ownerOf(set *appsv1.StatefulSet) string {
	if len(set.OwnerReferences) > 0 {
		o := set.OwnerReferences[0]
		return fmt.Sprintf("%s %s owns it", o.Kind, o.Name)
	}
	for _, kv := range []struct {
		kind string
		in   map[string]string
	}{{"annotation", set.Annotations}, {"label", set.Labels}} {
		for _, key := range slices.Sorted(maps.Keys(kv.in)) {
			if tool, is := marks[key]; is {
				return fmt.Sprintf("its %s %s says that %s keeps it", kv.kind, key, tool)
			}
		}
	}
	if by := set.Labels[managedBy]; by != "" {
		return fmt.Sprintf("its label %s says that %s keeps it", managedBy, by)
	}
	for _, f := range set.ManagedFields {
		if f.Subresource == "" && slices.ContainsFunc(managers, func(m string) bool { return strings.EqualFold(m, f.Manager) }) {
			return fmt.Sprintf("%s writes its fields", f.Manager)
		}
	}
	return ""
}

// controlled says whether an object is controlled by the one with that UID.
func controlled(o metav1.Object, uid string) bool {
	by := metav1.GetControllerOfNoCopy(o)
	return by != nil && string(by.UID) == uid
}
