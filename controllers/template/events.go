package template

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Reasons of the events on StatefulSets.
const (
	// ReasonTemplateDiffers: template and claims differ, and the policy says Report.
	ReasonTemplateDiffers = "TemplateDiffers"
	// ReasonTemplateChanged: the API server lets templates be changed.
	ReasonTemplateChanged = "TemplateChanged"
	// ReasonRecreateWaits: the set is made anew when it is stable.
	ReasonRecreateWaits = "RecreateWaits"
	// ReasonRecreateBlocked: the set is not made anew, and why.
	ReasonRecreateBlocked = "RecreateBlocked"
	// ReasonRecreateFailed: the set cannot be made again yet.
	ReasonRecreateFailed = "RecreateFailed"
	// ReasonRecreated: the set was made anew.
	ReasonRecreated = "Recreated"
)

// maxNote is how long the note of an event may be.
const maxNote = 1024

// tell makes an event, where it says something else than the last one of the set.
// Without a reason there is nothing to tell, and the next event is news.
func (r *Reconciler) tell(set *appsv1.StatefulSet, kind, reason, note string) {
	key := client.ObjectKeyFromObject(set)
	r.mu.Lock()
	said := reason + " " + note
	if reason == ReasonRecreateWaits { // what it waits for passes by
		said = reason
	}
	news := reason != "" && r.told[key] != said
	r.told[key] = said
	if reason == "" {
		delete(r.told, key)
	}
	r.mu.Unlock()
	if news {
		r.Events.Eventf(set, nil, kind, reason, "KeepTemplate", "%s", policy.Short(note, maxNote))
	}
}

// told says of which sizes a set was made anew, and what became of its Pods.
func told(record *Record, pods []corev1.Pod, set *appsv1.StatefulSet) string {
	var sizes, restarted []string
	for _, t := range set.Spec.VolumeClaimTemplates {
		if _, is := record.Sizes[t.Name]; is {
			size := request(&t)
			sizes = append(sizes, fmt.Sprintf("%s at %s", t.Name, size.String()))
		}
	}
	kept := 0
	for _, p := range membersOf(set, pods) {
		switch uid, was := record.Pods[p.Name]; {
		case was && uid == p.UID:
			kept++
		case was:
			restarted = append(restarted, p.Name)
		}
	}
	text := fmt.Sprintf(", its volumeClaimTemplates %s; its %d Pods ran on", strings.Join(sizes, " and "), kept)
	if len(restarted) > 0 {
		slices.Sort(restarted)
		text += "; others were restarted meanwhile: " + strings.Join(restarted, ", ")
	}
	return text
}
