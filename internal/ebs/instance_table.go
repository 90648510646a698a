package ebs

// The tables of attachment limits, dated 2026-08. Facts: DescribeInstanceTypes'
// EbsInfo (MaximumEbsAttachments, AttachmentLimitType) as collected in
// kubernetes-sigs/aws-ebs-csi-driver, pkg/cloud/limits (commit 51e3676f), and
// "Amazon EBS volume limits for Amazon EC2 instances" in the Amazon EBS User
// Guide. EC2 calls the limits of some metal sizes of the seventh and eighth
// generation shared; they are dedicated (same source), and are so here.

// xenFamilies run on Xen; their metal sizes do not.
var xenFamilies = set("c1", "c3", "c4", "d2", "f1", "h1", "i2", "i3", "m1", "m2", "m3", "m4",
	"p2", "p3", "r3", "r4", "t1", "t2", "x1", "x1e", "g2", "g3", "g3s")

// bySize maps sizes to numbers of volumes; the size "" stands for all others.
type bySize map[string]int

// dedicatedFamilies have places for volumes alone, as many as dedicatedBySize
// says unless dedicatedExceptions says otherwise.
var dedicatedFamilies = set(
	"c7a", "c7i", "c7i-flex", "c8a", "c8g", "c8gb", "c8gd", "c8gn", "c8i", "c8i-flex",
	"f2", "g6", "g6e", "g6f", "g7e", "gr6", "gr6f",
	"hpc7a", "i7i", "i7ie", "i8g", "i8ge",
	"m7a", "m7i", "m7i-flex", "m8a", "m8g", "m8gb", "m8gd", "m8gn", "m8i", "m8i-flex",
	"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300",
	"r7a", "r7i", "r7iz", "r8a", "r8g", "r8gb", "r8gd", "r8gn", "r8i", "r8i-flex",
	"trn2", "u7i-6tb", "u7i-8tb", "u7i-12tb", "u7in-16tb", "u7in-24tb", "u7in-32tb",
	"x8aedz", "x8g", "x8i",
)

var dedicatedBySize = bySize{
	"": 32, "16xlarge": 48, "18xlarge": 48, "24xlarge": 64, "32xlarge": 88,
	"48xlarge": 128, "64xlarge": 128, "96xlarge": 128, "112xlarge": 128, "224xlarge": 128,
	"metal-16xl": 39, "metal-24xl": 39, "metal-32xl": 79, "metal-48xl": 79, "metal-96xl": 79,
}

var (
	accelerated = bySize{"": 32, "48xlarge": 64}
	metalLarger = bySize{"metal-24xl": 64}
	metalHalf   = bySize{"metal-48xl": 64}
	networkHalf = bySize{"48xlarge": 64, "metal-48xl": 39}
	twoCards    = bySize{"metal-48xl": 78}
)

var dedicatedExceptions = map[string]bySize{
	"c8a": metalLarger, "m8a": metalLarger, "r8a": metalLarger,
	"c8gb": twoCards, "r8gb": twoCards,
	"c8gn": networkHalf, "m8gn": networkHalf, "r8gn": networkHalf,
	"c8i": metalHalf, "m8i": metalHalf, "r8i": metalHalf, "x8i": metalHalf,
	"hpc7a": {"": 27},
	"p4d":   {"": 28}, "p4de": {"": 28},
	"p5": accelerated, "p5e": accelerated, "p5en": accelerated, "p6-b200": accelerated, "p6-b300": accelerated,
	"trn2":   accelerated,
	"x8aedz": {"12xlarge": 64, "24xlarge": 128, "metal-12xl": 64, "metal-24xl": 79},
}

// Families whose instance-store disks and accelerators take places from a
// shared limit.
var (
	graviton2Disks = bySize{"": 26, "12xlarge": 25, "16xlarge": 25, "metal": 31}
	fifthDisks     = bySize{"": 26, "4xlarge": 25, "8xlarge": 25, "12xlarge": 25, "16xlarge": 23, "24xlarge": 23, "metal": 31}
	sixthDisks     = bySize{"": 26, "12xlarge": 25, "16xlarge": 25, "24xlarge": 23, "32xlarge": 23, "metal": 31}
	graviton4xDisk = bySize{"": 26, "8xlarge": 25, "16xlarge": 23}
)

