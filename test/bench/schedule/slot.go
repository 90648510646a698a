package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// sights are what a watch saw of one run.
type sights struct {
	slot    time.Time
	want    int
	created map[types.UID]time.Time
	ready   map[types.UID]time.Time
	byClaim map[string]int // objects by claim and slot
}

// usage is what had been asked and used at an instant.
type usage struct {
	manager bench.Metrics
	server  map[string]float64
}

func (p *place) usage(ctx context.Context, m *bench.Manager) (u usage, err error) {
	if u.manager, err = m.Scrape(ctx); err != nil {
		return u, err
	}
	u.server, err = p.Requests(ctx)
	return u, err
}

// measureSlot has schedules copy claims, all at one minute.
func measureSlot(ctx context.Context, p *place, o options, out io.Writer) ([]bench.Figure, error) {
	fmt.Fprintf(out, "%s; a slot of %d claims and %d schedules, with snapshot-controller (%d requests/s), csi-snapshotter and Holdfast's driver, EC2 simulated\n", p.Version, o.claims, o.schedules, o.qps)
	st, err := p.startStack(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := p.classes(ctx, o.schedules); err != nil {
		return nil, err
	}
	handles, err := st.volumes(ctx, o.claims, o.throttle)
	if err != nil {
		return nil, err
	}
	if _, err := p.claims(ctx, o.claims, o.schedules, func(i int) string { return handles[i] }); err != nil {
		return nil, err
	}
	m, err := p.startManager(ctx, o)
	if err != nil {
		return nil, err
	}
	slot, err := p.scheduleAll(ctx, o)
	if err != nil {
		return nil, err
	}
	seen := &sights{slot: slot, want: o.claims, created: map[types.UID]time.Time{}, ready: map[types.UID]time.Time{}, byClaim: map[string]int{}}
	// What is written of new schedules is no cost of their slot.
	if err := p.quiet(ctx); err != nil {
		return nil, err
	}
	before, err := p.usage(ctx, m)
	if err != nil {
		return nil, err
	}
	if time.Now().After(slot) {
		return nil, errors.New("the schedules were not settled before their slot: give them longer with --lead")
	}
	p.progress.Say("all is set for the slot of %s UTC", slot.UTC().Format("15:04"))
	if err := seen.watch(ctx, p, o.patience); err != nil {
		return nil, err
	}
	if err := p.quiet(ctx); err != nil {
		return nil, err
	}
	after, err := p.usage(ctx, m)
	if err != nil {
		return nil, err
	}
	memory, err := m.Memory(ctx)
	if err != nil {
		return nil, err
	}
	seen.print(out, before, after)
	fmt.Fprintf(out, "EC2 was asked: %s\n", strings.Join(st.calls(), ", "))
	memory.Print(out)
	return seen.figures(before, after), nil
}

// scheduleAll makes the schedules, due at one minute, and waits until the manager
// knows them all.
func (p *place) scheduleAll(ctx context.Context, o options) (time.Time, error) {
	p.progress.Say("%d schedules are made", o.schedules)
	slot := time.Now().Add(o.lead + time.Minute).Truncate(time.Minute)
	keep := v1alpha1.SnapshotRetention{KeepLast: 3}
	if err := bench.Parallel(ctx, workers, o.schedules, func(ctx context.Context, i int) error { return p.schedule(ctx, i, cronAt(slot), keep) }); err != nil {
		return slot, err
	}
	return slot, testenv.Eventually(ctx, time.Until(slot), "the manager knows all schedules", func(ctx context.Context) (string, error) {
		n, _, err := p.settled(ctx)
		if err != nil || n == o.schedules {
			return "", err
		}
		return fmt.Sprintf("%d of %d", n, o.schedules), nil
	})
}

// watch notes when each copy is created and ready, until all are.
func (s *sights) watch(ctx context.Context, p *place, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Until(s.slot))
	defer cancel()
	for len(s.ready) < s.want {
		if err := s.watchOnce(ctx, p); err != nil {
			return fmt.Errorf("%d of %d copies are there, %d are ready: %w", len(s.created), s.want, len(s.ready), err)
		}
	}
	return nil
}

// watchOnce does so for as long as the API server lets one watch go on, which is
// not long where it is busy.
func (s *sights) watchOnce(ctx context.Context, p *place) error {
	var list snapshotv1.VolumeSnapshotList
	if err := p.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for i := range list.Items {
		s.note(&list.Items[i])
	}
	p.progress.Often("%d of %d copies are there, %d are ready", len(s.created), s.want, len(s.ready))
	w, err := p.Client.Watch(ctx, &snapshotv1.VolumeSnapshotList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch snapshots: %w", err)
	}
	defer w.Stop()
	for len(s.ready) < s.want {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-w.ResultChan():
			snapshot, is := e.Object.(*snapshotv1.VolumeSnapshot)
			if !open || !is {
				return nil
			}
			s.note(snapshot)
			p.progress.Often("%d of %d copies are there, %d are ready", len(s.created), s.want, len(s.ready))
		}
	}
	return nil
}

