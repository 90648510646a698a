package ec2sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

// Config says what the simulated region is. The zero value is a region
// us-east-1 in memory, with no instances and EC2-like delays.
type Config struct {
	// Clock decides every time; nil: the machine's.
	Clock clock.Clock
	// Region is the region's name; empty: us-east-1.
	Region string
	// Account is the account's number; empty: 000000000000.
	Account string
	// Zones are the names of the availability zones; nil: a, b and c of the region.
	Zones []string
	// StateDir keeps the state over restarts; empty: it is lost with the process.
	StateDir string
	// Disks makes the content of volumes; nil: there is none.
	Disks Disks
	// Delays are how long passing states last; nil: DefaultDelays.
	Delays *Delays
	// Seed chooses what is drawn where delays have a spread.
	Seed uint64
	// Drew is told how long each state lasts that a call of an action begins,
	// and by its id the volume or snapshot whose state it is, while the call is
	// handled; nil: nobody is. A call that makes a volume is told of before it is
	// known whether EC2 accepts it: what it is refused, or has made before under
	// the same client token, has an id that nothing else bears.
	Drew func(action, resource string, lasts time.Duration)
	// Quotas are the account's limits; nil: none but those every volume has.
	Quotas Quotas
	// Throttle has EC2's token buckets refuse what is too fast.
	Throttle bool
	// Principals are the policies of access keys, by key id. A key that is
	// not among them may do everything.
	Principals map[string]*iam.Policy
	// Log gets a line for each call and each thing that was not modelled.
	Log logr.Logger
}

// Sim is a simulated region: an http.Handler for the EC2 API and, below
// /_sim/, for the control API. Its methods may be used from any goroutine.
type Sim struct {
	cfg     Config
	clock   clock.Clock
	disks   Disks
	actions map[string]*action
	control http.Handler
	zones   []zone

	mu          sync.Mutex
	store       *store
	delays      Delays
	draws       draws
	quotas      Quotas
	policies    map[string]*iam.Policy
	throttle    throttle
	faults      []*pendingFault
	lag         map[string]Duration // of reads, by action
	calls       map[callKey]int
	permissions map[Permission]int
	unmodelled  map[Unmodelled]int
	copying     map[string]bool // snapshots and volumes whose content is being made
	kick        chan struct{}   // tells Run that something is due sooner
	imds        imdsTokens
}

// New makes a region, or takes up the one kept in the state folder.
func New(cfg Config) (*Sim, error) {
	cfg = withDefaults(cfg)
	zones, err := makeZones(cfg.Region, cfg.Zones)
	if err != nil {
		return nil, err
	}
	if err := cfg.Delays.check(); err != nil {
		return nil, err
	}
	st, err := openStore(cfg.StateDir, cfg.Disks.Vacant)
	if err != nil {
		return nil, err
	}
	s := &Sim{
		cfg:         cfg,
		clock:       cfg.Clock,
		disks:       cfg.Disks,
		actions:     actionTable(),
		zones:       zones,
		store:       st,
		delays:      *cfg.Delays,
		draws:       newDraws(cfg.Seed),
		quotas:      cfg.Quotas,
		policies:    maps.Clone(cfg.Principals),
		throttle:    throttle{on: cfg.Throttle},
		calls:       map[callKey]int{},
		permissions: map[Permission]int{},
		unmodelled:  map[Unmodelled]int{},
		copying:     map[string]bool{},
		kick:        make(chan struct{}, 1),
		imds:        imdsTokens{byValue: map[string]imdsToken{}},
	}
	s.control = s.controlHandler()
	if err := s.reconcile(); err != nil {
		return nil, errors.Join(err, st.journal.close())
	}
	return s, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.Account = cmp.Or(cfg.Account, "000000000000")
	if cfg.Zones == nil {
		cfg.Zones = []string{cfg.Region + "a", cfg.Region + "b", cfg.Region + "c"}
	}
	if cfg.Principals == nil {
		cfg.Principals = map[string]*iam.Policy{}
	}
	if cfg.Disks == nil {
		cfg.Disks = noDisks{}
	}
	if cfg.Delays == nil {
		d := DefaultDelays()
		cfg.Delays = &d
	}
	return cfg
}

// Close gives the state folder back. Disks stay attached, as EC2's do.
func (s *Sim) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.journal.close()
}

// reconcile brings the machine's disks to what the records say. A volume in
// state deleting is left out: its file may be gone already, as vanish takes the
// file first and the record after it.
func (s *Sim) reconcile() error {
	volumes := map[string][]string{}
	for id, v := range s.store.volumes {
		if v.RootOf != "" || v.State == stateDeleting || v.Doomed {
			continue
		}
		volumes[id] = nil
		for _, a := range v.Attachments {
			dev := s.devDir(a.InstanceID)
			if dev != "" && a.State != attachAttaching {
				volumes[id] = append(volumes[id], dev)
			}
		}
	}
	var snapshots []string
	for id := range s.store.snapshots {
		snapshots = append(snapshots, id)
	}
	if err := s.disks.Reconcile(volumes, snapshots); err != nil {
		return fmt.Errorf("bring disks to the state kept in %s: %w", s.cfg.StateDir, err)
	}
	return nil
}

func (s *Sim) devDir(instanceID string) string {
	if i := s.store.instances[instanceID]; i != nil {
		return i.DevDir
	}
	return ""
}

// Run moves states on when their time comes, whether or not somebody calls,
// until ctx ends. It is needed where devices have to appear by themselves;
// with records only, each call moves the states on.
func (s *Sim) Run(ctx context.Context) {
	for {
		s.mu.Lock()
		s.advance()
		next := s.nextDue()
		s.mu.Unlock()
		if !s.waitUntil(ctx, next) {
			return
		}
	}
}

// waitUntil waits for a time (zero: none) or a wake; false when ctx ended.
func (s *Sim) waitUntil(ctx context.Context, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := s.clock.NewTimer(max(0, next.Sub(s.clock.Now())))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-s.kick:
	}
	return true
}

// wake has Run look again at what is due.
func (s *Sim) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// commit makes the changes of the running call outlive the process.
func (s *Sim) commit() *APIError {
	if err := s.store.commit(); err != nil {
		return internalError(err)
	}
	s.wake()
	return nil
}

// zone is an availability zone by name and by id.
type zone struct{ name, id string }

// makeZones gives each zone name its id: use1-az1 for us-east-1a. In EC2 the
// pairing differs from account to account; here it goes by the letter.
// https://docs.aws.amazon.com/ram/latest/userguide/working-with-az-ids.html
func makeZones(region string, names []string) ([]zone, error) {
	var out []zone
	for _, n := range names {
		letter, ok := strings.CutPrefix(n, region)
		if !ok || len(letter) != 1 || letter < "a" || letter > "z" {
			return nil, fmt.Errorf("zone %q is not in region %q: a zone is the region's name and a letter", n, region)
		}
		out = append(out, zone{name: n, id: fmt.Sprintf("%s-az%d", shortRegion(region), letter[0]-'a'+1)})
	}
	slices.SortFunc(out, func(a, b zone) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// shortRegion is the region's part of a zone id: use1 for us-east-1.
func shortRegion(region string) string {
	short := strings.NewReplacer("northeast", "ne", "southeast", "se", "northwest", "nw", "southwest", "sw",
		"north", "n", "south", "s", "east", "e", "west", "w", "central", "c", "gov", "g", "-", "")
	return short.Replace(region)
}

func (s *Sim) zoneID(name string) string {
	for _, z := range s.zones {
		if z.name == name {
			return z.id
		}
	}
	return ""
}
