package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
	"github.com/holdfast-dev/holdfast/internal/kube"
	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// kustomizations are the folders that a user applies and that hold everything.
var kustomizations = []string{"default", "overlays/eks", "overlays/eks-irsa", "overlays/sandbox"}

// object is one rendered object: as Kubernetes' types know it, and as data.
type object struct {
	name  string // "Kind/name"
	typed runtime.Object
	data  map[string]any
}

// rendered keeps what render has made: the tests read it and change nothing.
var rendered = map[string][]object{}

// render returns the objects of a kustomization, made by the library that
// `kubectl apply -k` uses. A field that Kubernetes does not know is an error.
func render(t *testing.T, dir string) []object {
	t.Helper()
	if objects, there := rendered[dir]; there {
		return objects
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	var objects []object
	for _, r := range resources.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o := object{name: r.GetKind() + "/" + r.GetName()}
		// cert-manager's own types judge what it is asked for, in tools/chart, and
		// Prometheus' own parser judges rules, in tools/monitoring.
		if g := r.GetGvk().Group; g != "cert-manager.io" && g != "monitoring.coreos.com" {
			if o.typed, _, err = strict.Decode(raw, nil, nil); err != nil {
				t.Fatalf("%s in %s: %v", o.name, dir, err)
			}
		}
		if err := yaml.Unmarshal(raw, &o.data); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	rendered[dir] = objects
	return objects
}

// find returns the object of that name and type.
func find[T runtime.Object](t *testing.T, objects []object, name string) T {
	t.Helper()
	for _, o := range objects {
		if typed, ok := o.typed.(T); ok && o.name == name {
			return typed
		}
	}
	t.Fatalf("%s is not among the objects", name)
	panic("unreachable")
}

// pods returns the Pod templates by the name of their owner.
func pods(objects []object) map[string]corev1.PodSpec {
	out := map[string]corev1.PodSpec{}
	for _, o := range objects {
		switch w := o.typed.(type) {
		case *appsv1.Deployment:
			out[o.name] = w.Spec.Template.Spec
		case *appsv1.DaemonSet:
			out[o.name] = w.Spec.Template.Spec
		}
	}
	return out
}

func TestEveryContainerIsPinnedBoundedAndConfined(t *testing.T) {
	built := catalog.Refs(version.Version)
	for _, dir := range kustomizations {
		for owner, pod := range pods(render(t, dir)) {
			for _, c := range pod.Containers {
				at := fmt.Sprintf("%s: %s: container %s", dir, owner, c.Name)
				if !slices.Contains(built, c.Image) {
					t.Errorf("%s: image %s is none that `images build` makes: %v", at, c.Image, built)
				}
				if c.ImagePullPolicy != corev1.PullIfNotPresent {
					t.Errorf("%s: imagePullPolicy %q: an image that is loaded by hand would be pulled", at, c.ImagePullPolicy)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: requests for CPU and memory and a limit for memory are to be set", at)
				}
				if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s: the root file system is to be read-only", at)
				}
				if c.LivenessProbe == nil {
					t.Errorf("%s: no liveness probe: a hanging process would stay", at)
				}
			}
		}
	}
}

// The Pods of controller and manager pass Pod Security "restricted", whatever
// their namespace enforces. See
// https://kubernetes.io/docs/concepts/security/pod-security-standards/.
func TestControllerAndManagerAreRestricted(t *testing.T) {
	for _, owner := range []string{"Deployment/holdfast-controller", "Deployment/holdfast-manager"} {
		t.Run(owner, func(t *testing.T) { checkRestricted(t, pods(render(t, "default"))[owner]) })
	}
}

// A budget keeps a replica that answers. One that cannot become healthy, for
// whatever reason, must not keep its node from being drained.
func TestBudgetsDoNotHoldNodes(t *testing.T) {
	var budgets []string
	for _, o := range render(t, "default") {
		b, ok := o.typed.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		budgets = append(budgets, b.Name)
		if p := b.Spec.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
			t.Errorf("%s: Pods that are not healthy cannot be evicted", o.name)
		}
	}
	slices.Sort(budgets)
	if want := []string{"holdfast-controller", "holdfast-manager"}; !slices.Equal(budgets, want) {
		t.Errorf("budgets %v, want %v", budgets, want)
	}
}

func checkRestricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if len(pod.Containers) == 0 {
		t.Fatal("there is no such Pod")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the Pod shares a namespace of the host")
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
		t.Error("the Pod may run as root")
	}
	if s == nil || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Error("the Pod runs without the runtime's seccomp profile")
	}
	for _, v := range pod.Volumes {
		if v.EmptyDir == nil && v.Projected == nil && v.Secret == nil && v.ConfigMap == nil {
			t.Errorf("volume %s is of a type that \"restricted\" refuses", v.Name)
		}
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Privileged != nil && *s.Privileged {
			t.Errorf("container %s may gain privileges", c.Name)
		}
		if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("container %s keeps capabilities", c.Name)
		}
	}
}

func TestNodeIsOneContainerThatOnlyReads(t *testing.T) {
	objects := render(t, "default")
	pod := pods(objects)["DaemonSet/holdfast-node"]
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Errorf("%d containers on a node, want one", len(pod.Containers)+len(pod.InitContainers))
	}
	for _, o := range objects {
		var subjects []rbacv1.Subject
		switch b := o.typed.(type) {
		case *rbacv1.ClusterRoleBinding:
			subjects = b.Subjects
		case *rbacv1.RoleBinding:
			subjects = b.Subjects
		}
		for _, s := range subjects {
			want := "holdfast-controller"
			switch o.name {
			case "ClusterRoleBinding/holdfast-node":
				want = "holdfast-node" // its two rights are in TestRightsAreExactly
			case "ClusterRoleBinding/holdfast-manager", "RoleBinding/holdfast-manager":
				want = "holdfast-manager"
			case "ClusterRoleBinding/holdfast-usage":
				want = usage.ServiceAccount
			}
			if s.Name != want || s.Namespace != "holdfast-system" {
				t.Errorf("%s gives rights to %s %s/%s", o.name, s.Kind, s.Namespace, s.Name)
			}
		}
	}
	for _, v := range pod.Containers[0].VolumeMounts {
		if v.MountPath == "/var/lib/kubelet" && (v.MountPropagation == nil || *v.MountPropagation != corev1.MountPropagationBidirectional) {
			t.Error("what the driver mounts would not be seen by kubelet and Pods")
		}
	}
}

