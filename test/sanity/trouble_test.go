//go:build sanity

package sanity

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// trouble is what EC2 makes of a run; the zero value is none.
type trouble struct {
	name   string
	faults []ec2sim.Fault
	lag    map[string]ec2sim.Duration
	delays ec2sim.Delays
	// except are tests of csi-sanity that cannot hold in this trouble.
	except []exception
}

// exception is a test that is left out.
type exception struct {
	test string // regular expression
	why  string
}

// slow is about as long as EC2 takes.
const slow = ec2sim.Duration(time.Second)

var troubles = []trouble{{
	name:   "throttling",
	faults: []ec2sim.Fault{{Action: "*", Code: "RequestLimitExceeded", Message: "Request limit exceeded.", HTTPStatus: 503, Every: 3, Count: -1}},
}, {
	name: "stale reads",
	lag:  map[string]ec2sim.Duration{"*": ec2sim.Duration(time.Second)},
	except: []exception{
		{"check the presence of new volumes and absence of deleted ones in the volume list", listsLag},
		{"check the presence of new snapshots in the snapshot list", listsLag},
		{"ListSnapshots .* should return next token when a limited number of entries are requested", listsLag},
	},
}, {
	name:   "slow states",
	delays: ec2sim.Delays{Create: slow, Delete: slow, Attach: slow, Detach: slow, Modify: slow, Snapshot: slow},
}, {
	name: "server errors",
	// Not CreateSnapshot: EC2 has no client token for it, so the driver leaves
	// the repeat after such an answer to the sidecar.
	faults: serverErrors("CreateVolume", "CopyVolumes", "DeleteVolume", "AttachVolume", "DetachVolume", "ModifyVolume", "DeleteSnapshot",
		"DescribeVolumes", "DescribeInstances", "DescribeSnapshots", "DescribeVolumesModifications"),
}}

const listsLag = "it counts a list right before and after a change, which EC2 may show later: a list is what EC2 shows"

// serverErrors has every third call of actions fail on EC2's side.
func serverErrors(actions ...string) []ec2sim.Fault {
	var faults []ec2sim.Fault
	for _, a := range actions {
		faults = append(faults, ec2sim.Fault{Action: a, Code: "InternalError", Message: "An internal error has occurred", HTTPStatus: 500, Every: 3, Count: -1})
	}
	return faults
}

// wasInTrouble checks that the faults did hit: their codes show among the calls
// of each action that was called often enough.
func (b *bench) wasInTrouble(tr trouble) {
	b.t.Helper()
	for _, f := range tr.faults {
		calls, hits := 0, 0
		for _, c := range b.sim.Calls() {
			if f.Action != "*" && f.Action != c.Action {
				continue
			}
			if calls += c.Count; c.Code == f.Code {
				hits += c.Count
			}
		}
		if calls >= f.Every && hits == 0 {
			b.t.Errorf("none of %d calls was hit by %+v", calls, f)
		}
	}
}
