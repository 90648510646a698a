package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// tokensPerCall bounds how many used-up client tokens one call steps over. What
// it learnt is kept, so the next call goes on from there.
const tokensPerCall = 8

// EnsureVolume makes the volume, or finds it where an earlier call did, and
// waits until it can be attached.
//
//	a volume of the name   as wanted          it, once it is ready
//	                       modified since     it, see asWanted
//	                       other than wanted  ErrAlreadyExists
//	none                                      created under the name's client token
//	 token of another      volume found       as above
//	 or deleted volume     none found         created under the name's next token
//	 quota reached         volume found       as above
//	                       none found         ErrLimitExceeded
//	 vanishes again                           ErrVanished
func (c *Client) EnsureVolume(ctx context.Context, want ebs.VolumeRequest) (ebs.Volume, error) {
	if err := checkSource(want); err != nil {
		return ebs.Volume{}, err
	}
	found, err := c.volumeByName(ctx, want.Name)
	if err != nil {
		// An earlier call may have made it: without an answer we must not say that there is none.
		return ebs.Volume{}, accepted(fmt.Errorf("look for a volume of that name: %w", err))
	}
	var vol ebs.Volume
	if found == nil {
		vol, found, err = c.create(ctx, want)
		if err != nil {
			return ebs.Volume{}, err
		}
	}
	if found != nil { // a volume that was just made is as wanted: EC2 has accepted every parameter
		vol = *found
		if err := c.asWanted(ctx, vol, want); err != nil {
			return ebs.Volume{}, err
		}
	}
	vol, err = c.waitCreated(ctx, want.Name, vol)
	if errors.Is(err, ebs.ErrVanished) {
		c.useUpToken(want.Name)
	}
	return vol, accepted(err)
}

// create sends CreateVolume, or CopyVolumes for a clone. It answers the volume that this made, or the one
// that it found, where EC2 knows of one that the look-up by tag did not show yet.
func (c *Client) create(ctx context.Context, want ebs.VolumeRequest) (made ebs.Volume, found *ebs.Volume, err error) {
	zone, err := c.zoneFor(ctx, want)
	if err != nil {
		return made, nil, err
	}
	if found, err = c.sentElsewhere(ctx, want.Name, zone); found != nil || err != nil {
		return made, found, accepted(err)
	}
	for range tokensPerCall {
		if want.Source != "" {
			made, err = c.copyVolume(ctx, want, c.token(want.Name))
		} else {
			made, err = c.createVolume(ctx, want, zone, c.token(want.Name))
		}
		switch {
		case err == nil:
			return made, nil, nil
		case errors.Is(err, ebs.ErrMaybeAccepted) && !errors.Is(err, ebs.ErrAlreadyExists):
			c.noteUnsure("volume "+want.Name, zone)
			return made, nil, err
		case errors.Is(err, ebs.ErrLimitExceeded):
			found, lookErr := c.madeBefore(ctx, want.Name)
			if found != nil || lookErr != nil {
				return made, found, accepted(lookErr)
			}
			return made, nil, err
		case !errors.Is(err, ebs.ErrAlreadyExists):
			return made, nil, err
		}
		found, lookErr := c.behindToken(ctx, want.Name, err)
		if found != nil || lookErr != nil {
			return made, found, accepted(lookErr)
		}
		c.useUpToken(want.Name)
	}
	return made, nil, fmt.Errorf("%w: the volumes that %d client tokens of the name made are gone; the next call tries further ones", ebs.ErrNotReady, tokensPerCall)
}

// sentElsewhere looks for a volume that an earlier call of this process may
// have made in another zone, for as long as it may be hidden: EC2 does not say
// whether a client token holds beyond its zone.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
func (c *Client) sentElsewhere(ctx context.Context, name string, zone ebs.Zone) (found *ebs.Volume, err error) {
	until, where := c.unsureUntil("volume " + name)
	if until.IsZero() || where == zone {
		return nil, nil
	}
	err = c.watch(ctx, lagPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		found, err = c.namedWithin(ctx, name, within)
		return found != nil || !c.clock.Now().Before(until), err
	})
	return found, err
}

