package ec2sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// tokenMemory is how long a client token is remembered; AWS's page leaves it
// open, about half a day was seen.
const tokenMemory = 12 * time.Hour

// maxToken is the longest client token.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
const maxToken = 64

// after is now and a delay of a resource, which this call draws where delays have a spread.
func (r *request) after(resource string, d Duration) time.Time {
	drawn := r.sim.draws.draw(d, r.sim.delays.Spread)
	if d > 0 && r.sim.cfg.Drew != nil {
		r.sim.cfg.Drew(r.action.name, resource, drawn)
	}
	return r.now.Add(drawn)
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
func createVolume(r *request) (stampable, *APIError) {
	v, err := r.wantedNewVolume()
	if err != nil {
		return nil, err
	}
	var source *Snapshot
	if v.SnapshotID != "" {
		source = r.sim.store.snapshots[v.SnapshotID]
	}
	if err := r.allowCreateVolume(v, source); err != nil {
		return nil, err
	}
	made, err := r.makeOnce(v, nil)
	if err != nil {
		return nil, err
	}
	return &volumeAnswer{volumeXML: r.sim.volumeXML(made)}, nil
}

// makeOnce makes a volume, unless the call's client token made one before,
// which it gives back then. The check, if there is one, is about the making
// only: what it refuses a repeat still gets.
func (r *request) makeOnce(v *Volume, check func() *APIError) (*Volume, *APIError) {
	token := r.str("ClientToken")
	if len(token) > maxToken {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter clientToken is invalid. The token must not be longer than %d characters.", token, maxToken)
	}
	scope := token + "/" + v.Zone
	if token != "" {
		old, err := r.sim.tokenVolume(scope, r.tokenParams())
		if err != nil {
			return nil, err
		}
		if old != nil && !r.dryRun() {
			return old, nil
		}
	}
	if check != nil {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if err := r.sim.checkVolumeQuotas(v); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	t := &clientToken{ID: scope, Params: r.tokenParams(), VolumeID: v.ID, Used: r.now}
	if err := r.sim.makeVolume(v, t, token != ""); err != nil {
		return nil, err
	}
	return v, nil
}

// makeVolume makes the content, for which the lock is given up, as a copy may
// take long; nobody can use a volume that is creating. Volume and token count
// at once, and are kept in the journal once the content is there.
func (s *Sim) makeVolume(v *Volume, t *clientToken, tokened bool) *APIError {
	s.store.volumes[v.ID] = v
	if tokened {
		s.store.tokens[t.ID] = t
	}
	s.copying[v.ID] = true
	s.mu.Unlock()
	err := s.makeContent(v)
	s.mu.Lock()
	delete(s.copying, v.ID)
	if err != nil {
		s.store.dropVolume(v.ID)
		s.store.dropToken(t.ID)
		return refuse("InsufficientVolumeCapacity", "There is not enough capacity for a volume of %d GiB: %v", v.SizeGiB, err)
	}
	s.store.putVolume(v)
	if tokened {
		s.store.putToken(t)
	}
	return nil
}

func (s *Sim) makeContent(v *Volume) error {
	if v.Doomed { // nobody will ever use it
		return nil
	}
	if v.SourceVolumeID != "" {
		return s.disks.CopyVolume(v.SourceVolumeID, v.ID, gib(v.SizeGiB))
	}
	return s.disks.CreateVolume(v.ID, v.SnapshotID, gib(v.SizeGiB))
}

// wantedNewVolume is the volume that the parameters ask for, checked.
func (r *request) wantedNewVolume() (*Volume, *APIError) {
	z, err := r.zoneParam()
	if err != nil {
		return nil, err
	}
	tags, err := r.newTags("volume")
	if err != nil {
		return nil, err
	}
	id := newID("vol-")
	v := &Volume{
		ID: id, Zone: z.name, Created: r.now, State: stateCreating, Tags: tags,
		Until: r.after(id, r.sim.delays.Create), Encrypted: r.boolean("Encrypted"), KMSKeyID: r.str("KmsKeyId"),
		SnapshotID: r.str("SnapshotId"), Doomed: r.fault.ends(OutcomeVanish), Failing: r.fault.ends(OutcomeError),
	}
	size, sized := r.number("Size")
	if err := r.err(); err != nil {
		return nil, err
	}
	if err := r.sourceParam(v, size, sized); err != nil {
		return nil, err
	}
	if err := r.shapeParams(v); err != nil {
		return nil, err
	}
	if err := r.sim.fitKey(v); err != nil {
		return nil, err
	}
	return v, r.err()
}

// fitKey checks that key and encryption go together, and fills in the
// account's default key.
func (s *Sim) fitKey(v *Volume) *APIError {
	if v.KMSKeyID != "" && !v.Encrypted {
		return refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	if v.Encrypted && v.KMSKeyID == "" {
		v.KMSKeyID = fmt.Sprintf("arn:aws:kms:%s:%s:key/00000000-0000-0000-0000-0000000000eb", s.cfg.Region, s.cfg.Account)
	}
	return nil
}

// zoneParam: exactly one of the two ways to name the zone.
func (r *request) zoneParam() (zone, *APIError) {
	name, id := r.str("AvailabilityZone"), r.str("AvailabilityZoneId")
	switch {
	case name == "" && id == "":
		return zone{}, refuse("MissingParameter", "Either AvailabilityZone or AvailabilityZoneId must be specified.")
	case name != "" && id != "":
		return zone{}, refuse("InvalidParameterCombination", "The parameters AvailabilityZone and AvailabilityZoneId cannot be used together.")
	}
	return r.sim.findZone(name, id)
}

// initialization rates that can be asked for, in MiB/s.
// https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
const (
	minInitRate = 100
	maxInitRate = 300
)

// sourceParam sets the size, and what comes with a snapshot.
func (r *request) sourceParam(v *Volume, size int32, sized bool) *APIError {
	rate, rated := r.number("VolumeInitializationRate")
	if err := r.err(); err != nil {
		return err
	}
	if v.SnapshotID == "" {
		if !sized {
			return refuse("MissingParameter", "The request must contain the parameter size or snapshotId")
		}
		if rated {
			return refuse("InvalidParameterDependency", "The parameter VolumeInitializationRate requires the parameter SnapshotId to be set.")
		}
		v.SizeGiB = size
		return nil
	}
	sn, err := r.sim.snapshot(v.SnapshotID)
	if err != nil {
		return err
	}
	if sn.State != snapCompleted {
		return refuse("IncorrectState", "Snapshot is in invalid state - %s", sn.State)
	}
	if !sized {
		size = sn.SizeGiB
	}
	if size < sn.SizeGiB {
		return refuse("InvalidParameterValue", "Volume of size %dGiB is smaller than snapshot '%s', expect size >= %dGiB", size, sn.ID, sn.SizeGiB)
	}
	if rated && (rate < minInitRate || rate > maxInitRate) {
		return refuse("InvalidParameterValue", "Volume initialization rate of %d is invalid; it must be between %d and %d.", rate, minInitRate, maxInitRate)
	}
	v.SizeGiB, v.InitRateMiBs = size, rate
	v.Initialized = r.after(v.ID, r.sim.delays.Initialize)
	if v.FastRestored = rate == 0 && sn.fastIn(v.Zone); v.FastRestored {
		v.Initialized = r.now
	}
	if sn.Encrypted { // a volume from an encrypted snapshot is encrypted
		v.Encrypted = true
		if v.KMSKeyID == "" {
			v.KMSKeyID = sn.KMSKeyID
		}
	}
	return nil
}

// shapeParams sets type, IOPS and throughput.
func (r *request) shapeParams(v *Volume) *APIError {
	sh := Shape{SizeGiB: v.SizeGiB, Type: r.str("VolumeType"), MultiAttach: r.boolean("MultiAttachEnabled")}
	if sh.Type == "" {
		sh.Type = "gp2"
	}
	wish := shapeWish{iops: r.optional("Iops"), throughput: r.optional("Throughput")}
	if err := r.err(); err != nil {
		return err
	}
	sh, err := fit(sh, wish)
	if err != nil {
		return err
	}
	v.Type, v.IOPS, v.ThroughputMiBs, v.MultiAttach = sh.Type, sh.IOPS, sh.ThroughputMiBs, sh.MultiAttach
	return nil
}

// optional is a number, nil if it was not sent.
func (r *request) optional(name string) *int32 {
	n, ok := r.number(name)
	if !ok {
		return nil
	}
	return &n
}

// tokenParams is what has to be the same when a token comes again: all
// parameters but the token and the dry run, tags in any order.
func (r *request) tokenParams() string {
	var b strings.Builder
	for _, key := range sortedKeys(r.values) {
		if key == "ClientToken" || key == "DryRun" || key == "Version" || strings.HasPrefix(key, "TagSpecification.") {
			continue
		}
		fmt.Fprintf(&b, "%s=%s\n", key, r.str(key))
	}
	tags, _ := r.newTags("volume") // refused before if they are wrong
	for _, t := range tagsXML(tags).Items {
		fmt.Fprintf(&b, "tag %q=%q\n", t.Key, t.Value)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// tokenVolume is the volume that a token made before, nil if it is new.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
func (s *Sim) tokenVolume(scope, params string) (*Volume, *APIError) {
	t := s.store.tokens[scope]
	if t == nil {
		return nil, nil
	}
	v := s.store.volumes[t.VolumeID]
	if v == nil || v.State == stateDeleting {
		return nil, refuse("IdempotentParameterMismatch", "The client token you have provided is associated with a resource that is already deleted. Please use a different client token.")
	}
	if t.Params != params {
		return nil, refuse("IdempotentParameterMismatch", "The client token you have provided is associated with a request that had different parameters. Please use a different client token.")
	}
	return v, nil
}

func (s *Sim) forgetTokens(now time.Time) {
	for id, t := range s.store.tokens {
		if now.Sub(t.Used) >= tokenMemory {
			s.store.dropToken(id)
		}
	}
}

func (s *Sim) checkVolumeQuotas(v *Volume) *APIError {
	count := 0
	for _, o := range s.store.volumes {
		if o.RootOf == "" {
			count++
		}
	}
	if q := s.quotas.Volumes; q > 0 && count >= q {
		return refuse("VolumeLimitExceeded", "You have exceeded your maximum volume limit of %d.", q)
	}
	return s.checkIOPSQuota(v.ID, v.shape())
}

// checkIOPSQuota judges whether a volume, which may exist already, can have a
// shape.
func (s *Sim) checkIOPSQuota(volumeID string, sh Shape) *APIError {
	iops := provisionedIOPS(sh.Type, sh.IOPS)
	for _, o := range s.store.volumes {
		if o.RootOf == "" && o.ID != volumeID {
			iops += provisionedIOPS(o.Type, o.IOPS)
		}
	}
	if q := s.quotas.IOPS; q > 0 && iops > q {
		return refuse("MaxIOPSLimitExceeded", "You have exceeded your maximum IOPS limit of %d.", q)
	}
	return nil
}