func (s *sights) note(snapshot *snapshotv1.VolumeSnapshot) {
	if _, known := s.created[snapshot.UID]; !known {
		s.created[snapshot.UID] = time.Now()
		s.byClaim[snapshot.Labels[v1alpha1.LabelClaimUID]+" "+snapshot.Labels[v1alpha1.LabelSlot]]++
	}
	if _, known := s.ready[snapshot.UID]; !known && snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse {
		s.ready[snapshot.UID] = time.Now()
	}
}

// settleFor is how long nothing is written where all is done.
const settleFor = 5 * time.Second

// quiet waits until nobody writes any more.
func (p *place) quiet(ctx context.Context) error {
	last, since := -1.0, time.Now()
	return testenv.Eventually(ctx, 5*time.Minute, "nobody writes", func(ctx context.Context) (string, error) {
		counts, err := p.Requests(ctx)
		if err != nil {
			return "", err
		}
		if n := total(writes(counts)); n != last {
			last, since = n, time.Now()
		}
		p.progress.Often("until nobody writes: %.0f writes so far", last)
		if time.Since(since) < settleFor {
			return fmt.Sprintf("%.0f writes so far", last), nil
		}
		return "", nil
	})
}

// writes are the requests that change what is stored, but for leases.
func writes(counts map[string]float64) map[string]float64 {
	all := map[string]float64{}
	for name, n := range counts {
		verb, resource, _ := strings.Cut(name, " ")
		switch {
		case resource == "leases" || resource == "tokenreviews" || resource == "subjectaccessreviews":
		case slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, verb):
			all[name] = n
		}
	}
	return all
}

func total(counts map[string]float64) (n float64) {
	for _, v := range counts {
		n += v
	}
	return n
}

// between is by how much counts grew.
func between(before, after map[string]float64) map[string]float64 {
	more := map[string]float64{}
	for name, n := range after {
		if d := n - before[name]; d > 0 {
			more[name] = d
		}
	}
	return more
}

// told are counts in words, largest first.
func told(counts map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return int(counts[b] - counts[a]) })
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s %.0f", name, counts[name]))
	}
	return strings.Join(all, ", ")
}

// after are how long after the slot things were seen, in order.
func (s *sights) after(at map[types.UID]time.Time) []time.Duration {
	var all []time.Duration
	for _, t := range at {
		all = append(all, t.Sub(s.slot))
	}
	slices.Sort(all)
	return all
}

func (s *sights) duplicates() (n int) {
	for _, objects := range s.byClaim {
		n += objects - 1
	}
	return n
}

func (s *sights) print(out io.Writer, before, after usage) {
	fmt.Fprintf(out, "\n# The slot of %s\n", s.slot.UTC().Format("15:04"))
	for _, what := range []struct {
		name string
		at   map[types.UID]time.Time
	}{{"created", s.created}, {"ready", s.ready}} {
		t := s.after(what.at)
		fmt.Fprintf(out, "%-8s %d: first %.1f s after the slot, half %.1f s, last %.1f s\n", what.name, len(t), t[0].Seconds(), t[len(t)/2].Seconds(), t[len(t)-1].Seconds())
	}
	byMethod := map[string]float64{}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if n := after.manager.Sent(method) - before.manager.Sent(method); n > 0 {
			byMethod[method] = n
		}
	}
	fmt.Fprintf(out, "the manager sent %s, and worked %.1f s of processor time\n", told(byMethod), after.manager.Processor()-before.manager.Processor())
	fmt.Fprintf(out, "all that was written meanwhile, by whomever: %s\n", told(between(writes(before.server), writes(after.server))))
}

func (s *sights) figures(before, after usage) []bench.Figure {
	created := s.after(s.created)
	return []bench.Figure{
		{Name: fmt.Sprintf("slot to last of %d objects", s.want), Is: created[len(created)-1].Seconds(), AtMost: 600, Unit: "s"},
		{Name: "the manager's requests for each snapshot", Is: (after.manager.Requests() - before.manager.Requests()) / float64(s.want), AtMost: 2, Unit: ""},
		{Name: "claims copied twice", Is: float64(s.duplicates())},
	}
}
