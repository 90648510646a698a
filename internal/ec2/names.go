package ec2

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// allDeviceNames are the names that AttachVolume is given, in AWS's driver's
// order, so that attachments made by it are told from free names: /dev/xvdaa to
// /dev/xvddx (EC2 refuses what follows), then /dev/sdb to /dev/sdz, together
// enough for instances that take 127 volumes. The guest's kernel does not use
// them on Nitro instances.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html
var allDeviceNames = func() []string {
	var names []string
	for first := 'a'; first <= 'd'; first++ {
		for second := 'a'; second <= 'z' && (first < 'd' || second <= 'x'); second++ {
			names = append(names, fmt.Sprintf("/dev/xvd%c%c", first, second))
		}
	}
	for letter := 'b'; letter <= 'z'; letter++ {
		names = append(names, fmt.Sprintf("/dev/sd%c", letter))
	}
	return names
}()

// nameLag is for how long a name that was given stays taken although
// DescribeInstances does not show it: that lags behind AttachVolume
// (appearWithin), and what it showed is remembered (seenFor). After it the
// instance is looked at again before it can be given again, and shows it.
const nameLag = seenFor + appearWithin

// deviceNames gives each attachment that is under way on an instance a name of
// its own.
type deviceNames struct {
	clock clock.Clock

	mu    sync.Mutex
	taken map[ebs.InstanceID]map[string]time.Time // until when; zero: until released
}

func newDeviceNames(clk clock.Clock) *deviceNames {
	return &deviceNames{clock: clk, taken: map[ebs.InstanceID]map[string]time.Time{}}
}

// reserve takes the first name that is neither in use nor taken. Where there is
// none it takes, as a last resort, the one that was given longest ago, which is
// the likeliest to be free again: EC2 refuses it where it is in use.
func (d *deviceNames) reserve(on ebs.InstanceID, inUse map[string]bool) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetOld()
	lastResort, oldest := "", time.Time{}
	for _, name := range allDeviceNames {
		until, taken := d.taken[on][name]
		switch {
		case inUse[name]:
		case !taken:
			d.put(on, name, time.Time{})
			return name, nil
		case !until.IsZero() && (lastResort == "" || until.Before(oldest)):
			lastResort, oldest = name, until
		}
	}
	if lastResort == "" {
		return "", fmt.Errorf("%w: all %d device names of %s are in use", ebs.ErrAttachLimit, len(allDeviceNames), on)
	}
	d.put(on, lastResort, time.Time{})
	return lastResort, nil
}

// release gives a name back: at once where the attachment was refused, after
// nameLag where EC2 may have accepted it.
func (d *deviceNames) release(on ebs.InstanceID, name string, accepted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if accepted {
		d.put(on, name, d.clock.Now().Add(nameLag))
		return
	}
	delete(d.taken[on], name)
}

func (d *deviceNames) put(on ebs.InstanceID, name string, until time.Time) {
	if d.taken[on] == nil {
		d.taken[on] = map[string]time.Time{}
	}
	d.taken[on][name] = until
}

// forgetOld forgets names that are free by now, and with the last of them the
// instance: most are never attached to again, for nodes come and go.
func (d *deviceNames) forgetOld() {
	now := d.clock.Now()
	for on, names := range d.taken {
		maps.DeleteFunc(names, func(_ string, until time.Time) bool { return !until.IsZero() && until.Before(now) })
		if len(names) == 0 {
			delete(d.taken, on)
		}
	}
}
