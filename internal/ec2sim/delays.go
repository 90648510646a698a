package ec2sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Delays say how long each passing state lasts. The zero value: no time at all.
type Delays struct {
	// Spread makes the delays that follow medians: each call that begins a
	// state draws how long it lasts from a log-normal distribution, whose tail
	// is long on the slow side as EC2's is. It is the distribution's sigma, 0
	// to maxSpread: with 0.4 one call in a hundred takes 2.5 times the median.
	// 0: every call takes the delay itself.
	Spread     float64  `json:"spread"`
	Create     Duration `json:"create"`     // volume: creating
	Delete     Duration `json:"delete"`     // volume: deleting
	Attach     Duration `json:"attach"`     // attachment: attaching
	Detach     Duration `json:"detach"`     // attachment: detaching
	Modify     Duration `json:"modify"`     // modification: modifying
	Optimize   Duration `json:"optimize"`   // modification: optimizing
	Initialize Duration `json:"initialize"` // volume from a snapshot: initializing
	Snapshot   Duration `json:"snapshot"`   // snapshot: pending
	// FastRestoreEnable, FastRestoreOptimize and FastRestoreDisable bound the
	// states enabling (which lasts till the snapshot is completed at least),
	// optimizing and disabling of fast snapshot restore.
	FastRestoreEnable   Duration `json:"fastRestoreEnable"`
	FastRestoreOptimize Duration `json:"fastRestoreOptimize"`
	FastRestoreDisable  Duration `json:"fastRestoreDisable"`
	// SnapshotSpacing is how far apart the snapshots of a volume have to be.
	SnapshotSpacing Duration `json:"snapshotSpacing"`
}

// DefaultDelays are times as seen on EC2 for small volumes, with the optimizing
// states (minutes to hours there) cut short.
func DefaultDelays() Delays {
	return Delays{
		Create:   Duration(1500 * time.Millisecond),
		Delete:   Duration(500 * time.Millisecond),
		Attach:   Duration(1200 * time.Millisecond),
		Detach:   Duration(1200 * time.Millisecond),
		Modify:   Duration(time.Second),
		Optimize: Duration(3 * time.Second),
		Snapshot: Duration(2 * time.Second),
		// https://docs.aws.amazon.com/ebs/latest/userguide/view-fsr-enabled-snapshots.html
		// gives 60 minutes a TiB for optimizing
		FastRestoreEnable:   Duration(time.Second),
		FastRestoreOptimize: Duration(3 * time.Second),
		FastRestoreDisable:  Duration(time.Second),
		// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
		// (SnapshotCreationPerVolumeRateExceeded)
		SnapshotSpacing: Duration(15 * time.Second),
	}
}

// maxSpread bounds Delays.Spread: beyond it the tail is longer than any wait.
const maxSpread = 2

// widestDraw cuts the distribution's tails: no draw is further from the median
// than this many sigmas, which one in 370 would be.
const widestDraw = 3

func (d Delays) check() error {
	if d.Spread < 0 || d.Spread > maxSpread {
		return fmt.Errorf("delays with spread %v: want 0 (none) to %d", d.Spread, maxSpread)
	}
	return nil
}

// draws draws delays, the same ones in the same order for the same seed. The
// caller holds Sim.mu.
type draws struct{ source *rand.Rand }

func newDraws(seed uint64) draws { return draws{rand.New(rand.NewPCG(seed, 0))} }

// draw draws a delay of a median.
func (d draws) draw(median Duration, spread float64) time.Duration {
	if median == 0 || spread == 0 {
		return time.Duration(median)
	}
	sigmas := min(max(d.source.NormFloat64(), -widestDraw), widestDraw)
	return time.Duration(float64(median) * math.Exp(sigmas*spread))
}

// Duration is a time.Duration that JSON shows as "1.5s".
type Duration time.Duration

// MarshalJSON writes the duration as Go prints it.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads "1.5s", "200ms" and the like; negative ones are refused.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("duration %s: want a string such as \"1.5s\"", data)
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("duration %q: want a string such as \"1.5s\", not negative", s)
	}
	*d = Duration(v)
	return nil
}
