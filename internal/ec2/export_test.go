package ec2

import "github.com/holdfast-dev/holdfast/internal/ebs"

// Gathering is how many callers a change of a volume has that is not sent yet.
func (c *Client) Gathering(id ebs.VolumeID) int {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	ch := c.changes.onWay[id]
	if ch == nil || ch.sent {
		return 0
	}
	return len(ch.members)
}
