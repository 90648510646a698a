package ec2sim

import (
	"fmt"
	"slices"
)

// Trouble is what DescribeVolumeStatus tells of a volume that is not well, and
// the body of PUT /_sim/volumes/<id>/trouble. Input and output go on all the same.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-checks.html
type Trouble struct {
	// IODisabled: EBS has stopped the volume's input and output.
	IODisabled bool `json:"ioDisabled,omitempty"`
	// Performance is that of a volume with provisioned IOPS; empty: nothing is wrong.
	Performance string `json:"performance,omitempty"`
	// Inconsistent: the data may be, as an event says.
	Inconsistent bool `json:"inconsistent,omitempty"`
	// Failed: the volume is in state error, for good.
	Failed bool `json:"failed,omitempty"`
}

// performanceStalled is the one performance that makes a volume impaired.
const performanceStalled = "stalled"

// performances that a volume in trouble may have.
var performances = []string{"", "degraded", "severely-degraded", performanceStalled}

// SetTrouble puts a volume into trouble; the zero value takes it out again,
// unless it has failed.
func (s *Sim) SetTrouble(id string, t Trouble) error {
	if !slices.Contains(performances, t.Performance) {
		return fmt.Errorf("trouble of %s: performance %q: want one of %q", id, t.Performance, performances)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	v := s.store.volumes[id]
	switch {
	case v == nil || v.RootOf != "":
		return fmt.Errorf("trouble of %s: there is no such volume", id)
	case t.Failed && v.State != stateAvailable && v.State != stateError:
		return fmt.Errorf("trouble of %s: it is %s, only an available volume can fail here", id, v.State)
	}
	if t.Failed {
		v.State = stateError
	}
	v.Trouble = t
	s.store.putVolume(v)
	return nil
}
