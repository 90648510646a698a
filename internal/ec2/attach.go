package ec2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// attachHangs is how long an attachment may stay in attaching before it is
// taken to hang, counted from EC2's own attachTime because a request of a
// sidecar is shorter, and not before a request that made it is as old. AWS's
// driver gives up after the same time.
const attachHangs = 90 * time.Second

// Reasons to attach once more.
var (
	errHangs = errors.New("the attachment hangs in attaching")
	errGone  = errors.New("the attachment is gone again")
)

// Attach attaches a volume to an instance and waits until it is attached. A
// volume that is attached there already is left as it is.
func (c *Client) Attach(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID) (ebs.Attachment, error) {
	if !id.WellFormed() {
		return ebs.Attachment{}, fmt.Errorf("%w: %q is no volume id", ebs.ErrNotFound, id)
	}
	refused := map[string]bool{}
	log := logr.FromContextOrDiscard(ctx)
	for {
		att, err := c.startAttach(ctx, id, to, refused)
		if err != nil {
			return ebs.Attachment{}, err
		}
		name := att.DeviceName
		att, err = c.waitAttached(ctx, att)
		switch {
		case err == nil:
			return att, nil
		case errors.Is(err, errHangs):
			log.Info("Attachment hangs, detaching to attach again", "devicePath", name, "attachingFor", attachHangs.String())
			refused[name] = true // the name may be why
			err = c.Detach(ctx, id, to)
		case errors.Is(err, errGone):
			log.Info("Attachment is gone again, attaching again", "devicePath", name)
			err = nil
		}
		if err != nil {
			return ebs.Attachment{}, accepted(err)
		}
	}
}

// startAttach finds the attachment or asks EC2 for it, under a device name that
// nobody else has. What EC2 refuses is judged by what the volume then shows.
func (c *Client) startAttach(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID, refused map[string]bool) (ebs.Attachment, error) {
	inst, remembered, err := c.seenInstance(ctx, to)
	if err != nil {
		return ebs.Attachment{}, err
	}
	for {
		att, err := c.attachTo(ctx, id, to, inst, refused)
		switch {
		case isDeviceInUse(err): // the instance has more attachments than it showed
		case remembered && (errors.Is(err, ebs.ErrAttachLimit) || errors.Is(err, ebs.ErrNotReady)):
			// It may not be full any more, or not be running.
		default:
			return att, err
		}
		remembered = false
		if inst, err = c.instance(ctx, to); err != nil {
			return ebs.Attachment{}, err
		}
	}
}

// attachTo is startAttach for an instance that looks like that. A name that
// turns out to be in use is added to the refused ones.
func (c *Client) attachTo(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID, inst instance, refused map[string]bool) (ebs.Attachment, error) {
	if inst.has(id) { // the instance may still show a volume that is detached, so ask the volume
		if att, err := c.attachmentOf(ctx, id, to, 0); err != nil || att != nil {
			return deref(att), err
		}
	}
	att, err := c.attachVolume(ctx, id, to, inst, refused)
	switch {
	case isDeviceInUse(err):
		refused[att.DeviceName] = true
		return ebs.Attachment{}, err
	case errors.Is(err, ebs.ErrZoneMismatch):
		return ebs.Attachment{}, c.explainZones(ctx, id, to, inst, err)
	case errors.Is(err, ebs.ErrInUse), errors.Is(err, ebs.ErrNotReady), errors.Is(err, ebs.ErrMaybeAccepted) && ctx.Err() == nil:
		// In use by this very instance where an earlier call, or this one's first try, was accepted.
		att, lookErr := c.attachmentOf(ctx, id, to, 0)
		if lookErr != nil || att != nil {
			return deref(att), lookErr
		}
		return ebs.Attachment{}, notReadyInsteadOfInUse(err)
	}
	return att, err
}

func deref(att *ebs.Attachment) ebs.Attachment {
	if att == nil {
		return ebs.Attachment{}
	}
	return *att
}

// notReadyInsteadOfInUse: EC2 says that the volume is in use and does not show by whom.
func notReadyInsteadOfInUse(err error) error {
	if errors.Is(err, ebs.ErrInUse) {
		return fmt.Errorf("%w: EC2 does not show yet who uses the volume: %w", ebs.ErrNotReady, err)
	}
	return err
}