// madeBefore looks for the volume of a name, for as long as one may be hidden
// that a process before this one made: a refusal for a quota is final to the
// caller, who would forget it.
func (c *Client) madeBefore(ctx context.Context, name string) (found *ebs.Volume, err error) {
	until := c.started.Add(appearWithin)
	if found, err = c.volumeByName(ctx, name); found != nil || err != nil || !c.clock.Now().Before(until) {
		return found, err
	}
	err = c.watch(ctx, lagPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		found, err = c.namedWithin(ctx, name, within)
		return found != nil || !c.clock.Now().Before(until), err
	})
	return found, err
}

// behindToken looks for the volume that holds the name's client token. EC2 says
// so where that volume is deleted; else it may be one that cannot be seen yet,
// and is waited for: a further token would make a second volume.
func (c *Client) behindToken(ctx context.Context, name string, refusal error) (*ebs.Volume, error) {
	if messageHas(refusal, "already deleted") {
		return c.volumeByName(ctx, name)
	}
	var found *ebs.Volume
	start := c.clock.Now()
	err := c.watch(ctx, lagPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		var err error
		found, err = c.namedWithin(ctx, name, within)
		return found != nil || c.clock.Since(start) >= appearWithin, err
	})
	return found, err
}

// token is the client token for the next attempt to create a volume of a name:
// made of the name alone, so that any process finds the same.
func (c *Client) token(name string) string {
	c.mu.Lock()
	used := c.tokens[name]
	c.mu.Unlock()
	if used > 0 {
		name += "\x00" + strconv.Itoa(used)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// useUpToken notes that the name's present token can make no volume any more.
func (c *Client) useUpToken(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[name]++
}

// createVolume sends CreateVolume once, as far as we are concerned; the SDK may
// repeat it under the same token.
func (c *Client) createVolume(ctx context.Context, want ebs.VolumeRequest, zone ebs.Zone, token string) (ebs.Volume, error) {
	in := &sdk.CreateVolumeInput{
		ClientToken:       aws.String(token),
		VolumeType:        types.VolumeType(want.Type),
		TagSpecifications: tagSpecification(types.ResourceTypeVolume, want.Tags),
	}
	if zone.Name != "" {
		in.AvailabilityZone = aws.String(zone.Name)
	} else {
		in.AvailabilityZoneId = aws.String(zone.ID)
	}
	if want.Size != 0 {
		in.Size = aws.Int32(int32(want.Size))
	}
	if want.IOPS != 0 {
		in.Iops = aws.Int32(want.IOPS)
	}
	if want.ThroughputMiBps != 0 {
		in.Throughput = aws.Int32(want.ThroughputMiBps)
	}
	if want.Encrypted {
		in.Encrypted = aws.Bool(true)
	}
	if want.KMSKeyID != "" {
		in.KmsKeyId = aws.String(want.KMSKeyID)
	}
	if want.MultiAttach {
		in.MultiAttachEnabled = aws.Bool(true)
	}
	if want.Snapshot != "" {
		in.SnapshotId = aws.String(string(want.Snapshot))
		if want.InitializationMiBps != 0 {
			in.VolumeInitializationRate = aws.Int32(want.InitializationMiBps)
		}
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.CreateVolumeOutput, error) { return c.api.CreateVolume(ctx, in) })
	if err != nil {
		return ebs.Volume{}, err
	}
	return volumeFrom(types.Volume{
		VolumeId: out.VolumeId, Size: out.Size, VolumeType: out.VolumeType, Iops: out.Iops, Throughput: out.Throughput,
		Encrypted: out.Encrypted, KmsKeyId: out.KmsKeyId, AvailabilityZone: out.AvailabilityZone,
		AvailabilityZoneId: out.AvailabilityZoneId, State: out.State, SnapshotId: out.SnapshotId, Tags: out.Tags,
		MultiAttachEnabled: out.MultiAttachEnabled,
	}), nil
}

// zoneFor is the zone in which a new volume is made: for a copy that of its
// source, else the wanted one, else any.
func (c *Client) zoneFor(ctx context.Context, want ebs.VolumeRequest) (ebs.Zone, error) {
	switch {
	case want.Source != "":
		return c.zoneOfSource(ctx, want)
	case want.Zone != (ebs.Zone{}):
		return want.Zone, nil
	}
	return c.chooseZone(ctx, want.Name)
}

// chooseZone spreads volumes that may be anywhere over the region's zones, the
// same name always to the same.
func (c *Client) chooseZone(ctx context.Context, name string) (ebs.Zone, error) {
	out, err := read(ctx, func(ctx context.Context) (*sdk.DescribeAvailabilityZonesOutput, error) {
		return c.api.DescribeAvailabilityZones(ctx, &sdk.DescribeAvailabilityZonesInput{})
	})
	if err != nil {
		return ebs.Zone{}, fmt.Errorf("list availability zones: %w", err)
	}
	var zones []ebs.Zone
	for _, z := range out.AvailabilityZones {
		// Local and wavelength zones are other types and do not offer every volume type.
		if kind := aws.ToString(z.ZoneType); z.State == types.AvailabilityZoneStateAvailable && (kind == "" || kind == "availability-zone") {
			zones = append(zones, ebs.Zone{Name: aws.ToString(z.ZoneName), ID: aws.ToString(z.ZoneId)})
		}
	}
	if len(zones) == 0 {
		return ebs.Zone{}, fmt.Errorf("%w: the region has no availability zone in state available", ebs.ErrUnavailable)
	}
	sort.Slice(zones, func(i, j int) bool { return zones[i].Name < zones[j].Name })
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return zones[sum.Sum32()%uint32(len(zones))], nil
}

// goneAfter is for how long a volume that was shown before must be missing from
// reads until it is taken for gone: reads may lag, one behind the other.
const goneAfter = time.Second

// waitCreated waits until a volume is available or in use. A volume that is not
// shown yet is waited for, one that is not shown any more has vanished: EC2
// accepts a volume and lets it go again when its key cannot be used
// (https://github.com/kubernetes-sigs/aws-ebs-csi-driver/issues/3010).
func (c *Client) waitCreated(ctx context.Context, name string, vol ebs.Volume) (ebs.Volume, error) {
	if usable(vol.State) {
		return vol, nil
	}
	start, missing, seen := c.clock.Now(), time.Time{}, false
	log := stateLogger(ctx, vol.ID, "available")
	err := c.watch(ctx, creationPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		now, err := c.newVolume(ctx, name, vol.ID, within)
		switch {
		case errors.Is(err, ebs.ErrNotFound):
			if missing.IsZero() {
				missing = c.clock.Now()
			}
			switch {
			case seen && c.clock.Since(missing) >= goneAfter:
				return false, vanished(vol)
			case !seen && c.clock.Since(start) >= appearWithin:
				// Its token stays in use: under a fresh one a volume that is
				// merely slow to appear would get a twin.
				return false, notShown(vol)
			}
			return false, nil
		case err != nil:
			return false, fmt.Errorf("look at volume %s: %w", vol.ID, err)
		}
		vol, missing, seen = now, time.Time{}, true
		log(string(vol.State))
		switch vol.State {
		case ebs.VolumeDeleting, ebs.VolumeDeleted:
			return false, vanished(vol)
		case ebs.VolumeError:
			return false, fmt.Errorf("%w: EC2 could not make volume %s, it is in state error: delete it and another is made", ebs.ErrNotReady, vol.ID)
		}
		return usable(vol.State), nil
	})
	if err != nil {
		return ebs.Volume{}, fmt.Errorf("wait for volume %s, in state %s: %w", vol.ID, vol.State, err)
	}
	return vol, nil
}