// Rights are listed here once more on purpose: whoever widens a role says so in
// two places.
func TestRightsAreExactly(t *testing.T) {
	driver := []string{
		"holdfast-attacher: csinodes.storage.k8s.io get list watch",
		"holdfast-attacher: persistentvolumes get list patch watch",
		"holdfast-attacher: volumeattachments.storage.k8s.io get list patch watch",
		"holdfast-attacher: volumeattachments/status.storage.k8s.io patch",
		"holdfast-controller: csinodes.storage.k8s.io get list watch",
		"holdfast-controller: events create",
		"holdfast-controller: nodes list patch watch",
		"holdfast-leader-election: events create patch",
		"holdfast-leader-election: leases.coordination.k8s.io create get update",
		"holdfast-node: nodes get",
		"holdfast-node: volumeattachments.storage.k8s.io list watch",
		"holdfast-provisioner: csinodes.storage.k8s.io get list watch",
		"holdfast-provisioner: events create patch",
		"holdfast-provisioner: nodes get list watch",
		"holdfast-provisioner: persistentvolumeclaims get list update watch",
		"holdfast-provisioner: persistentvolumes create delete get list patch watch",
		"holdfast-provisioner: storageclasses.storage.k8s.io get list watch",
		"holdfast-provisioner: volumeattachments.storage.k8s.io get list watch",
		"holdfast-provisioner: volumeattributesclasses.storage.k8s.io get",
		"holdfast-provisioner: volumesnapshotcontents.snapshot.storage.k8s.io get",
		"holdfast-provisioner: volumesnapshots.snapshot.storage.k8s.io get list update watch",
		"holdfast-resizer: events create patch",
		"holdfast-resizer: persistentvolumeclaims get list watch",
		"holdfast-resizer: persistentvolumeclaims/status patch",
		"holdfast-resizer: persistentvolumes get list patch watch",
		"holdfast-resizer: volumeattributesclasses.storage.k8s.io get list watch",
		"holdfast-snapshotter: events create patch",
		"holdfast-snapshotter: volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io get list watch",
		"holdfast-snapshotter: volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io get list patch watch",
		"holdfast-snapshotter: volumegroupsnapshotcontents/status.groupsnapshot.storage.k8s.io patch update",
		"holdfast-snapshotter: volumesnapshotclasses.snapshot.storage.k8s.io get list watch",
		"holdfast-snapshotter: volumesnapshotcontents.snapshot.storage.k8s.io get list patch watch",
		"holdfast-snapshotter: volumesnapshotcontents/status.snapshot.storage.k8s.io patch update",
	}
	guardrails := []string{
		"holdfast-manager: csidrivers.storage.k8s.io list watch",
		"holdfast-manager: events create patch",
		"holdfast-manager: events list",
		"holdfast-manager: events.events.k8s.io create patch",
		"holdfast-manager: events.events.k8s.io create patch",
		"holdfast-manager: leases.coordination.k8s.io create",
		"holdfast-manager: leases.coordination.k8s.io get update",
		"holdfast-manager: mutatingwebhookconfigurations.admissionregistration.k8s.io get patch",
		"holdfast-manager: namespaces get list watch",
		"holdfast-manager: nodes list watch",
		"holdfast-manager: persistentvolumeclaims delete get list patch watch",
		"holdfast-manager: persistentvolumeclaims/status patch",
		"holdfast-manager: persistentvolumes get list watch",
		"holdfast-manager: poddisruptionbudgets.policy get list watch",
		"holdfast-manager: pods list watch",
		"holdfast-manager: secrets create",
		"holdfast-manager: secrets get update",
		"holdfast-manager: serviceaccounts/token create",
		"holdfast-manager: snapshotschedules.holdfast.dev create delete get list patch watch",
		"holdfast-manager: snapshotschedules/status.holdfast.dev patch",
		"holdfast-manager: statefulsets.apps get list watch",
		"holdfast-manager: storageclasses.storage.k8s.io get list watch",
		"holdfast-manager: storagepolicies.holdfast.dev get list watch",
		"holdfast-manager: storagepolicies/status.holdfast.dev patch",
		"holdfast-manager: subjectaccessreviews.authorization.k8s.io create",
		"holdfast-manager: tokenreviews.authentication.k8s.io create",
		"holdfast-manager: validatingwebhookconfigurations.admissionregistration.k8s.io get patch",
		"holdfast-manager: volumeattachments.storage.k8s.io list watch",
		"holdfast-manager: volumeattributesclasses.storage.k8s.io create delete get list watch",
		"holdfast-manager: volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io get list watch",
		"holdfast-manager: volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io delete get list patch watch",
		"holdfast-manager: volumegroupsnapshots.groupsnapshot.storage.k8s.io create delete get list watch",
		"holdfast-manager: volumesnapshotclasses.snapshot.storage.k8s.io get list watch",
		"holdfast-manager: volumesnapshotcontents.snapshot.storage.k8s.io delete get list patch watch",
		"holdfast-manager: volumesnapshots.snapshot.storage.k8s.io create delete get list patch watch",
		"holdfast-policy-override: storagepolicies.holdfast.dev override",
		"holdfast-snapshotschedules-edit: snapshotschedules.holdfast.dev create delete deletecollection patch update",
		"holdfast-snapshotschedules-view: snapshotschedules.holdfast.dev get list watch",
		"holdfast-usage: nodes/metrics get",
		"holdfast-usage: nodes/stats get",
	}
	wantOf := map[string][]string{"guardrails": guardrails}
	for _, dir := range kustomizations {
		wantOf[dir] = slices.Concat(driver, guardrails)
		if dir == "overlays/sandbox" { // where hooks run, and sets are made anew
			wantOf[dir] = slices.Concat(wantOf[dir], ofHooks, ofRecreate)
		}
		slices.Sort(wantOf[dir])
	}
	for dir, want := range wantOf {
		var got []string
		for _, o := range render(t, dir) {
			switch r := o.typed.(type) {
			case *rbacv1.ClusterRole:
				got = append(got, rights(r.Name, r.Rules)...)
			case *rbacv1.Role:
				got = append(got, rights(r.Name, r.Rules)...)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rights (-want +got)\n%s", dir, diff)
		}
	}
}

// Whoever can request a token of an account has its rights. The one whose tokens
// kubelets are shown is the only one, also where hooks run or sets are made anew.
func TestTokensAreOfOneAccount(t *testing.T) {
	for _, dir := range kustomizations {
		objects := render(t, dir)
		find[*corev1.ServiceAccount](t, objects, "ServiceAccount/"+usage.ServiceAccount)
		rules := 0
		check := func(name, namespace string, all []rbacv1.PolicyRule) {
			for _, rule := range all {
				if !slices.Contains(rule.Resources, "serviceaccounts/token") {
					continue
				}
				rules++
				if name != "Role/holdfast-manager" || namespace != "holdfast-system" || !slices.Equal(rule.ResourceNames, []string{usage.ServiceAccount}) {
					t.Errorf("%s: %s in %q gives tokens of %v, want Role/holdfast-manager in holdfast-system, of %s", dir, name, namespace, rule.ResourceNames, usage.ServiceAccount)
				}
			}
		}
		for _, o := range objects {
			switch r := o.typed.(type) {
			case *rbacv1.ClusterRole:
				check(o.name, "", r.Rules)
			case *rbacv1.Role:
				check(o.name, r.Namespace, r.Rules)
			}
		}
		if rules != 1 {
			t.Errorf("%s: %d rules give tokens, want one", dir, rules)
		}
	}
}

// Who may edit or view a namespace may do so with its schedules: by the labels
// that the cluster's own roles look for.
func TestTeamsHaveTheirSchedules(t *testing.T) {
	for role, into := range map[string]string{"view": "rbac.authorization.k8s.io/aggregate-to-view", "edit": "rbac.authorization.k8s.io/aggregate-to-edit"} {
		r := find[*rbacv1.ClusterRole](t, render(t, "default"), "ClusterRole/holdfast-snapshotschedules-"+role)
		if r.Labels[into] != "true" {
			t.Errorf("%s is not taken into the cluster's role %s: labels %v", r.Name, role, r.Labels)
		}
	}
}

// ofHooks is what running hooks takes.
var ofHooks = []string{
	"holdfast-hooks: configmaps create delete list",
	"holdfast-hooks: pods get list",
	"holdfast-hooks: pods/exec create get",
	"holdfast-hooks: volumegroupsnapshots.groupsnapshot.storage.k8s.io patch",
	"holdfast-hooks: volumesnapshots.snapshot.storage.k8s.io patch",
}

// ofRecreate is what making StatefulSets anew takes.
var ofRecreate = []string{
	"holdfast-statefulset-recreate: secrets delete get list update",
	"holdfast-statefulset-recreate: statefulsets.apps create delete patch",
}

// Where hooks are off, nobody may run anything in a Pod, and where sets are not
// made anew, nobody may write any: what these take is in components, and is this.
func TestRightsOfComponentsAreApart(t *testing.T) {
	for component, want := range map[string][]string{"hooks": ofHooks, "statefulset-recreate": ofRecreate} {
		name := "holdfast-" + component
		var got []string
		for _, o := range render(t, "testdata/"+component) {
			switch r := o.typed.(type) {
			case *rbacv1.ClusterRole:
				if r.Name == name {
					got = append(got, rights(r.Name, r.Rules)...)
				}
			case *rbacv1.Role:
				if r.Name == name {
					got = append(got, rights(r.Name, r.Rules)...)
				}
			case *rbacv1.ClusterRoleBinding, *rbacv1.RoleBinding:
				if strings.HasSuffix(o.name, "/"+name) && !strings.Contains(fmt.Sprint(o.data["subjects"]), "name:holdfast-manager namespace:holdfast-system") {
					t.Errorf("%s gives the rights to %v", o.name, o.data["subjects"])
				}
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rights of component %s (-want +got)\n%s", component, diff)
		}
	}
}

// rights returns a line for each resource of a role.
func rights(role string, rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		verbs := slices.Sorted(slices.Values(rule.Verbs))
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != "" {
					resource += "." + group
				}
				lines = append(lines, role+": "+resource+" "+strings.Join(verbs, " "))
			}
		}
	}
	return lines
}

