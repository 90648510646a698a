// Package copies is how a VolumeSnapshot or VolumeGroupSnapshot that a schedule
// made is named, marked and read: what the planners of schedules and of retention
// have in common.
package copies

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// State is how far a copy has come.
type State int

// How far a copy has come.
const (
	// Making: it is not ready, and its deadline is ahead.
	Making State = iota
	// Ready: a claim can be made from it.
	Ready
	// Failed: it was not ready by its deadline. One that becomes ready after all
	// is Ready from then on.
	Failed
)

// Copy is a VolumeSnapshot as planners see it.
type Copy struct {
	Name     string
	UID      types.UID
	ClaimUID types.UID
	// Slot is the run that it belongs to, as SlotOf and RunOf write it.
	Slot  string
	State State
	// Asked is when the object was made, Cut when the driver cut the copy (zero:
	// not yet, or it does not say), Deadline when it is to be ready.
	Asked, Cut, Deadline time.Time
	// LastError is what the snapshot-controller said last. A passing error is no
	// verdict: State is.
	LastError string
	// Hold is why somebody keeps it, as HoldOf has it; empty: nobody does.
	Hold string
	// NotQuiesced: its schedule has hooks, and its cut did not fall between them.
	NotQuiesced bool
	// With names the group that it was cut with, a VolumeGroupSnapshot or a series
	// of single ones; empty: it was cut by itself.
	With string
	// Whole: With is a VolumeGroupSnapshot.
	Whole bool
	// Deleting: it is on its way out, and is counted no more.
	Deleting bool
}

// At is the time that a copy stands for: when it was cut or, before that, asked for.
func (c Copy) At() time.Time {
	if c.Cut.IsZero() {
		return c.Asked
	}
	return c.Cut
}

// HoldOf is the reason that somebody gave for keeping a snapshot or a group; empty:
// nobody keeps it. Whoever gives none wants it kept all the same.
func HoldOf(o metav1.Object) string {
	why, held := o.GetAnnotations()[v1alpha1.AnnotationHold]
	if !held {
		return ""
	}
	return cmp.Or(strings.TrimSpace(why), "(no reason)")
}

// At is the time that a snapshot stands for, as Copy.At has it: also one of a
// driver that does not tell when it cuts.
func At(s *snapshotv1.VolumeSnapshot) time.Time { return Of(s, 0, time.Time{}).At() }

// Of reads a snapshot. readyWithin is how long it may take to become ready.
func Of(s *snapshotv1.VolumeSnapshot, readyWithin time.Duration, now time.Time) Copy {
	c := Copy{
		Name: s.Name, UID: s.UID, ClaimUID: types.UID(s.Labels[v1alpha1.LabelClaimUID]), Slot: s.Labels[v1alpha1.LabelSlot],
		Asked: s.CreationTimestamp.Time, Deadline: s.CreationTimestamp.Add(readyWithin),
		Hold: HoldOf(s), Deleting: s.DeletionTimestamp != nil,
		NotQuiesced: s.Annotations[v1alpha1.AnnotationQuiesced] == v1alpha1.NotQuiesced,
		With:        s.Annotations[v1alpha1.AnnotationGroup],
	}
	if group := GroupOf(s); group != "" {
		c.With, c.Whole = group, true
	}
	if s.Status != nil {
		// A driver that answers no time of the cut is written down with the epoch
		// (external-snapshotter v8, pkg/snapshotter: AsTime of none). All its copies
		// would be of one time, and the newest would age out first.
		if s.Status.CreationTime != nil && s.Status.CreationTime.Unix() > 0 {
			c.Cut = s.Status.CreationTime.Time
		}
		if s.Status.Error != nil && s.Status.Error.Message != nil {
			c.LastError = *s.Status.Error.Message
		}
		if s.Status.ReadyToUse != nil && *s.Status.ReadyToUse {
			c.State = Ready
			return c
		}
	}
	if !now.Before(c.Deadline) {
		c.State = Failed
	}
	return c
}

// Lengths in which names and labels are put together.
const (
	maxName    = validation.DNS1123LabelMaxLength
	hashLength = 10
)

// hash of some texts, in lower-case hexadecimal. No text can be taken for two.
func hash(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Name is the name of the copy of a claim in a run, claim-slot-hash: readable, at
// most 63 characters, and the same whoever asks however often, so that a run is
// never copied twice.
func Name(claim string, claimUID, schedule types.UID, slot string) string {
	tail := "-" + strings.ToLower(slot) + "-" + hash(string(claimUID), string(schedule), slot)[:hashLength]
	head := claim[:min(len(claim), maxName-len(tail))]
	return strings.TrimRight(head, "-.") + tail
}

// LabelValue is a text as it stands in a label: itself where that is allowed,
// else cut, with a hash of the whole. Reading and writing both go through it.
func LabelValue(text string) string {
	if len(text) <= validation.LabelValueMaxLength {
		return text
	}
	return strings.TrimRight(text[:validation.LabelValueMaxLength-hashLength-1], "-_.") + "-" + hash(text)[:hashLength]
}

// SlotOf is the label of a run by schedule.
func SlotOf(at time.Time) string { return at.UTC().Format("20060102T150405Z") }

// RunOf is the label of a run by hand.
func RunOf(token string) string { return "run-" + hash(token)[:hashLength] }

// Jitter is the place of a claim in a stretch of time: always the same one, in
// whole seconds, before its end.
func Jitter(schedule, claim types.UID, within time.Duration) time.Duration {
	seconds := uint64(max(within, 0) / time.Second)
	if seconds == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(string(schedule) + "\x00" + string(claim)))
	return time.Duration(binary.BigEndian.Uint64(sum[:])%seconds) * time.Second
}