// newVolume looks at a volume that was just made: by its name, as the look-ups
// before a create do, so that they share their calls; and by its id where the
// name does not show it.
func (c *Client) newVolume(ctx context.Context, name string, id ebs.VolumeID, within time.Duration) (ebs.Volume, error) {
	volumes, _, err := c.lookups.named.get(ctx, name, within)
	if err != nil {
		return ebs.Volume{}, err
	}
	for _, v := range volumes {
		if v.ID == id {
			return v, nil
		}
	}
	return c.Volume(ctx, id)
}

func usable(s ebs.VolumeState) bool { return s == ebs.VolumeAvailable || s == ebs.VolumeInUse }

func vanished(vol ebs.Volume) error {
	return fmt.Errorf("%w: %s", ebs.ErrVanished, likelyKey(vol))
}

// notShown: EC2 accepted the volume and does not show it, or not yet.
func notShown(vol ebs.Volume) error {
	return fmt.Errorf("%w: EC2 accepted volume %s %v ago and does not show it yet; if that goes on, %s", ebs.ErrNotReady, vol.ID, appearWithin, likelyKey(vol))
}

// likelyKey names the usual cause of a volume that goes again by itself.
func likelyKey(vol ebs.Volume) string {
	key := "the account's default KMS key"
	if vol.KMSKeyID != "" {
		key = "KMS key " + vol.KMSKeyID
	}
	return fmt.Sprintf("the most likely cause is encryption: %s must exist, be enabled, and let this driver's identity use it (kms:CreateGrant, kms:GenerateDataKeyWithoutPlaintext, kms:Decrypt)", key)
}

