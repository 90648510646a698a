package ec2

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// sentCreate is a create of which we do not know whether EC2 accepted it, or of
// a snapshot, for which EC2 has no client token, that it may not show yet.
type sentCreate struct {
	at   time.Time
	zone ebs.Zone // of a volume
}

// noteUnsure remembers that a create was sent that may not show yet.
func (c *Client) noteUnsure(what string, zone ebs.Zone) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsure[what] = sentCreate{at: c.clock.Now(), zone: zone}
}

// unsureUntil is until when what was sent may be there and not be shown, and
// where it was sent to; zero where nothing was, or where it must be shown by now.
func (c *Client) unsureUntil(what string) (time.Time, ebs.Zone) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, sent := range c.unsure {
		if c.clock.Since(sent.at) > appearWithin {
			delete(c.unsure, other)
		}
	}
	sent, ok := c.unsure[what]
	if !ok {
		return time.Time{}, ebs.Zone{}
	}
	return sent.at.Add(appearWithin), sent.zone
}
