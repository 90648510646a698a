package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Every is the time between two looks.
const Every = time.Minute

// tellAgain is how long nothing more is told of what is stuck and stays as it is,
// and remind how long of what is forgotten. askEach is how many claims' events are
// read in one look, which is a live question each, and remindEach of how much that
// is forgotten one look tells.
const (
	tellAgain  = time.Hour
	remind     = 24 * time.Hour
	askEach    = 20
	remindEach = 20
)

// Kinds says whether the cluster serves VolumeSnapshots.
type Kinds interface{ Served(snapshots.Family) bool }

// Options are what a Doctor works with. Only events are read live.
type Options struct {
	World    *world.World
	Kinds    Kinds
	Events   events.EventRecorder
	Clock    clock.WithTicker
	Registry prometheus.Registerer
}

// Doctor looks for what is stuck or forgotten. The leader runs it.
type Doctor struct {
	Options
	instruments *instruments
	told        map[told]time.Time      // until when that is enough
	reminders   int                     // that this look may still tell
	since, seen map[types.UID]time.Time // since when something lasts, up to this look and from it on
}

// told is what was told of an object. There is one for each reason: scheduler and
// provisioner may hand a claim to and fro.
type told struct {
	uid    types.UID
	reason Reason
}

// New makes a Doctor and registers its metrics.
func New(o Options) *Doctor {
	d := &Doctor{Options: o, instruments: newInstruments(), told: map[told]time.Time{}}
	for _, g := range d.instruments.gauges() {
		o.Registry.MustRegister(g)
	}
	return d
}