// differences is ErrAlreadyExists with all in which a volume is not what is wanted.
func differences(vol ebs.Volume, want ebs.VolumeRequest) error {
	var diffs []string
	differs := func(what string, is, wanted any) {
		diffs = append(diffs, fmt.Sprintf("%s is %v, wanted is %v", what, is, wanted))
	}
	if want.Size != 0 && vol.Size != want.Size {
		differs("size in GiB", vol.Size, want.Size)
	}
	if vol.Type != want.Type {
		differs("type", vol.Type, want.Type)
	}
	if vol.Snapshot != want.Snapshot {
		differs("source snapshot", strconv.Quote(string(vol.Snapshot)), strconv.Quote(string(want.Snapshot)))
	}
	if vol.Source != want.Source {
		differs("source volume", strconv.Quote(string(vol.Source)), strconv.Quote(string(want.Source)))
	}
	if want.IOPS != 0 && vol.IOPS != want.IOPS {
		differs("iops", vol.IOPS, want.IOPS)
	}
	if want.ThroughputMiBps != 0 && vol.ThroughputMiBps != want.ThroughputMiBps {
		differs("throughput in MiB/s", vol.ThroughputMiBps, want.ThroughputMiBps)
	}
	// An account may encrypt by default, so "encrypted though not asked for" is no difference.
	if want.Encrypted && !vol.Encrypted {
		differs("encrypted", false, true)
	}
	if !sameKey(vol.KMSKeyID, want.KMSKeyID) {
		differs("KMS key", vol.KMSKeyID, want.KMSKeyID)
	}
	if vol.MultiAttach != want.MultiAttach {
		differs("Multi-Attach (for several nodes)", vol.MultiAttach, want.MultiAttach)
	}
	if !zoneAllowed(vol.Zone, want.AllowedZones) {
		differs("zone", vol.Zone.Name, zoneNames(want.AllowedZones))
	}
	if diffs == nil {
		return nil
	}
	return fmt.Errorf("%w: volume %s has the name: %s", ebs.ErrAlreadyExists, vol.ID, strings.Join(diffs, ", "))
}

// sameKey compares a key as EC2 tells it, by ARN, with one as it was asked for.
// An alias cannot be compared.
func sameKey(arn, wanted string) bool {
	switch {
	case wanted == "", arn == "", strings.Contains(wanted, "alias/"):
		return true
	case strings.HasPrefix(wanted, "arn:"):
		return arn == wanted
	}
	return arn == wanted || strings.HasSuffix(arn, "/"+wanted)
}

func zoneAllowed(is ebs.Zone, allowed []ebs.Zone) bool {
	for _, z := range allowed {
		if z.Name != "" && z.Name == is.Name || z.ID != "" && z.ID == is.ID {
			return true
		}
	}
	return len(allowed) == 0
}

