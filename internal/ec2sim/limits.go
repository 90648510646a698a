package ec2sim

import (
	"slices"
)

// Quotas are limits of the account; a zero is no limit.
// https://docs.aws.amazon.com/general/latest/gr/ebs-service.html#limits_ebs
type Quotas struct {
	// Volumes is how many volumes may exist (VolumeLimitExceeded).
	Volumes int `json:"volumes,omitempty"`
	// IOPS is how many provisioned IOPS they may have together (MaxIOPSLimitExceeded).
	IOPS int64 `json:"iops,omitempty"`
	// Snapshots is how many snapshots may exist (SnapshotLimitExceeded).
	Snapshots int `json:"snapshots,omitempty"`
	// PendingSnapshots is how many may be pending (PendingSnapshotLimitExceeded).
	PendingSnapshots int `json:"pendingSnapshots,omitempty"`
	// FastRestores is how many snapshots may have fast restore on
	// (FastSnapshotRestoreLimitExceeded in the answer).
	FastRestores int `json:"fastRestores,omitempty"`
}

// typeLimits is what a volume type allows.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
type typeLimits struct {
	minGiB, maxGiB int32
	// minIOPS..maxIOPS can be asked for; 0: iops is not a parameter of the type.
	minIOPS, maxIOPS int32
	defaultIOPS      int32 // 0 with maxIOPS set: iops has to be given
	iopsPerGiB       int32
	// minMiBs..maxMiBs can be asked for; 0: throughput is not a parameter.
	minMiBs, maxMiBs int32
	multiAttach      bool
	pendingSnapshots int // at one time
}

var volumeTypes = map[string]typeLimits{
	"gp2":      {minGiB: 1, maxGiB: 16384, pendingSnapshots: 5},
	"gp3":      {minGiB: 1, maxGiB: 65536, minIOPS: 3000, maxIOPS: 80000, defaultIOPS: 3000, iopsPerGiB: 500, minMiBs: 125, maxMiBs: 2000, pendingSnapshots: 5},
	"io1":      {minGiB: 4, maxGiB: 16384, minIOPS: 100, maxIOPS: 64000, iopsPerGiB: 50, multiAttach: true, pendingSnapshots: 5},
	"io2":      {minGiB: 4, maxGiB: 65536, minIOPS: 100, maxIOPS: 256000, iopsPerGiB: 1000, multiAttach: true, pendingSnapshots: 5},
	"st1":      {minGiB: 125, maxGiB: 16384, pendingSnapshots: 1},
	"sc1":      {minGiB: 125, maxGiB: 16384, pendingSnapshots: 1},
	"standard": {minGiB: 1, maxGiB: 1024, pendingSnapshots: 5},
}

// iopsPerMiBs is how many IOPS a gp3 volume needs for each MiB/s.
const iopsPerMiBs = 4

// shapeWish is a Shape as asked for; nil: not said.
type shapeWish struct {
	iops, throughput *int32
}

// fit checks a shape against its type's limits and fills in what the type
// gives by itself. Texts as EC2 was seen to write them.
func fit(sh Shape, wish shapeWish) (Shape, *APIError) {
	lim, ok := volumeTypes[sh.Type]
	if !ok {
		return sh, refuse("UnknownVolumeType", "Unsupported volume type '%s'.", sh.Type)
	}
	if err := fitSize(sh, lim); err != nil {
		return sh, err
	}
	if sh.MultiAttach && !lim.multiAttach {
		return sh, refuse("InvalidParameterCombination", "Multi-Attach is not supported for %s volumes.", sh.Type)
	}
	var err *APIError
	if sh.IOPS, err = fitIOPS(sh, lim, wish.iops); err != nil {
		return sh, err
	}
	sh.ThroughputMiBs, err = fitThroughput(sh, lim, wish.throughput)
	return sh, err
}

func fitSize(sh Shape, lim typeLimits) *APIError {
	switch {
	case sh.SizeGiB > lim.maxGiB:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", sh.SizeGiB, sh.Type, lim.maxGiB)
	case sh.SizeGiB < lim.minGiB:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too small for volume type %s; minimum is %dGiB.", sh.SizeGiB, sh.Type, lim.minGiB)
	}
	return nil
}

func fitIOPS(sh Shape, lim typeLimits, asked *int32) (int32, *APIError) {
	if lim.maxIOPS == 0 {
		if asked != nil {
			return 0, refuse("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", sh.Type)
		}
		if sh.Type == "gp2" { // 3 per GiB, at least 100, at most 16,000
			return min(max(100, 3*sh.SizeGiB), 16000), nil
		}
		return 0, nil
	}
	if asked == nil {
		if lim.defaultIOPS == 0 {
			return 0, refuse("MissingParameter", "The parameter iops must be specified for %s volumes.", sh.Type)
		}
		return lim.defaultIOPS, nil
	}
	n := *asked
	switch {
	case n > lim.maxIOPS && sh.Type == "io2":
		return 0, refuse("InvalidParameterCombination", "Volume iops of %d is too high; io2 volumes support up to 256K IOPS.", n)
	case n > lim.maxIOPS:
		return 0, refuse("InvalidParameterValue", "Volume iops of %d is too high; maximum is %d.", n, lim.maxIOPS)
	case n < lim.minIOPS:
		return 0, refuse("InvalidParameterValue", "Volume iops of %d is too low; minimum is %d.", n, lim.minIOPS)
	// gp3's 3,000 come with every size
	case n > lim.defaultIOPS && int64(n) > int64(lim.iopsPerGiB)*int64(sh.SizeGiB):
		return 0, refuse("InvalidParameterValue", "Iops to volume size ratio of %f is too high; maximum is %d", float64(n)/float64(sh.SizeGiB), lim.iopsPerGiB)
	}
	return n, nil
}

func fitThroughput(sh Shape, lim typeLimits, asked *int32) (int32, *APIError) {
	if lim.maxMiBs == 0 {
		if asked != nil {
			return 0, refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", sh.Type)
		}
		return 0, nil
	}
	if asked == nil {
		return lim.minMiBs, nil
	}
	n := *asked
	switch {
	case n > lim.maxMiBs:
		return 0, refuse("InvalidParameterValue", "Volume throughput of %d is too high; maximum is %d.", n, lim.maxMiBs)
	case n < lim.minMiBs:
		return 0, refuse("InvalidParameterValue", "Volume throughput of %d is too low; minimum is %d.", n, lim.minMiBs)
	case n*iopsPerMiBs > sh.IOPS:
		return 0, refuse("InvalidParameterValue", "Throughput (MiBps) to iops ratio of %f is too high; maximum is 0.250000 MiBps per iops.", float64(n)/float64(sh.IOPS))
	}
	return n, nil
}

// provisionedIOPS counts towards the account's quota.
func provisionedIOPS(typ string, iops int32) int64 {
	if slices.Contains([]string{"io1", "io2", "gp3"}, typ) {
		return int64(iops)
	}
	return 0
}