// A cluster may begin with the startup taint on every node. Its controller has
// to run there, whatever the taint's effect, and for as long as it takes.
func TestControllerRunsBeforeTheStartupTaintIsTaken(t *testing.T) {
	for _, dir := range kustomizations {
		pod := pods(render(t, dir))["Deployment/holdfast-controller"]
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			taint := &corev1.Taint{Key: kube.StartupTaint("ebs.csi.aws.com"), Value: "true", Effect: effect}
			i := slices.IndexFunc(pod.Tolerations, func(o corev1.Toleration) bool { return o.ToleratesTaint(klog.Background(), taint, false) })
			switch {
			case i < 0:
				t.Errorf("%s: the controller cannot run on a node with %s", dir, taint.ToString())
			case pod.Tolerations[i].TolerationSeconds != nil:
				t.Errorf("%s: the controller is evicted from a node with %s after %d s", dir, taint.ToString(), *pod.Tolerations[i].TolerationSeconds)
			}
		}
	}
}

// One command installs all of it, and one takes it away. kubectl goes by the
// order of the objects: the namespace is there before what is in it, and the
// webhook configurations are deleted before what answers them.
func TestDefaultIsDriverAndGuardrails(t *testing.T) {
	for _, dir := range []string{"default", "guardrails"} {
		var names []string
		for _, o := range render(t, dir) {
			names = append(names, o.name)
		}
		for _, hook := range []string{"ValidatingWebhookConfiguration/holdfast", "MutatingWebhookConfiguration/holdfast"} {
			at := slices.Index(names, hook)
			if at < 0 {
				t.Fatalf("%s: no %s", dir, hook)
			}
			for _, answers := range []string{"Service/holdfast-webhook", "Deployment/holdfast-manager", "ClusterRole/holdfast-manager", "CustomResourceDefinition/storagepolicies.holdfast.dev"} {
				if i := slices.Index(names, answers); i < at {
					t.Errorf("%s: %s is at place %d, before %s at %d: a deletion that is cut short would leave webhooks that nobody answers", dir, answers, i, hook, at)
				}
			}
		}
	}
	want := map[string]any{}
	for _, dir := range []string{"namespace", "driver", "guardrails"} {
		for name, data := range byName(render(t, dir)) {
			want[name] = data
		}
	}
	if diff := changes(want, byName(render(t, "default"))); len(diff) > 0 {
		t.Errorf("default is not namespace, driver and guardrails: %s", strings.Join(diff, "\n"))
	}
	if first := render(t, "default")[0].name; first != "Namespace/holdfast-system" {
		t.Errorf("the first object is %s, before the namespace that others are in", first)
	}
}