// Watch starts the informers: their first lists are long.
func (d *Doctor) Watch(ctx context.Context, c cache.Cache) error {
	for _, o := range []client.Object{&corev1.Node{}, &corev1.PersistentVolume{}, &corev1.Pod{}, &storagev1.VolumeAttachment{}} {
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// NeedLeaderElection says that one replica tells.
func (d *Doctor) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (d *Doctor) Start(ctx context.Context) error {
	tick := d.Clock.NewTicker(Every)
	defer tick.Stop()
	for {
		if err := d.Look(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Look for stuck storage, trying again", "after", Every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Look looks once.
func (d *Doctor) Look(ctx context.Context) error {
	now := d.Clock.Now()
	for t, until := range d.told {
		if !now.Before(until) {
			delete(d.told, t)
		}
	}
	d.reminders, d.since, d.seen = remindEach, d.seen, map[types.UID]time.Time{}
	return errors.Join(d.claims(ctx, now), d.volumes(ctx, now), d.attachments(ctx, now))
}

// claims counts claims that are stuck, lost or idle. Where what surrounds one cannot be
// looked up, those that are stuck stay counted as before: unknown is not well.
func (d *Doctor) claims(ctx context.Context, now time.Time) error {
	var list corev1.PersistentVolumeClaimList
	if err := d.World.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	idle, idleBytes := d.instruments.idle.Count(), d.instruments.idleBytes.Count()
	pending, terminating, lost := d.instruments.pending.Count(), d.instruments.terminating.Count(), d.instruments.lost.Count()
	asked := 0
	users := map[string]map[string][]*corev1.Pod{}
	var unknown, failed []error
	for i := range list.Items {
		c := &list.Items[i]
		if Idle(now, c) {
			idle.Add(1, c.Namespace)
			idleBytes.Add(float64(c.Status.Capacity.Storage().Value()), c.Namespace)
			d.remind(now, c, "ClaimIdle", &Stuck{Idling, "no Pod has used it for over a week, and its volume is billed: delete it if nobody needs it"})
			continue
		}
		if gone := Lost(c); gone != nil {
			lost.Add(1, c.Namespace)
			if d.fresh(now, c.UID, gone.Reason) {
				d.tell(c, "ClaimLost", gone)
			}
			continue
		}
		if Pending(now, c, Around{}) == nil && Terminating(now, c, Around{}) == nil {
			continue
		}
		around, err := d.around(ctx, c, users)
		if err != nil {
			unknown = append(unknown, err)
			continue
		}
		if stuck := Pending(now, c, around); stuck != nil {
			pending.Add(1, c.Namespace, string(stuck.Reason))
			failed = append(failed, d.tellPending(ctx, now, c, around, stuck, &asked))
		}
		if stuck := Terminating(now, c, around); stuck != nil {
			terminating.Add(1, c.Namespace, string(stuck.Reason))
			if d.fresh(now, c.UID, stuck.Reason) {
				d.tell(c, "TerminatingTooLong", stuck)
			}
		}
	}
	idle.Show()
	idleBytes.Show()
	lost.Show()
	if len(unknown) == 0 {
		pending.Show()
		terminating.Show()
	}
	return errors.Join(append(failed, unknown...)...)
}

// tellPending tells of a claim that is Pending, with what others have said of it.
// asked is how many claims' events were read in this look: what is said of more is
// told by the next ones.
func (d *Doctor) tellPending(ctx context.Context, now time.Time, c *corev1.PersistentVolumeClaim, a Around, stuck *Stuck, asked *int) error {
	said := stuck.Reason == NotProvisioned || stuck.Reason == NotScheduled
	if said && *asked == askEach || !d.fresh(now, c.UID, stuck.Reason) {
		return nil
	}
	var err error
	if said {
		*asked++
		var last string
		if last, err = d.lastEvent(ctx, c, a, stuck.Reason); last != "" {
			stuck.Why += "; last it was said: " + last
		}
	}
	d.tell(c, "PendingTooLong", stuck)
	return err
}

// around gathers what surrounds a claim that is stuck. users are the Pods by claim
// of the namespaces that were read already.
func (d *Doctor) around(ctx context.Context, c *corev1.PersistentVolumeClaim, users map[string]map[string][]*corev1.Pod) (Around, error) {
	var a Around
	var err error
	if a.ClassName, a.Class, err = d.World.ClassOfClaim(ctx, c.Annotations, &c.Spec); err != nil {
		return Around{}, err
	}
	if users[c.Namespace] == nil {
		var pods corev1.PodList // as orphan.SlimPod leaves them
		if err := d.World.Cache.List(ctx, &pods, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return Around{}, fmt.Errorf("list the Pods of namespace %s: %w", c.Namespace, err)
		}
		users[c.Namespace] = map[string][]*corev1.Pod{}
		for i := range pods.Items {
			for _, v := range pods.Items[i].Spec.Volumes {
				if v.PersistentVolumeClaim != nil {
					name := v.PersistentVolumeClaim.ClaimName
					users[c.Namespace][name] = append(users[c.Namespace][name], &pods.Items[i])
				}
			}
		}
	}
	for _, p := range users[c.Namespace][c.Name] {
		a.Pods = append(a.Pods, p.Name)
		if made := p.CreationTimestamp.Time; a.PodsSince.IsZero() || made.Before(a.PodsSince) {
			a.PodsSince = made
		}
	}
	if c.DeletionTimestamp == nil || !d.Kinds.Served(snapshots.Single) {
		return a, nil
	}
	var snaps snapshotv1.VolumeSnapshotList
	if err := d.World.Cache.List(ctx, &snaps, client.InNamespace(c.Namespace), client.MatchingFields{snapshots.ByClaim: c.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return Around{}, fmt.Errorf("list the snapshots of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	for i := range snaps.Items {
		if s := &snaps.Items[i]; s.Status == nil || s.Status.CreationTime == nil {
			a.Snapshots = append(a.Snapshots, s.Name)
		}
	}
	return a, nil
}

// fresh says whether this is to be told of an object: it was not told within the
// hour.
func (d *Doctor) fresh(now time.Time, uid types.UID, reason Reason) bool {
	return d.news(told{uid, reason}, now.Add(tellAgain))
}

func (d *Doctor) news(t told, until time.Time) bool {
	if _, was := d.told[t]; was {
		return false
	}
	d.told[t] = until
	return true
}

// lasts says whether something has been seen of an object for so long, without a
// break, that it is no passing state and no informer that lags.
func (d *Doctor) lasts(now time.Time, uid types.UID) bool {
	first, was := d.since[uid]
	if !was {
		first = now
	}
	d.seen[uid] = first
	return now.Sub(first) >= tooLong
}

// remind tells of something forgotten, once a day. There may be a lot of it: what
// is too much for one look is told by the next ones.
func (d *Doctor) remind(now time.Time, o client.Object, reason string, s *Stuck) {
	if d.reminders > 0 && d.news(told{o.GetUID(), s.Reason}, now.Add(remind)) {
		d.reminders--
		d.note(o, corev1.EventTypeNormal, reason, s)
	}
}

// maxNote is how long a note of an event may be, and most of it is another's.
const maxNote = 1024

func (d *Doctor) tell(c *corev1.PersistentVolumeClaim, reason string, s *Stuck) {
	d.note(c, corev1.EventTypeWarning, reason, s)
}

func (d *Doctor) note(o client.Object, kind, reason string, s *Stuck) {
	note := string(s.Reason) + ": " + s.Why
	d.Events.Eventf(o, nil, kind, reason, "Diagnose", "%s", strings.ToValidUTF8(note[:min(len(note), maxNote)], ""))
}

// lastEvent is the newest warning by somebody else about a claim or, where none
// was found a node for, about the Pod that waits for it; empty: there is none.
func (d *Doctor) lastEvent(ctx context.Context, c *corev1.PersistentVolumeClaim, a Around, why Reason) (string, error) {
	last, err := d.warning(ctx, c.Namespace, client.MatchingFields{"involvedObject.uid": string(c.UID)})
	if last == "" && err == nil && why == NotScheduled {
		last, err = d.warning(ctx, c.Namespace, client.MatchingFields{"involvedObject.kind": "Pod", "involvedObject.name": a.Pods[0]})
	}
	if err != nil {
		return "", fmt.Errorf("read the events about claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return last, nil
}

// warning is the newest warning by somebody else about an object.
func (d *Doctor) warning(ctx context.Context, namespace string, about client.MatchingFields) (string, error) {
	about["type"] = corev1.EventTypeWarning
	var list corev1.EventList
	if err := d.World.Live.List(ctx, &list, client.InNamespace(namespace), about); err != nil {
		return "", err
	}
	var newest *corev1.Event
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason != "PendingTooLong" && (newest == nil || at(e).After(at(newest))) {
			newest = e
		}
	}
	if newest == nil {
		return "", nil
	}
	return newest.Reason + ": " + newest.Message, nil
}

// at is when an event was last seen, by whichever of its fields says so.
func at(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	if e.LastTimestamp.After(last) {
		last = e.LastTimestamp.Time
	}
	if e.EventTime.After(last) {
		last = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// volumes counts the volumes that outlived their claims.
func (d *Doctor) volumes(ctx context.Context, now time.Time) error {
	var list corev1.PersistentVolumeList
	if err := d.World.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PersistentVolumes: %w", err)
	}
	released, bytes := d.instruments.released.Count(), d.instruments.releasedBytes.Count()
	for i := range list.Items {
		v := &list.Items[i]
		left := Released(v)
		if left == nil {
			continue
		}
		if d.lasts(now, v.UID) { // most that are deleted go within seconds
			d.remind(now, v, "VolumeReleased", left)
		}
		driver := "other"
		if v.Spec.CSI != nil {
			driver = v.Spec.CSI.Driver
		}
		released.Add(1, driver)
		bytes.Add(float64(v.Spec.Capacity.Storage().Value()), driver)
	}
	released.Show()
	bytes.Show()
	return nil
}

// attachments counts those of nodes that are not there.
func (d *Doctor) attachments(ctx context.Context, now time.Time) error {
	var there corev1.NodeList
	if err := d.World.Cache.List(ctx, &there, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	names := make(map[string]bool, len(there.Items))
	for i := range there.Items {
		names[there.Items[i].Name] = true
	}
	var list storagev1.VolumeAttachmentList
	if err := d.World.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VolumeAttachments: %w", err)
	}
	count := d.instruments.attachments.Count()
	for i := range list.Items {
		a := &list.Items[i]
		if names[a.Spec.NodeName] {
			continue
		}
		count.Add(1, a.Spec.Attacher)
		// Where a node goes, Kubernetes detaches its volumes within minutes.
		if !d.lasts(now, a.UID) || !d.fresh(now, a.UID, "NodeGone") {
			continue
		}
		volume := ""
		if a.Spec.Source.PersistentVolumeName != nil {
			volume = *a.Spec.Source.PersistentVolumeName
		}
		d.Events.Eventf(a, nil, corev1.EventTypeWarning, "NodeGone", "Diagnose",
			"node %s is not there, and PersistentVolume %s is still attached to it: once the instance is known to be off, delete this VolumeAttachment", a.Spec.NodeName, volume)
	}
	count.Show()
	return nil
}
