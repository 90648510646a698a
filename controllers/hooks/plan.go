package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// defaultContainer names the container of a Pod that is meant where none is named.
// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Command is one hook in one Pod.
type Command struct {
	// Hook is where it stands in the schedule, such as before[0].
	Hook      string    `json:"hook"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	PodUID    types.UID `json:"podUID"`
	Container string    `json:"container"`
	Argv      []string  `json:"argv"`
	// TimeoutSeconds is how long it is waited for.
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// timeout is how long the command is waited for.
func (c Command) timeout() time.Duration { return time.Duration(c.TimeoutSeconds) * time.Second }

// String names the command for people, without what it runs.
func (c Command) String() string {
	return fmt.Sprintf("hook %s in container %s of Pod %s", c.Hook, c.Container, c.Pod)
}

// Before is a hook of before in one Pod.
type Before struct {
	Command
	// Continue: the copies are made even where it fails.
	Continue bool
	// Cannot says why it cannot even be begun; empty: it can.
	Cannot string
}

// Cut is what is cut by one object.
type Cut struct {
	// Name is that of a VolumeSnapshot, or what GroupName makes of that of a
	// VolumeGroupSnapshot.
	Name string
	// Claims are the names of those that it is of.
	Claims []string
}

// groupPrefix tells the names of groups from those of snapshots, which have no slash.
const groupPrefix = "group/"

// GroupName is the name of a VolumeGroupSnapshot among those of copies.
func GroupName(name string) string { return groupPrefix + name }

// Freeze are copies that are cut together, between the hooks in some Pods.
type Freeze struct {
	// Copies are the names of the cuts.
	Copies []string
	// Before is empty where no Pod mounts the claims and no hook picks others.
	Before    []Before
	After     []Command
	MaxFreeze time.Duration
}

// Plan puts copies of one namespace into as few freezes as the Pods allow, and
// as many as they need. pods are all of the namespace.
func Plan(hooks *v1alpha1.SnapshotHooks, pods []corev1.Pod, copies []Cut) []Freeze {
	running := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	slices.SortFunc(running, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	var freezes []Freeze
	for _, part := range parts(hooks, running, copies) {
		freeze := Freeze{MaxFreeze: time.Duration(hooks.MaxFreezeSeconds) * time.Second}
		claims := map[string]bool{}
		for _, i := range part {
			freeze.Copies = append(freeze.Copies, copies[i].Name)
			for _, claim := range copies[i].Claims {
				claims[claim] = true
			}
		}
		in := map[types.UID]bool{}
		for i, h := range hooks.Before {
			picked := pick(h.PodSelector, running, claims)
			name, goesOn := fmt.Sprintf("before[%d]", i), h.OnError == v1alpha1.HookContinues
			if h.PodSelector != nil && len(picked) == 0 {
				freeze.Before = append(freeze.Before, Before{Command: Command{Hook: name}, Continue: goesOn, Cannot: "its podSelector matches no running Pod"})
			}
			for _, pod := range picked {
				in[pod.UID] = true
				c := command(name, &h.HookCommand, pod)
				freeze.Before = append(freeze.Before, Before{Command: c, Continue: goesOn, Cannot: lacks(pod, c)})
			}
		}
		for i := range running {
			if in[running[i].UID] {
				freeze.After = append(freeze.After, undoing(hooks, &running[i])...)
			}
		}
		// What could not be undone is not begun.
		for _, c := range freeze.After {
			if pod := running[slices.IndexFunc(running, func(p corev1.Pod) bool { return p.UID == c.PodUID })]; lacks(&pod, c) != "" {
				freeze.Before = slices.Insert(freeze.Before, 0, Before{Command: c, Cannot: lacks(&pod, c)})
			}
		}
		freezes = append(freezes, freeze)
	}
	return freezes
}

// lacks says that a Pod has no such container; empty: it has.
func lacks(pod *corev1.Pod, c Command) string {
	var names []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, container.Name)
	}
	if slices.Contains(names, c.Container) {
		return ""
	}
	return fmt.Sprintf("Pod %s has no container %q; it has %s", pod.Name, c.Container, strings.Join(names, ", "))
}

// parts are the indexes of the copies that must be cut together. A hook with a
// podSelector is about all claims of the run, so there is one part then; else
// claims that a Pod has in common are together.
func parts(hooks *v1alpha1.SnapshotHooks, running []corev1.Pod, copies []Cut) [][]int {
	part := make([]int, len(copies)) // the least index of the copies that each is together with
	for i := range part {
		part[i] = i
	}
	join := func(a, b int) {
		from, to := max(part[a], part[b]), min(part[a], part[b])
		for i := range part {
			if part[i] == from {
				part[i] = to
			}
		}
	}
	if slices.ContainsFunc(hooks.Before, func(h v1alpha1.BeforeHook) bool { return h.PodSelector != nil }) {
		for i := range copies {
			join(0, i)
		}
	}
	for p := range running {
		first := -1
		for i := range copies {
			if !slices.ContainsFunc(copies[i].Claims, func(claim string) bool { return mounts(&running[p], claim) }) {
				continue
			}
			if first < 0 {
				first = i
			}
			join(first, i)
		}
	}
	byPart := map[int][]int{}
	for i, p := range part {
		byPart[p] = append(byPart[p], i)
	}
	all := make([][]int, 0, len(byPart))
	for i := range copies {
		if indexes := byPart[i]; indexes != nil {
			all = append(all, indexes)
		}
	}
	return all
}

// pick are the Pods of a hook: those of its selector, else those that mount any
// of the claims.
func pick(selector *metav1.LabelSelector, running []corev1.Pod, claims map[string]bool) []*corev1.Pod {
	var picked []*corev1.Pod
	for i := range running {
		pod := &running[i]
		if selector != nil && selects(selector, pod) || selector == nil && mountsAny(pod, claims) {
			picked = append(picked, pod)
		}
	}
	return picked
}

// selects says whether a selector picks a Pod. One that cannot be read picks
// none; such a schedule is not acted on.
func selects(selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(pod.Labels))
}

func mountsAny(pod *corev1.Pod, claims map[string]bool) bool {
	for claim := range claims {
		if mounts(pod, claim) {
			return true
		}
	}
	return false
}

// mounts says whether a Pod has a claim of its namespace among its volumes.
func mounts(pod *corev1.Pod, claim string) bool { return slices.Contains(ClaimsOf(pod), claim) }

// ClaimsOf are the names of the claims among the volumes of a Pod. That of a
// generic ephemeral volume has the name of the Pod before its own.
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming
func ClaimsOf(pod *corev1.Pod) []string {
	var claims []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			claims = append(claims, pod.Name+"-"+v.Name)
		}
	}
	return claims
}

// undoing are the hooks of after in a Pod.
func undoing(hooks *v1alpha1.SnapshotHooks, pod *corev1.Pod) []Command {
	var all []Command
	for i := range hooks.After {
		if h := &hooks.After[i]; h.PodSelector == nil || selects(h.PodSelector, pod) {
			all = append(all, command(fmt.Sprintf("after[%d]", i), h, pod))
		}
	}
	return all
}

func command(name string, h *v1alpha1.HookCommand, pod *corev1.Pod) Command {
	return Command{
		Hook: name, Namespace: pod.Namespace, Pod: pod.Name, PodUID: pod.UID,
		Container: cmp.Or(h.Container, pod.Annotations[defaultContainer], pod.Spec.Containers[0].Name),
		Argv:      h.Command, TimeoutSeconds: h.TimeoutSeconds,
	}
}