// isDeviceInUse: a device name is taken. EC2 documents a code for it and was seen
// to answer another.
func isDeviceInUse(err error) bool {
	return hasCode(err, "InvalidDevice.InUse") || hasCode(err, "InvalidParameterValue") && messageHas(err, "already in use")
}

// attachVolume sends AttachVolume. With an error the attachment tells the name that was tried.
func (c *Client) attachVolume(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID, inst instance, refused map[string]bool) (ebs.Attachment, error) {
	inUse := map[string]bool{}
	for name := range inst.devices {
		inUse[name] = true
	}
	for name := range refused {
		inUse[name] = true
	}
	name, err := c.names.reserve(to, inUse)
	if err != nil {
		return ebs.Attachment{}, err
	}
	out, err := mutate(ctx, func(ctx context.Context) (*sdk.AttachVolumeOutput, error) {
		return c.api.AttachVolume(ctx, &sdk.AttachVolumeInput{VolumeId: aws.String(string(id)), InstanceId: aws.String(string(to)), Device: aws.String(name)})
	})
	// A name that somebody else was given counts as taken too, so that the next volume does not try it again.
	c.names.release(to, name, err == nil || errors.Is(err, ebs.ErrMaybeAccepted) || isDeviceInUse(err))
	att := ebs.Attachment{Volume: id, Instance: to, DeviceName: name, State: ebs.Attaching}
	if err == nil {
		// By our clock, not EC2's attachTime: a clock that is ahead would make it old at once.
		att.State, att.Since = ebs.AttachmentState(out.State), c.clock.Now()
	}
	return att, err
}

// explainZones adds both zones to EC2's refusal.
func (c *Client) explainZones(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID, inst instance, refusal error) error {
	vol, err := c.Volume(ctx, id)
	if err != nil {
		return refusal
	}
	return fmt.Errorf("volume %s is in %s, instance %s in %s: %w", id, vol.Zone.Name, to, inst.zone.Name, refusal)
}

// attachmentOf is the attachment of a volume to an instance as the volume
// shows it within a time, nil where it shows none, ErrAttachedElsewhere where it
// shows another instance's. With Multi-Attach another instance's says nothing
// about this one's.
func (c *Client) attachmentOf(ctx context.Context, id ebs.VolumeID, to ebs.InstanceID, within time.Duration) (*ebs.Attachment, error) {
	vol, err := c.volumeWithin(ctx, id, within)
	if err != nil {
		return nil, fmt.Errorf("look at volume %s: %w", id, err)
	}
	var found *ebs.Attachment
	var others []ebs.InstanceID
	for _, a := range vol.Attachments {
		if a.Instance == to {
			found = &a
		} else if a.State.Holds() {
			others = append(others, a.Instance)
		}
	}
	if found != nil {
		found.Others = others
		return found, nil
	}
	if vol.MultiAttach {
		return nil, nil
	}
	for _, a := range vol.Attachments {
		return nil, fmt.Errorf("%w: volume %s is %s to %s as %s", ebs.ErrAttachedElsewhere, id, attachmentVerb(a.State), a.Instance, a.DeviceName)
	}
	return nil, nil
}

// attachmentVerb says an attachment's state in a sentence "is … to".
func attachmentVerb(s ebs.AttachmentState) string {
	switch s {
	case ebs.Detaching, ebs.Busy:
		return "still attached (" + string(s) + ")"
	}
	return string(s)
}

// waitAttached waits until an attachment is attached. It answers errHangs or
// errGone where attaching must begin anew.
func (c *Client) waitAttached(ctx context.Context, att ebs.Attachment) (ebs.Attachment, error) {
	if att.State == ebs.Attached {
		return att, nil
	}
	start, began, seen := c.clock.Now(), att.Since, false
	log := stateLogger(ctx, att.Volume, string(ebs.Attached))
	err := c.watch(ctx, attachPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		now, err := c.attachmentOf(ctx, att.Volume, att.Instance, within)
		switch lagging := !seen && c.clock.Since(start) < appearWithin; {
		case errors.Is(err, ebs.ErrNotFound) && lagging:
			return false, nil
		case errors.Is(err, ebs.ErrAttachedElsewhere) && lagging && att.State == ebs.Attaching:
			return false, nil // EC2 has accepted ours, so that the other one is over
		case err != nil:
			return false, err
		case now == nil && lagging && att.State == ebs.Attaching:
			return false, nil
		case now == nil:
			return false, errGone
		}
		att, seen = *now, true
		log(string(att.State))
		began = later(began, att.Since)
		if att.State == ebs.Attaching && !began.IsZero() && c.clock.Since(began) > attachHangs {
			return false, errHangs
		}
		return att.State == ebs.Attached, nil
	})
	if err != nil {
		return att, fmt.Errorf("wait for the attachment as %s, in state %s: %w", att.DeviceName, att.State, err)
	}
	return att, nil
}

