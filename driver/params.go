package driver

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// A parameter is one key that a class may carry. Keys are compared without
// case, as AWS's driver does; a key that is in no table is an error, so that a
// mistyped "encrypt: true" never ends as an unencrypted volume.
type parameter[T any] struct {
	// key as documented. One that ends in "_" stands for any key that begins so.
	key string
	// allowed completes the sentence "allowed is …" of an error.
	allowed string
	// parse reads the value of a key into p; the caller adds key, value and allowed to its error.
	parse func(p *T, key, value string) error
}

// errValue says that a value is none of the allowed ones and nothing more.
var errValue = errors.New("not allowed")

// parseParameters reads params into p by the table and reports everything that
// is wrong at once, in the order of the keys.
func parseParameters[T any](table []parameter[T], params map[string]string, p *T) error {
	keys := make([]string, 0, len(params))
	for k := range params {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var wrong []string
	seen := map[string]string{}
	for _, key := range keys {
		folded := strings.ToLower(key)
		if twin, twice := seen[folded]; twice {
			wrong = append(wrong, fmt.Sprintf("parameter %q is given twice, as %q too", key, twin))
			continue
		}
		seen[folded] = key
		row, known := findParameter(table, folded)
		if !known {
			wrong = append(wrong, fmt.Sprintf("parameter %q (value %q) is unknown: allowed are %s", key, params[key], keyList(table)))
			continue
		}
		if err := row.parse(p, key, params[key]); err != nil {
			wrong = append(wrong, describeValue(key, params[key], row.allowed, err))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ebs.ErrInvalid, strings.Join(wrong, "; "))
	}
	return nil
}

func describeValue(key, value, allowed string, err error) string {
	if errors.Is(err, errValue) {
		return fmt.Sprintf("parameter %q: value %q: allowed is %s", key, value, allowed)
	}
	return fmt.Sprintf("parameter %q: value %q: %v: allowed is %s", key, value, err, allowed)
}

func findParameter[T any](table []parameter[T], folded string) (parameter[T], bool) {
	for _, row := range table {
		want := strings.ToLower(row.key)
		if folded == want || strings.HasSuffix(want, "_") && strings.HasPrefix(folded, want) {
			return row, true
		}
	}
	return parameter[T]{}, false
}

// keyList names the keys of a table that a class may carry; those that the sidecars add are left out.
func keyList[T any](table []parameter[T]) string {
	var names []string
	for _, row := range table {
		switch {
		case strings.HasPrefix(row.key, sidecarPrefix) && !strings.HasSuffix(row.key, "fstype"):
		case strings.HasSuffix(row.key, "_"):
			names = append(names, row.key+"N")
		default:
			names = append(names, row.key)
		}
	}
	return strings.Join(names, ", ")
}

// attachInitializedKey is a parameter and, in small letters, the key of the
// volume context that tells ControllerPublishVolume, as with AWS's driver.
const attachInitializedKey = "blockAttachUntilInitialized"

// sidecarPrefix begins the parameters that csi-provisioner and csi-snapshotter add.
const sidecarPrefix = "csi.storage.k8s.io/"

// volumeParameters is what a StorageClass asks for.
type volumeParameters struct {
	volumeType      ebs.VolumeType
	iops            int32
	iopsPerGB       int32
	raiseIOPS       bool // allowAutoIOPSPerGBIncrease
	iopsFollowSize  bool // allowAutoIOPSIncreaseOnModify
	iopsStay        bool // IOPS are another type's: within this type's limits
	throughputMiBps int32
	encrypted       bool
	kmsKeyID        string
	format          fs.FormatOptions
	// initializationMiBps is the rate at which a snapshot's content is fetched.
	initializationMiBps int32
	// attachInitialized: attached only once all content of the source is there.
	attachInitialized bool
	tags              map[string]string // key=value by parameter, values are templates
	claim             map[string]string // what templates may name: PVCName, PVCNamespace, PVName
}

// volumeTable holds the parameters of a StorageClass, see
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
var volumeTable = withFormat([]parameter[volumeParameters]{
	{"type", "one of " + volumeTypeNames(), func(p *volumeParameters, _, v string) error {
		t, err := parseVolumeType(v)
		if t != "" {
			p.volumeType = t
		}
		return err
	}},
	{"iops", "a whole number above 0", func(p *volumeParameters, _, v string) (err error) {
		p.iops, err = parseCount(v)
		return err
	}},
	{"iopsPerGB", "a whole number above 0", func(p *volumeParameters, _, v string) (err error) {
		p.iopsPerGB, err = parseCount(v)
		return err
	}},
	{"allowAutoIOPSPerGBIncrease", boolValues, func(p *volumeParameters, _, v string) (err error) {
		p.raiseIOPS, err = parseBool(v)
		return err
	}},
	{"throughput", "a whole number above 0, in MiB/s", func(p *volumeParameters, _, v string) (err error) {
		p.throughputMiBps, err = parseCount(v)
		return err
	}},
	{"allowAutoIOPSIncreaseOnModify", boolValues, func(p *volumeParameters, _, v string) (err error) {
		p.iopsFollowSize, err = parseBool(v)
		return err
	}},
	{"encrypted", boolValues, func(p *volumeParameters, _, v string) (err error) {
		p.encrypted, err = parseBool(v)
		return err
	}},
	{"kmsKeyId", "the id, alias or ARN of a KMS key", func(p *volumeParameters, _, v string) error {
		if strings.ContainsAny(v, " \t\n") {
			return errValue
		}
		p.kmsKeyID = v
		return nil
	}},
	{"blockExpress", boolValues, func(_ *volumeParameters, _, v string) error {
		// Every io2 volume is one by now, so that the key has no effect.
		_, err := parseBool(v)
		return err
	}},
	{"volumeInitializationRate", fmt.Sprintf("a whole number from %d to %d, in MiB/s", ebs.MinInitializationMiBps, ebs.MaxInitializationMiBps), func(p *volumeParameters, _, v string) (err error) {
		p.initializationMiBps, err = parseCount(v)
		return err
	}},
	{attachInitializedKey, boolValues, func(p *volumeParameters, _, v string) (err error) {
		p.attachInitialized, err = parseBool(v)
		return err
	}},
	{sidecarPrefix + "fstype", fsTypeNames, parseFSTypeParameter},
	{"fsType", fsTypeNames, parseFSTypeParameter},
	{"tagSpecification_", "key=value", func(p *volumeParameters, key, v string) error {
		p.tags = withTag(p.tags, key, v)
		return nil
	}},
	{sidecarPrefix + "pvc/name", "any", claimName("PVCName")},
	{sidecarPrefix + "pvc/namespace", "any", claimName("PVCNamespace")},
	{sidecarPrefix + "pv/name", "any", claimName("PVName")},
}, func(p *volumeParameters) *fs.FormatOptions { return &p.format })

// withTag adds a tagSpecification under the name of its parameter, so that an
// error can name it.
func withTag(tags map[string]string, parameter, spec string) map[string]string {
	if tags == nil {
		tags = map[string]string{}
	}
	tags[parameter] = spec
	return tags
}

func claimName(field string) func(p *volumeParameters, _, v string) error {
	return func(p *volumeParameters, _, v string) error {
		p.claim[field] = v
		return nil
	}
}

// parseVolumeParameters reads the parameters of a StorageClass.
func parseVolumeParameters(params map[string]string) (volumeParameters, error) {
	p := volumeParameters{volumeType: ebs.GP3, claim: map[string]string{}}
	if err := parseParameters(volumeTable, params, &p); err != nil {
		return volumeParameters{}, err
	}
	if p.iops != 0 && p.iopsPerGB != 0 {
		return volumeParameters{}, fmt.Errorf("%w: parameters iops (%d) and iopsPerGB (%d): only one of them may be given", ebs.ErrInvalid, p.iops, p.iopsPerGB)
	}
	// A key says that encryption is wanted, whatever "encrypted" says: never silently unencrypted.
	p.encrypted = p.encrypted || p.kmsKeyID != ""
	if l, _ := ebs.LimitsOf(p.volumeType); l.MaxIOPS == 0 {
		p.iopsPerGB = 0 // Kubernetes' own plugin took a rate on gp2 for nothing, and many a class of its has one
	}
	return p, nil
}

// volumeContext is what later requests about the volume must be told, nil for
// nothing. An empty volume has no content to wait for.
func (p volumeParameters) volumeContext(hasSource bool) map[string]string {
	context := formatContext(p.format)
	if p.attachInitialized && hasSource {
		if context == nil {
			context = map[string]string{}
		}
		context[strings.ToLower(attachInitializedKey)] = "true"
	}
	return context
}

// iopsFor is the number of IOPS for a volume of a size; 0 is EC2's default.
// What iopsPerGB gives beyond the type's maximum is cut to it, since a rate
// must serve every size, as in AWS's driver and in Kubernetes' own before it; a
// result below the minimum is raised only where the class allows it.
func (p volumeParameters) iopsFor(size ebs.GiB) (int32, error) {
	l, _ := ebs.LimitsOf(p.volumeType)
	if p.iopsStay && l.MaxIOPS != 0 {
		p.raiseIOPS, p.iopsPerGB = true, min(p.iopsPerGB, l.MaxIOPSPerGiB)
		if p.iops != 0 && size != 0 {
			p.iops = max(l.MinIOPS, min(p.iops, l.MaxIOPSOf(size)))
		}
	}
	if p.iopsPerGB == 0 {
		return p.iops, nil
	}
	if size == 0 {
		return 0, invalid("parameter iopsPerGB: value %d: the request must name a size", p.iopsPerGB)
	}
	iops, low, err := ebs.IOPSByRate(p.volumeType, p.iopsPerGB, size)
	if err == nil && low && !p.raiseIOPS {
		err = invalid("parameter iopsPerGB: value %d: %d GiB make fewer than the %d IOPS that an EBS %s volume has at least: ask for more or set allowAutoIOPSPerGBIncrease to true", p.iopsPerGB, size, iops, p.volumeType)
	}
	return iops, err
}

// parseVolumeType reads a type in any case; none is empty.
func parseVolumeType(v string) (ebs.VolumeType, error) {
	t := ebs.VolumeType(strings.ToLower(v))
	if _, ok := ebs.LimitsOf(t); !ok && t != "" {
		return "", errValue
	}
	return t, nil
}

func volumeTypeNames() string {
	var names []string
	for _, t := range ebs.VolumeTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// boolValues and fsTypeNames complete "allowed is …".
const (
	boolValues  = "true or false"
	fsTypeNames = "ext4, ext3 or xfs"
)

// parseBool takes true and false in any case: "True" must not end as false, and "yes" is no answer.
func parseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errValue
}

func parseCount(v string) (int32, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n <= 0 {
		return 0, errValue
	}
	return int32(n), nil
}

// parseFSTypeParameter judges a filesystem type. The controller needs no more:
// the node is told by the volume capability.
func parseFSTypeParameter(_ *volumeParameters, _, v string) error { return checkFSType(v) }

// checkFSType refuses filesystems that the node cannot make; empty is the default.
func checkFSType(v string) error {
	switch strings.ToLower(v) {
	case "", "ext4", "ext3", "xfs":
		return nil
	}
	return errValue
}
