package ebs

import (
	"fmt"
	"strconv"
	"strings"
)

// Shape is what of a volume can be changed while it lives. IOPS and throughput
// are 0 where the type does not let one choose them.
type Shape struct {
	Size            GiB
	Type            VolumeType
	IOPS            int32
	ThroughputMiBps int32
}

// NewShape is a shape as EC2 tells it, without the numbers that follow from the
// type by themselves: a gp2 volume has IOPS, but nobody has chosen them.
func NewShape(size GiB, t VolumeType, iops, throughputMiBps int32) Shape {
	l := limits[t]
	if l.MaxIOPS == 0 {
		iops = 0
	}
	if l.MaxThroughputMiBps == 0 {
		throughputMiBps = 0
	}
	return Shape{Size: size, Type: t, IOPS: iops, ThroughputMiBps: throughputMiBps}
}

// String says a shape in one phrase.
func (s Shape) String() string {
	text := fmt.Sprintf("%s of %d GiB", s.Type, s.Size)
	if s.IOPS != 0 {
		text += fmt.Sprintf(" with %d IOPS", s.IOPS)
	}
	if s.ThroughputMiBps != 0 {
		text += fmt.Sprintf(" and %d MiB/s", s.ThroughputMiBps)
	}
	return text
}

// Shape is the volume's present shape.
func (v Volume) Shape() Shape { return NewShape(v.Size, v.Type, v.IOPS, v.ThroughputMiBps) }

// WithShape is the volume in another shape.
func (v Volume) WithShape(s Shape) Volume {
	v.Size, v.Type, v.IOPS, v.ThroughputMiBps = s.Size, s.Type, s.IOPS, s.ThroughputMiBps
	return v
}

// Modification is what is wanted of a volume that lives. What is not said stays
// as it is.
type Modification struct {
	Size            GiB // at least that
	Type            VolumeType
	IOPS            int32
	IOPSPerGiB      int32 // IOPS by the size that the volume then has; excludes IOPS
	RaiseIOPS       bool  // IOPSPerGiB that gives less than the type's least is raised to it
	ThroughputMiBps int32
	SetTags         map[string]string
	DeleteTags      []string // keys
}

// ChangesShape says whether more than tags is wanted.
func (m Modification) ChangesShape() bool {
	return m.Size != 0 || m.Type != "" || m.IOPS != 0 || m.IOPSPerGiB != 0 || m.ThroughputMiBps != 0
}

// Merge is both modifications' shapes in one, without tags. It is an error that
// names both values where they contradict each other.
func (m Modification) Merge(other Modification) (Modification, error) {
	var wrong []string
	differ := func(what string, a, b any) {
		wrong = append(wrong, fmt.Sprintf("%s %v and %v", what, a, b))
	}
	if m.Size != 0 && other.Size != 0 && m.Size != other.Size {
		differ("size in GiB", m.Size, other.Size)
	}
	if m.Type != "" && other.Type != "" && m.Type != other.Type {
		differ("type", m.Type, other.Type)
	}
	if a, b := m.iopsWish(), other.iopsWish(); a != "" && b != "" && a != b {
		differ("IOPS", a, b)
	}
	if m.ThroughputMiBps != 0 && other.ThroughputMiBps != 0 && m.ThroughputMiBps != other.ThroughputMiBps {
		differ("throughput in MiB/s", m.ThroughputMiBps, other.ThroughputMiBps)
	}
	if wrong != nil {
		return Modification{}, fmt.Errorf("%w: two changes want different things: %s", ErrNotReady, strings.Join(wrong, ", "))
	}
	merged := Modification{
		Size: max(m.Size, other.Size), Type: max(m.Type, other.Type), IOPS: max(m.IOPS, other.IOPS), IOPSPerGiB: max(m.IOPSPerGiB, other.IOPSPerGiB),
		RaiseIOPS: m.RaiseIOPS || other.RaiseIOPS, ThroughputMiBps: max(m.ThroughputMiBps, other.ThroughputMiBps),
	}
	return merged, nil
}

// iopsWish says what is wanted of the IOPS, empty where nothing is.
func (m Modification) iopsWish() string {
	switch {
	case m.IOPSPerGiB != 0:
		return fmt.Sprintf("%d per GiB", m.IOPSPerGiB)
	case m.IOPS != 0:
		return strconv.Itoa(int(m.IOPS))
	}
	return ""
}

// DefaultIOPS is what EC2 gives an io1 or io2 volume that had no IOPS of its own before.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
const DefaultIOPS = 3000

