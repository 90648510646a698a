package ec2

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// EC2 takes four changes of a volume in a rolling day.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
const modificationDay = 24 * time.Hour

// askAgainAfter is when EC2 is asked again after a refusal that names no time.
const askAgainAfter = 10 * time.Minute

// modifyRates remembers which volumes EC2 takes no change of, and until when.
// It only saves calls, csi-resizer asks every minute: EC2 tells the same again.
type modifyRates struct {
	clock clock.Clock

	mu    sync.Mutex
	until map[ebs.VolumeID]modifyHold
}

type modifyHold struct {
	until time.Time
	err   error
}

// held is the refusal that still holds, nil for none.
func (r *modifyRates) held(id ebs.VolumeID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for other, hold := range r.until {
		if !now.Before(hold.until) {
			delete(r.until, other)
		}
	}
	return r.until[id].err
}

func (r *modifyRates) hold(id ebs.VolumeID, h modifyHold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[id] = h
}

// holdModify remembers a refusal for too many changes and says when the next one
// is possible.
func (c *Client) holdModify(ctx context.Context, id ebs.VolumeID, refusal error) error {
	// EC2 shows the latest change only. Without it the refusal still says most.
	latest, _ := c.modification(ctx, id)
	h := nextModification(c.clock.Now(), latest, refusal)
	h.err = fmt.Errorf("volume %s: %w", id, h.err)
	c.rates.hold(id, h)
	return h.err
}

var timeInText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// nextModification says when the next change is possible: at the time that EC2
// names, else at the latest a day after the latest change, and then EC2 is asked
// again from time to time.
func nextModification(now time.Time, latest *modification, refusal error) modifyHold {
	if at, err := time.Parse(time.RFC3339, timeInText.FindString(refusal.Error())); err == nil {
		return modifyHold{at, fmt.Errorf("the next change is possible at %s: %w", at.UTC().Format(time.RFC3339), refusal)}
	}
	if latest == nil {
		return modifyHold{now.Add(askAgainAfter), refusal}
	}
	at := latest.began.Add(modificationDay)
	again := now.Add(askAgainAfter)
	if at.After(now) && at.Before(again) {
		again = at
	}
	return modifyHold{again, fmt.Errorf("the next change is possible at %s at the latest: %w", at.UTC().Format(time.RFC3339), refusal)}
}
