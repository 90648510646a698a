package ec2sim

import (
	"encoding/json"
	"fmt"
	"time"
)

// Delays say how long each passing state lasts. The zero value: no time at all.
type Delays struct {
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