// Live clusters depend on these values: whoever replaces AWS's driver finds the
// same CSIDriver, some fields of which cannot be changed in place.
func TestCSIDriverIsADropIn(t *testing.T) {
	got := find[*storagev1.CSIDriver](t, render(t, "default"), "CSIDriver/ebs.csi.aws.com").Spec
	yes, no, file, minute := true, false, storagev1.FileFSGroupPolicy, int64(60)
	want := storagev1.CSIDriverSpec{
		AttachRequired:       &yes,
		PodInfoOnMount:       &no,
		FSGroupPolicy:        &file,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		// Of ours; mutable, and no drop-in depends on it.
		NodeAllocatableUpdatePeriodSeconds: &minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CSIDriver (-want +got)\n%s", diff)
	}
}

// The two halves, kubelet and the sidecars meet at paths that are written down
// in several places.
func TestPathsAgree(t *testing.T) {
	objects := render(t, "default")
	node := pods(objects)["DaemonSet/holdfast-node"]
	host := map[string]string{}
	for _, v := range node.Volumes {
		if v.HostPath != nil {
			host[v.Name] = v.HostPath.Path
		}
	}
	for name, want := range map[string]string{
		"kubelet":      "/var/lib/kubelet",
		"plugin":       "/var/lib/kubelet/plugins/ebs.csi.aws.com",
		"registration": "/var/lib/kubelet/plugins_registry",
		"dev":          "/dev",
	} {
		if host[name] != want {
			t.Errorf("host path of volume %s is %q, want %q", name, host[name], want)
		}
	}
	if want := "--kubelet-registration-path=" + host["plugin"] + "/csi.sock"; !slices.Contains(node.Containers[0].Args, want) {
		t.Errorf("the node tells kubelet another socket than the one that it mounts: no %s", want)
	}
	controller := pods(objects)["Deployment/holdfast-controller"]
	for _, c := range controller.Containers {
		want := "--csi-address=/csi/csi.sock"
		if c.Name == "holdfast-driver" {
			want = "--endpoint=unix:///csi/csi.sock"
		}
		if !slices.Contains(c.Args, want) {
			t.Errorf("container %s speaks over another socket: no %s", c.Name, want)
		}
	}
}

