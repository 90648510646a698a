package ebs

import (
	"fmt"
	"sort"
	"strings"
)

// TypeLimits is what a volume type allows. A zero maximum of IOPS or
// throughput means that the type does not let one choose it.
type TypeLimits struct {
	MinSize, MaxSize GiB
	MinIOPS, MaxIOPS int32
	// DefaultIOPS is what EC2 gives where none are asked for.
	DefaultIOPS int32
	// MaxIOPSPerGiB bounds IOPS by the size.
	MaxIOPSPerGiB                               int32
	MinThroughputMiBps, MaxThroughputMiBps      int32
	DefaultThroughputMiBps, IOPSPerMiBpsAtLeast int32
}

// limits by volume type. Sources, read in November 2026:
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
// (gp3 up to 64 TiB, 80,000 IOPS and 2,000 MiB/s since September 2025).
var limits = map[VolumeType]TypeLimits{
	GP3: {
		MinSize: 1, MaxSize: 65536, MinIOPS: 3000, MaxIOPS: 80000, DefaultIOPS: 3000, MaxIOPSPerGiB: 500,
		MinThroughputMiBps: 125, MaxThroughputMiBps: 2000, DefaultThroughputMiBps: 125, IOPSPerMiBpsAtLeast: 4,
	},
	GP2:      {MinSize: 1, MaxSize: 16384},
	IO1:      {MinSize: 4, MaxSize: 16384, MinIOPS: 100, MaxIOPS: 64000, MaxIOPSPerGiB: 50},
	IO2:      {MinSize: 4, MaxSize: 65536, MinIOPS: 100, MaxIOPS: 256000, MaxIOPSPerGiB: 1000},
	ST1:      {MinSize: 125, MaxSize: 16384},
	SC1:      {MinSize: 125, MaxSize: 16384},
	Standard: {MinSize: 1, MaxSize: 1024},
}

// The rates at which EC2 can be asked to fetch a snapshot's content, in MiB/s.
// https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
const (
	MinInitializationMiBps = 100
	MaxInitializationMiBps = 300
)

// LimitsOf answers what a volume type allows; ok is false for a type that EBS does not have.
func LimitsOf(t VolumeType) (l TypeLimits, ok bool) {
	l, ok = limits[t]
	return l, ok
}

// VolumeTypes lists the volume types by name.
func VolumeTypes() []VolumeType {
	types := make([]VolumeType, 0, len(limits))
	for t := range limits {
		types = append(types, t)
	}
	sort.Slice(types, func(i, j int) bool { return types[i] < types[j] })
	return types
}

// typeNames is the list for error texts.
func typeNames() string {
	var names []string
	for _, t := range VolumeTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// CheckSize wraps ErrOutOfRange when a volume type does not offer a size.
func CheckSize(t VolumeType, size GiB) error {
	l, ok := limits[t]
	switch {
	case !ok:
		return fmt.Errorf("%w: volume type %q: allowed are %s", ErrInvalid, t, typeNames())
	case size < l.MinSize || size > l.MaxSize:
		return fmt.Errorf("%w: size %d GiB: an EBS %s volume has %d to %d GiB", ErrOutOfRange, size, t, l.MinSize, l.MaxSize)
	}
	return nil
}

// Check says whether EBS can make the volume, with what is wrong and what is
// allowed. A size of 0 stands for "as the snapshot" and is not judged.
func (r VolumeRequest) Check() error {
	l, ok := limits[r.Type]
	if !ok {
		return fmt.Errorf("%w: volume type %q: allowed are %s", ErrInvalid, r.Type, typeNames())
	}
	if r.Size != 0 {
		if err := CheckSize(r.Type, r.Size); err != nil {
			return err
		}
	}
	if r.MultiAttach && r.Type != IO2 {
		return fmt.Errorf("%w: volume type %s: a volume for several nodes (ReadWriteMany, MULTI_NODE_MULTI_WRITER) has to be of type io2", ErrInvalid, r.Type)
	}
	if err := r.checkIOPS(l); err != nil {
		return err
	}
	if n := r.InitializationMiBps; n != 0 && (n < MinInitializationMiBps || n > MaxInitializationMiBps) {
		return fmt.Errorf("%w: volumeInitializationRate %d: allowed are %d to %d MiB/s", ErrInvalid, n, MinInitializationMiBps, MaxInitializationMiBps)
	}
	return r.checkThroughput(l)
}

func (r VolumeRequest) checkIOPS(l TypeLimits) error {
	switch {
	case r.IOPS == 0 && r.Type == IO1, r.IOPS == 0 && r.Type == IO2:
		return fmt.Errorf("%w: an EBS %s volume needs iops or iopsPerGB: %d to %d IOPS", ErrInvalid, r.Type, l.MinIOPS, l.MaxIOPS)
	case r.IOPS == 0:
		return nil
	case l.MaxIOPS == 0:
		return fmt.Errorf("%w: iops %d: the IOPS of an EBS %s volume cannot be chosen; types with iops are gp3, io1 and io2", ErrInvalid, r.IOPS, r.Type)
	case r.IOPS < l.MinIOPS || r.IOPS > l.MaxIOPS:
		return fmt.Errorf("%w: iops %d: an EBS %s volume has %d to %d IOPS", ErrInvalid, r.IOPS, r.Type, l.MinIOPS, l.MaxIOPS)
	}
	if most := l.MaxIOPSOf(r.Size); r.Size != 0 && r.IOPS > most {
		return fmt.Errorf("%w: iops %d: an EBS %s volume of %d GiB has at most %d IOPS (%d per GiB)", ErrInvalid, r.IOPS, r.Type, r.Size, most, l.MaxIOPSPerGiB)
	}
	return nil
}

// MaxIOPSOf is the most IOPS that a volume of a size may have: its share per
// GiB, though never less than every volume of the type may have.
func (l TypeLimits) MaxIOPSOf(size GiB) int32 {
	return int32(min(int64(l.MaxIOPS), max(int64(l.DefaultIOPS), int64(size)*int64(l.MaxIOPSPerGiB))))
}

func (r VolumeRequest) checkThroughput(l TypeLimits) error {
	switch {
	case r.ThroughputMiBps == 0:
		return nil
	case l.MaxThroughputMiBps == 0:
		return fmt.Errorf("%w: throughput %d: the throughput of an EBS %s volume cannot be chosen; the type with throughput is gp3", ErrInvalid, r.ThroughputMiBps, r.Type)
	case r.ThroughputMiBps < l.MinThroughputMiBps || r.ThroughputMiBps > l.MaxThroughputMiBps:
		return fmt.Errorf("%w: throughput %d: an EBS %s volume has %d to %d MiB/s", ErrInvalid, r.ThroughputMiBps, r.Type, l.MinThroughputMiBps, l.MaxThroughputMiBps)
	}
	iops := r.IOPS
	if iops == 0 {
		iops = l.DefaultIOPS
	}
	if most := iops / l.IOPSPerMiBpsAtLeast; r.ThroughputMiBps > most {
		return fmt.Errorf("%w: throughput %d: with %d IOPS an EBS %s volume has at most %d MiB/s (%d IOPS for each)", ErrInvalid, r.ThroughputMiBps, iops, r.Type, most, l.IOPSPerMiBpsAtLeast)
	}
	return nil
}