var sharedExceptions = map[string]bySize{
	"c5ad": {"": 25, "large": 26, "xlarge": 26, "2xlarge": 26},
	"c5d":  {"": 26, "12xlarge": 25, "18xlarge": 25, "24xlarge": 23, "metal": 31},
	"m5ad": fifthDisks, "m5d": fifthDisks, "m5dn": fifthDisks,
	"r5ad": fifthDisks, "r5d": fifthDisks, "r5dn": fifthDisks,
	"c6gd": graviton2Disks, "m6gd": graviton2Disks, "r6gd": graviton2Disks, "x2gd": graviton2Disks,
	"c7gd": graviton2Disks, "m7gd": graviton2Disks, "r7gd": graviton2Disks,
	"c6id": sixthDisks, "m6id": sixthDisks, "r6id": sixthDisks, "m6idn": sixthDisks, "r6idn": sixthDisks, "hpc6id": sixthDisks,
	"d3":     {"xlarge": 24, "2xlarge": 21, "4xlarge": 15, "8xlarge": 3},
	"d3en":   {"xlarge": 25, "2xlarge": 23, "4xlarge": 19, "6xlarge": 15, "8xlarge": 11, "12xlarge": 3},
	"dl1":    {"24xlarge": 28},
	"dl2q":   {"24xlarge": 19},
	"g4ad":   {"": 25, "8xlarge": 24, "16xlarge": 21},
	"g4dn":   {"": 25, "12xlarge": 22, "metal": 31},
	"g5":     {"": 25, "12xlarge": 22, "24xlarge": 22, "48xlarge": 9},
	"g5g":    {"": 26, "16xlarge": 25, "metal": 31},
	"i3en":   {"": 26, "2xlarge": 25, "6xlarge": 25, "12xlarge": 23, "24xlarge": 19, "metal": 31},
	"i4g":    graviton4xDisk,
	"im4gn":  graviton4xDisk,
	"i4i":    {"": 26, "8xlarge": 25, "12xlarge": 24, "16xlarge": 23, "24xlarge": 21, "32xlarge": 19, "metal": 31},
	"inf1":   {"": 26, "6xlarge": 23, "24xlarge": 11},
	"inf2":   {"": 26, "24xlarge": 28, "48xlarge": 28},
	"is4gen": {"": 26, "4xlarge": 25, "8xlarge": 23},
	"mac1":   {"metal": 16}, "mac2": {"metal": 10}, "mac2-m1ultra": {"metal": 10}, "mac2-m2": {"metal": 10}, "mac2-m2pro": {"metal": 10},
	"p3dn":   {"24xlarge": 17},
	"trn1":   {"2xlarge": 25, "32xlarge": 28},
	"trn1n":  {"32xlarge": 28},
	"vt1":    {"3xlarge": 25, "6xlarge": 23},
	"x2idn":  {"": 26, "24xlarge": 25, "32xlarge": 25, "metal": 31},
	"x2iedn": {"": 26, "24xlarge": 25, "32xlarge": 25, "metal": 31},
	"z1d":    {"": 26, "12xlarge": 25, "metal": 31},
}

// metalShared is the shared limit of metal sizes, which have no hypervisor that
// takes places, and plainMetal are the families without other rules that have it.
const metalShared = 31

var plainMetal = set("a1", "c5", "c5n", "c6a", "c6g", "c6i", "c6in", "c7g", "c7gn",
	"m5", "m5n", "m5zn", "m6a", "m6g", "m6i", "m6in", "m7g", "mac-m4", "mac-m4pro",
	"r5", "r5b", "r5n", "r6a", "r6g", "r6i", "r6in", "r7g", "x2iezn")

func set(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// of returns the number for a size, 0 if the rules say nothing about it.
func (s bySize) of(size string) int {
	if n, ok := s[size]; ok {
		return n
	}
	return s[""]
}