// Both halves serve metrics: the controller on a port that a scraper finds by
// its name, the node, in the node's own network, for the node alone.
func TestMetricsAreServed(t *testing.T) {
	for _, dir := range kustomizations {
		all := pods(render(t, dir))
		for owner, want := range map[string]string{
			"Deployment/holdfast-controller": "--metrics-address=:9810",
			"DaemonSet/holdfast-node":        "--metrics-address=127.0.0.1:9810",
		} {
			if args := driverOf(t, all[owner]).Args; !slices.Contains(args, want) {
				t.Errorf("%s: %s: no %s among %v", dir, owner, want, args)
			}
		}
		controller := driverOf(t, all["Deployment/holdfast-controller"])
		if !slices.ContainsFunc(controller.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" && p.ContainerPort == 9810 }) {
			t.Errorf("%s: the controller's port for metrics has no name: %v", dir, controller.Ports)
		}
		for _, p := range driverOf(t, all["DaemonSet/holdfast-node"]).Ports {
			t.Errorf("%s: the node half opens port %d to others", dir, p.ContainerPort)
		}
	}
}

// Before it is stopped, the node half waits for the volumes of a drained node;
// kubelet counts that wait and the driver's own end as one grace period.
func TestNodeOutlivesItsVolumes(t *testing.T) {
	const waits, stops = 60 * time.Second, 20 * time.Second // cmd/holdfast-driver's --timeout, package driver's drainTime
	for _, dir := range kustomizations {
		pod := pods(render(t, dir))["DaemonSet/holdfast-node"]
		c := driverOf(t, pod)
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil ||
			!slices.Equal(c.Lifecycle.PreStop.Exec.Command, []string{"/holdfast-driver", "pre-stop"}) {
			t.Errorf("%s: no pre-stop hook: %+v", dir, c.Lifecycle)
		}
		if pod.TerminationGracePeriodSeconds == nil || time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second < waits+stops {
			t.Errorf("%s: a grace period of %v s is shorter than the hook's wait and the driver's end", dir, pod.TerminationGracePeriodSeconds)
		}
		if pod.AutomountServiceAccountToken == nil || !*pod.AutomountServiceAccountToken {
			t.Errorf("%s: the hook has no token to ask the API server with", dir)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
		}) {
			t.Errorf("%s: the hook does not know its node: %v", dir, c.Env)
		}
	}
}

func driverOf(t *testing.T, pod corev1.PodSpec) corev1.Container {
	t.Helper()
	for _, c := range pod.Containers {
		if c.Name == "holdfast-driver" {
			return c
		}
	}
	t.Fatal("no container holdfast-driver")
	panic("unreachable")
}
