package expansion

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

const gib = 1 << 30

// ebsDrivers are the provisioners of EBS volumes, which take 4 modifications in
// a rolling day.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
var ebsDrivers = map[string]bool{"ebs.csi.aws.com": true, "kubernetes.io/aws-ebs": true}

// ebsBudget is the budget of EBS volumes where the policy does not say.
var ebsBudget = v1alpha1.ExpansionBudget{Modifications: 4, WindowSeconds: 86400, Reserve: 1}

// urgentPercent is from above what use on the budget's reserve is for.
const urgentPercent = 95

// Rules are a policy's expansion as it applies to one claim.
type Rules struct {
	Policy  string
	Approve bool

	UsedPercent, InodesUsedPercent int32 // 0: not asked
	FreeBytes                      int64 // 0: not asked
	For                            time.Duration
	// Between is the time from one look to the next.
	Between time.Duration

	StepPercent                int32
	StepMinBytes, StepMaxBytes int64 // max 0: none
	MaxBytes                   int64
	Cooldown                   time.Duration
	Budget                     int // 0: none
	Reserve                    int
	Window                     time.Duration
}

// rulesOf resolves the expansion of a policy for a claim of a driver.
func rulesOf(policy string, e *v1alpha1.PolicyExpansion, driver string) Rules {
	r := Rules{
		Policy: policy, Approve: e.Mode == v1alpha1.ExpansionApprove,
		UsedPercent: e.Trigger.UsedPercent, InodesUsedPercent: e.Trigger.InodesUsedPercent, FreeBytes: bytesOf(e.Trigger.FreeBytes),
		For:         time.Duration(e.Trigger.ForSeconds) * time.Second,
		StepPercent: e.Step.Percent, StepMinBytes: bytesOf(e.Step.Min), StepMaxBytes: bytesOf(e.Step.Max),
		MaxBytes: bytesOf(&e.MaxSize),
	}
	if e.CooldownSeconds != nil {
		r.Cooldown = time.Duration(*e.CooldownSeconds) * time.Second
	}
	budget := e.Budget
	if budget == nil && ebsDrivers[driver] {
		budget = &ebsBudget
	}
	if budget != nil {
		r.Budget, r.Reserve, r.Window = int(budget.Modifications), int(budget.Reserve), time.Duration(budget.WindowSeconds)*time.Second
	}
	return r
}

// mostBytes is the largest size that is reckoned with: a TiB below the largest number
// there is, so that a step up to whole GiB above it is none below 0.
const mostBytes = math.MaxInt64 - 1<<40

// bytesOf is a size as a number. A Quantity such as 10E, which none holds, says that
// it is of 0 bytes.
func bytesOf(q *resource.Quantity) int64 {
	switch {
	case q == nil:
		return 0
	case q.CmpInt64(mostBytes) > 0:
		return mostBytes
	}
	return q.Value()
}

// floor and ceil are whole GiB.
func floor(bytes int64) int64 { return bytes / gib * gib }
func ceil(bytes int64) int64  { return (bytes + gib - 1) / gib * gib }

// text is a size as people write it.
func text(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// next is the size that a step from base comes to, below limit.
func (r Rules) next(base, limit int64) int64 {
	if base >= limit {
		return floor(limit)
	}
	step := max(int64(min(float64(base)*float64(r.StepPercent)/100, mostBytes)), r.StepMinBytes)
	if r.StepMaxBytes > 0 {
		step = min(step, r.StepMaxBytes)
	}
	step = min(step, limit-base)
	target := ceil(base + max(step, 1))
	if r.StepMaxBytes > 0 && target > base+r.StepMaxBytes {
		target = floor(base + r.StepMaxBytes)
	}
	return min(target, floor(limit))
}