// Target is the shape that a volume of a shape and with tags is to have; equal to
// now where there is nothing to change. ErrOutOfRange where the type does not
// offer the wanted size, ErrInvalid for all else that EBS cannot make.
//
//	size        never shrinks
//	IOPS        asked for          as asked for, or by the rate
//	            not asked for      stay, within the limits of a new type; EC2's
//	                               default where the volume had none of its own
//	            the volume grows   by the rate that its tags name, if more
//	throughput  asked for          as asked for
//	            not asked for      stays, or a new type's default
func (m Modification) Target(now Shape, tags map[string]string) (Shape, error) {
	to := now
	to.Size = max(now.Size, m.Size)
	if m.Type != "" {
		to.Type = m.Type
	}
	l, ok := limits[to.Type]
	if !ok {
		return now, fmt.Errorf("%w: volume type %q: allowed are %s", ErrInvalid, to.Type, typeNames())
	}
	if err := m.checkSize(now, to); err != nil {
		return now, err
	}
	var err error
	if to.IOPS, err = m.iops(now, to, tags); err != nil {
		return now, err
	}
	switch {
	case m.ThroughputMiBps != 0:
		to.ThroughputMiBps = m.ThroughputMiBps
	case to.Type != now.Type:
		to.ThroughputMiBps = l.DefaultThroughputMiBps
	}
	if to == now {
		return now, nil
	}
	if now.Type == Standard || to.Type == Standard {
		return now, fmt.Errorf("%w: EC2 changes no volume of type standard, and none into one: move the data to a volume of another type", ErrInvalid)
	}
	return to, VolumeRequest{Size: to.Size, Type: to.Type, IOPS: to.IOPS, ThroughputMiBps: to.ThroughputMiBps}.Check()
}

// checkSize judges the size. Where only the type changes, it is the type that
// does not fit, and no size is out of range.
func (m Modification) checkSize(now, to Shape) error {
	if to.Size == now.Size && to.Type == now.Type {
		return nil
	}
	err := CheckSize(to.Type, to.Size)
	if err != nil && to.Size == now.Size {
		return fmt.Errorf("%w: type %s: the volume has %d GiB, an EBS %s volume has %d to %d GiB", ErrInvalid, to.Type, now.Size, to.Type, limits[to.Type].MinSize, limits[to.Type].MaxSize)
	}
	return err
}

// iops is the number of IOPS of the target.
func (m Modification) iops(now, to Shape, tags map[string]string) (int32, error) {
	l := limits[to.Type]
	switch {
	case m.IOPS != 0:
		return m.IOPS, nil
	case m.IOPSPerGiB != 0:
		iops, low, err := IOPSByRate(to.Type, m.IOPSPerGiB, to.Size)
		if err == nil && low && !m.RaiseIOPS && !autoIOPS(tags) {
			err = fmt.Errorf("%w: iopsPerGB %d: %d GiB make fewer than the %d IOPS that an EBS %s volume has at least: ask for more or set allowAutoIOPSIncreaseOnModify to true",
				ErrInvalid, m.IOPSPerGiB, to.Size, l.MinIOPS, to.Type)
		}
		return iops, err
	case l.MaxIOPS == 0:
		return 0, nil
	case to.Type != now.Type && now.IOPS == 0:
		return DefaultIOPS, nil
	}
	stay := now.IOPS
	if to.Type != now.Type {
		stay = max(l.MinIOPS, min(stay, l.MaxIOPSOf(to.Size)))
	}
	if rate := rateOf(tags); rate != 0 && rate <= l.MaxIOPSPerGiB && to.Size > now.Size && autoIOPS(tags) {
		grown, _, err := IOPSByRate(to.Type, rate, to.Size)
		return max(stay, grown), err
	}
	return stay, nil
}

// IOPSByRate is the number of IOPS that a rate gives a volume of a size. What is
// beyond the type's maximum is cut to it, since a rate must serve every size;
// low says that the type's minimum was more and is what is answered.
func IOPSByRate(t VolumeType, perGiB int32, size GiB) (iops int32, low bool, err error) {
	l := limits[t]
	switch {
	case l.MaxIOPS == 0:
		return 0, false, fmt.Errorf("%w: iopsPerGB %d: the IOPS of an EBS %s volume cannot be chosen; types with iopsPerGB are gp3, io1 and io2", ErrInvalid, perGiB, t)
	case perGiB > l.MaxIOPSPerGiB:
		return 0, false, fmt.Errorf("%w: iopsPerGB %d: an EBS %s volume has at most %d", ErrInvalid, perGiB, t, l.MaxIOPSPerGiB)
	}
	product := int64(perGiB) * int64(size)
	return int32(min(int64(l.MaxIOPS), max(product, int64(l.MinIOPS)))), product < int64(l.MinIOPS), nil
}

// rateOf is the IOPS for each GiB that a volume's tags name, 0 for none. Keys are
// compared without case.
func rateOf(tags map[string]string) int32 {
	rate, err := strconv.ParseInt(tagWithoutCase(tags, TagIOPSPerGiB), 10, 32)
	if err != nil || rate < 0 {
		return 0
	}
	return int32(rate)
}

// autoIOPS says whether a volume's tags let its IOPS grow with its size.
func autoIOPS(tags map[string]string) bool {
	return strings.EqualFold(tagWithoutCase(tags, TagAutoIOPS), "true")
}

func tagWithoutCase(tags map[string]string, key string) string {
	for k, v := range tags {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return ""
}
