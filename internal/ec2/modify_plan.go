package ec2

import (
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// modifyStep is what a wanted change needs.
type modifyStep int

const (
	modifyNothing modifyStep = iota // the volume is as wanted
	modifyWait                      // it is becoming so
	modifySend                      // ModifyVolume
)

// modifyPlan is what to do for a wanted change.
type modifyPlan struct {
	step modifyStep
	// from is the shape that the volume has or, when step is modifyWait, will have.
	from, target ebs.Shape
}

// planModify decides what a wanted change of a volume's shape needs.
//
//	impossible for the volume               ErrInvalid, ErrOutOfRange
//	the volume is so, or becoming so
//	 the latest change is "modifying"       wait for it
//	 else                                   nothing
//	the latest change is not completed      ErrNotReady: EC2 takes no other
//	else                                    ModifyVolume
func planModify(vol ebs.Volume, latest *modification, want ebs.Modification) (modifyPlan, error) {
	from := shapeOf(vol, latest)
	target, err := want.Target(from, vol.Tags)
	if err != nil {
		return modifyPlan{}, err
	}
	p := modifyPlan{from: from, target: target}
	switch {
	case target == from && !latest.settled():
		p.step = modifyWait
	case target == from:
	case latest.underWay():
		return modifyPlan{}, busy(vol.ID, latest, target)
	default:
		p.step = modifySend
	}
	return p, nil
}

// busy says that another change has to be completed first.
func busy(id ebs.VolumeID, latest *modification, target ebs.Shape) error {
	return fmt.Errorf("%w: volume %s is to become %s, and its change to %s that began at %s is still %s (%d %%): EC2 takes the next one when it is completed, which may take hours",
		ebs.ErrNotReady, id, target, latest.target, latest.began.UTC().Format(time.RFC3339), latest.state, latest.progress)
}

// infeasible says whether an error means that no repeat can help.
func infeasible(err error) bool {
	return errors.Is(err, ebs.ErrInvalid) || errors.Is(err, ebs.ErrOutOfRange)
}

// planTogether decides on changes that arrived together, in the order of their
// arrival. errs holds the refusals, nil for each change that is part of the plan;
// no plan where that is none.
//
//	possible as one                        one plan
//	some impossible by themselves          these are refused, the others as above
//	each possible, not as one              the first; the others are ErrNotReady
func planTogether(vol ebs.Volume, latest *modification, wants []ebs.Modification) (plan *modifyPlan, errs []error) {
	errs = make([]error, len(wants))
	if plan, err := planMerged(vol, latest, wants); err == nil {
		return plan, errs
	}
	var rest []ebs.Modification
	var members []int
	for i, want := range wants {
		if _, errs[i] = planModify(vol, latest, want); errs[i] == nil {
			rest, members = append(rest, want), append(members, i)
		}
	}
	if rest == nil {
		return nil, errs
	}
	plan, err := planMerged(vol, latest, rest)
	if err == nil {
		return plan, errs
	}
	for _, i := range members[1:] {
		// Not wrapped: that the two cannot be had together makes neither infeasible.
		errs[i] = fmt.Errorf("%w: not together with another change of volume %s that came before: %s", ebs.ErrNotReady, vol.ID, err.Error())
	}
	plan, errs[members[0]] = planMerged(vol, latest, rest[:1])
	return plan, errs
}

// planMerged plans changes as one.
func planMerged(vol ebs.Volume, latest *modification, wants []ebs.Modification) (*modifyPlan, error) {
	var merged ebs.Modification
	for _, want := range wants {
		var err error
		if merged, err = merged.Merge(want); err != nil {
			return nil, err
		}
	}
	p, err := planModify(vol, latest, merged)
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// reached says whether a change is that to a shape.
func (m *modification) reached(target ebs.Shape) bool {
	return m != nil && m.target == target && m.state != types.VolumeModificationStateFailed
}
