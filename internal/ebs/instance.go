package ebs

import (
	"fmt"
	"strconv"
	"strings"
)

// Hypervisor is what an instance runs on; it decides how its disks look.
type Hypervisor string

// The hypervisors of EC2.
const (
	// Nitro instances see EBS volumes as NVMe disks with the volume's id as serial number.
	Nitro Hypervisor = "nitro"
	// XenHypervisor instances see them as disks of the attachment's name, without a serial number.
	XenHypervisor Hypervisor = "xen"
)

// LimitKind says what counts against an instance's attachment limit.
type LimitKind string

// The kinds of limits, as in DescribeInstanceTypes' AttachmentLimitType.
const (
	// Shared limits count volumes and network interfaces alike.
	Shared LimitKind = "shared"
	// Dedicated limits count volumes alone.
	Dedicated LimitKind = "dedicated"
)

// InstanceLimit is how many volumes an instance type takes.
type InstanceLimit struct {
	// Volumes is the number of EBS volumes with one network interface
	// attached, the root volume included (MaximumEbsAttachments).
	Volumes    int
	Kind       LimitKind
	Hypervisor Hypervisor
}

// Defaults for types that the table does not know: most Nitro types share 28
// places between volumes and interfaces, of which the first interface takes
// one; Xen types take 40 volumes with the root volume, by AWS's
// recommendation ("Amazon EBS volume limits for Amazon EC2 instances").
const (
	defaultNitroVolumes = 27
	xenVolumes          = 39
)

// LimitOf returns the limit of an instance type, from the tables in
// instance_table.go; a type that is not in them gets the default of its
// hypervisor.
func LimitOf(instanceType string) InstanceLimit {
	family, size, _ := strings.Cut(instanceType, ".")
	nitro := func(volumes int, kind LimitKind) InstanceLimit {
		return InstanceLimit{Volumes: volumes, Kind: kind, Hypervisor: Nitro}
	}
	switch {
	case xenFamilies[family] && size != "metal":
		// Xen's device names are for volumes alone; interfaces take none.
		return InstanceLimit{Volumes: xenVolumes, Kind: Dedicated, Hypervisor: XenHypervisor}
	case dedicatedExceptions[family].of(size) > 0:
		return nitro(dedicatedExceptions[family].of(size), Dedicated)
	case dedicatedFamilies[family]:
		return nitro(dedicatedBySize.of(size), Dedicated)
	case sharedExceptions[family].of(size) > 0:
		return nitro(sharedExceptions[family].of(size), Shared)
	case plainMetal[family] && size == "metal":
		return nitro(metalShared, Shared)
	}
	return nitro(defaultNitroVolumes, Shared)
}

// IsClaimDevice says whether a device name ("xvdba", with or without /dev/) is of
// the kind under which this driver, and AWS's, attach volumes of claims: xvdaa to
// xvddx, which images and launch templates do not use for theirs. (The driver's
// last names, sdb to sdz, are theirs too; it takes them beyond 102 volumes alone.)
func IsClaimDevice(name string) bool {
	letters, ok := strings.CutPrefix(strings.TrimPrefix(name, "/dev/"), "xvd")
	return ok && len(letters) == 2 && letters[0] >= 'a' && letters[0] <= 'd' && letters[1] >= 'a' && letters[1] <= 'z'
}

// Occupancy is what takes places of an instance's limit besides the volumes
// of claims.
type Occupancy struct {
	// ReservedVolumes are the root volume and others that the instance was
	// launched with. Volumes of claims are not among them, also when they are
	// attached while a node process starts: else every restart would lower
	// the limit.
	ReservedVolumes int
	// NetworkInterfaces attached; the first one is in the limit already.
	NetworkInterfaces int
}

// Free is how many volumes of claims the instance takes beside what occupies
// it, and never below 1: a node that reports 0 counts as one without limit.
func (l InstanceLimit) Free(o Occupancy) int {
	free := l.Volumes - o.ReservedVolumes
	if l.Kind == Shared && o.NetworkInterfaces > 1 {
		free -= o.NetworkInterfaces - 1
	}
	return max(free, 1)
}

// Agrees says whether EC2's own answer about the type is the same. What shares
// a limit is compared on Nitro instances alone: EC2 calls limits of bare metal
// and of Xen types shared that are not (see instance_table.go).
func (l InstanceLimit) Agrees(ec2 InstanceLimit) bool {
	return l.Volumes == ec2.Volumes && (l.Kind == ec2.Kind || ec2.Hypervisor != Nitro)
}

// String is the limit in words: "27 (shared with network interfaces)".
func (l InstanceLimit) String() string {
	if l.Kind == Shared {
		return fmt.Sprintf("%d (shared with network interfaces)", l.Volumes)
	}
	return strconv.Itoa(l.Volumes)
}

// launchVolumesAssumed are the root volume and a second one for data, as
// Bottlerocket's image has it.
const launchVolumesAssumed = 2

// interfacesBySize are the network interfaces that instances of a size have at
// most, among the families that share places with them ("IP addresses per network
// interface per instance type", Amazon EC2 User Guide; the few that have four
// network cards and more interfaces, such as dl1, are used with fewer).
var interfacesBySize = bySize{
	"": 16, "nano": 2, "micro": 2, "small": 3, "medium": 3, "large": 3, "xlarge": 4, "2xlarge": 4,
	"3xlarge": 4, "4xlarge": 8, "6xlarge": 8, "8xlarge": 8, "9xlarge": 8, "10xlarge": 8, "12xlarge": 8,
}

// MostOccupied is the most that is likely to take places of an instance's limit,
// for those who cannot know what does.
func MostOccupied(instanceType string) Occupancy {
	_, size, _ := strings.Cut(instanceType, ".")
	return Occupancy{ReservedVolumes: launchVolumesAssumed, NetworkInterfaces: interfacesBySize.of(size)}
}