func zoneNames(zones []ebs.Zone) string {
	var names []string
	for _, z := range zones {
		if z.Name == "" {
			z.Name = z.ID
		}
		names = append(names, z.Name)
	}
	return strings.Join(names, " or ")
}

// Volume looks a volume up; ErrNotFound where there is none.
func (c *Client) Volume(ctx context.Context, id ebs.VolumeID) (ebs.Volume, error) {
	return c.volumeWithin(ctx, id, 0)
}

// volumeByName looks for the volume that carries a name; nil where EC2 shows
// none that is there to stay.
func (c *Client) volumeByName(ctx context.Context, name string) (*ebs.Volume, error) {
	return c.namedWithin(ctx, name, 0)
}

// DeleteVolume deletes a volume; one that does not exist, or is being deleted, is no error.
func (c *Client) DeleteVolume(ctx context.Context, id ebs.VolumeID) error {
	if !id.WellFormed() {
		return nil
	}
	_, err := mutate(ctx, func(ctx context.Context) (*sdk.DeleteVolumeOutput, error) {
		return c.api.DeleteVolume(ctx, &sdk.DeleteVolumeInput{VolumeId: aws.String(string(id))})
	})
	switch {
	case errors.Is(err, ebs.ErrNotFound):
		return nil
	case errors.Is(err, ebs.ErrNotReady):
		vol, lookErr := c.Volume(ctx, id)
		if errors.Is(lookErr, ebs.ErrNotFound) || lookErr == nil && !vol.Exists() {
			return nil
		}
	}
	return err
}

// stateLogger logs each state that a wait sees, once.
func stateLogger(ctx context.Context, id ebs.VolumeID, desired string) func(actual string) {
	last := ""
	return func(actual string) {
		if actual != last && actual != desired {
			logr.FromContextOrDiscard(ctx).Info("Waiting for volume state", "volumeID", id, "actual", actual, "desired", desired)
		}
		last = actual
	}
}

// tagSpecification is the tags of a create, in the order of their keys.
func tagSpecification(kind types.ResourceType, tags map[string]string) []types.TagSpecification {
	spec := types.TagSpecification{ResourceType: kind}
	for k, v := range tags {
		spec.Tags = append(spec.Tags, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	sort.Slice(spec.Tags, func(i, j int) bool { return *spec.Tags[i].Key < *spec.Tags[j].Key })
	return []types.TagSpecification{spec}
}

func volumeFrom(v types.Volume) ebs.Volume {
	vol := ebs.Volume{
		ID:              ebs.VolumeID(aws.ToString(v.VolumeId)),
		Size:            ebs.GiB(aws.ToInt32(v.Size)),
		Type:            ebs.VolumeType(v.VolumeType),
		IOPS:            aws.ToInt32(v.Iops),
		ThroughputMiBps: aws.ToInt32(v.Throughput),
		Encrypted:       aws.ToBool(v.Encrypted),
		KMSKeyID:        aws.ToString(v.KmsKeyId),
		MultiAttach:     aws.ToBool(v.MultiAttachEnabled),
		Zone:            ebs.Zone{Name: aws.ToString(v.AvailabilityZone), ID: aws.ToString(v.AvailabilityZoneId)},
		State:           ebs.VolumeState(v.State),
		Snapshot:        ebs.SnapshotID(aws.ToString(v.SnapshotId)),
		Source:          ebs.VolumeID(aws.ToString(v.SourceVolumeId)),
		Tags:            tagsFrom(v.Tags),
	}
	for _, a := range v.Attachments {
		if a.State == types.VolumeAttachmentStateDetached {
			continue // over: EC2 may tell so before it tells none
		}
		vol.Attachments = append(vol.Attachments, ebs.Attachment{
			Volume: vol.ID, Instance: ebs.InstanceID(aws.ToString(a.InstanceId)), DeviceName: aws.ToString(a.Device),
			State: ebs.AttachmentState(a.State), Since: aws.ToTime(a.AttachTime),
		})
	}
	return vol
}

func tagsFrom(tags []types.Tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return m
}