// Detach detaches a volume from an instance and waits until it is. It is the
// instance's own attachment that EC2 is asked to undo, so another instance's is
// never touched; and EC2's refusal is what says that there is none, since a
// read may lag.
//
//	EC2 accepts                              wait until the volume shows it
//	no such volume, instance or attachment   done
//	wrong state                              done if the volume shows no attachment to
//	                                         the instance, else wait
//	the instance is terminated               done
func (c *Client) Detach(ctx context.Context, id ebs.VolumeID, from ebs.InstanceID) error {
	if !id.WellFormed() || !from.WellFormed() {
		return nil // neither exists, so nothing is attached
	}
	_, err := mutate(ctx, func(ctx context.Context) (*sdk.DetachVolumeOutput, error) {
		return c.api.DetachVolume(ctx, &sdk.DetachVolumeInput{VolumeId: aws.String(string(id)), InstanceId: aws.String(string(from))})
	})
	switch {
	case err == nil:
		return accepted(c.waitDetached(ctx, id, from))
	case errors.Is(err, ebs.ErrNotFound), errors.Is(err, ebs.ErrInstanceNotFound):
		return nil
	case errors.Is(err, ebs.ErrNotReady), errors.Is(err, ebs.ErrMaybeAccepted) && ctx.Err() == nil:
		return c.detachRefused(ctx, id, from, err)
	}
	return err
}

// detachRefused judges EC2's refusal by what it shows.
func (c *Client) detachRefused(ctx context.Context, id ebs.VolumeID, from ebs.InstanceID, refusal error) error {
	att, err := c.attachmentOf(ctx, id, from, 0)
	switch {
	case errors.Is(err, ebs.ErrNotFound), errors.Is(err, ebs.ErrAttachedElsewhere):
		return nil
	case err != nil:
		return accepted(err)
	case att == nil:
		return nil
	case att.State == ebs.Detaching || att.State == ebs.Busy:
		return accepted(c.waitDetached(ctx, id, from))
	}
	if _, err := c.instance(ctx, from); errors.Is(err, ebs.ErrInstanceNotFound) {
		return nil
	}
	return fmt.Errorf("volume %s stays %s to %s: %w", id, att.State, from, refusal)
}

// instanceAfter is how long a detach waits before it asks whether the instance
// still lives, and between two such questions: usually it does, and the call is saved.
const instanceAfter = 10 * time.Second

// waitDetached waits until a volume shows no attachment to an instance.
func (c *Client) waitDetached(ctx context.Context, id ebs.VolumeID, from ebs.InstanceID) error {
	asked, state := c.clock.Now(), ebs.Detaching
	log := stateLogger(ctx, id, "detached")
	err := c.watch(ctx, detachPolls, func(ctx context.Context, within time.Duration) (bool, error) {
		att, err := c.attachmentOf(ctx, id, from, within)
		switch {
		case errors.Is(err, ebs.ErrNotFound), errors.Is(err, ebs.ErrAttachedElsewhere), err == nil && att == nil:
			return true, nil
		case err != nil:
			return false, err
		}
		state = att.State
		log(string(state))
		if c.clock.Since(asked) < instanceAfter {
			return false, nil
		}
		asked = c.clock.Now()
		_, err = c.instance(ctx, from)
		return errors.Is(err, ebs.ErrInstanceNotFound), nil
	})
	if err != nil {
		hint := ""
		if state == ebs.Busy {
			hint = " (the node still uses it)"
		}
		return fmt.Errorf("wait for volume %s to be detached from %s, in state %s%s: %w", id, from, state, hint, err)
	}
	return nil
}
