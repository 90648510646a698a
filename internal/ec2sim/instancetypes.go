package ec2sim

import (
	"cmp"
	"maps"
	"slices"
)

// instanceType is what an instance type gives to EBS.
type instanceType struct {
	name       string
	hypervisor string // nitro, xen; empty on bare metal
	max        int    // attachments
	shared     bool   // with network interfaces beyond the first
	cards      int32
}

// typeTable holds instance types with the values that DescribeInstanceTypes
// gives for them (as of 2026).
// https://docs.aws.amazon.com/ebs/latest/userguide/volume_limits.html
var typeTable = map[string]instanceType{}

func init() {
	add := func(hypervisor string, limit int, shared bool, cards int32, names ...string) {
		for _, n := range names {
			typeTable[n] = instanceType{n, hypervisor, limit, shared, cards}
		}
	}
	add("nitro", 27, true, 1, "t3.small", "t3.medium", "t3.large", "t4g.medium", "m5.large", "m5.xlarge", "m5.4xlarge", "c5.large", "c5.4xlarge",
		"r5.large", "m6i.large", "m6i.4xlarge", "c6i.large", "r6i.2xlarge", "m6g.large", "c6g.xlarge", "c7g.large", "m7g.large", "r7g.xlarge")
	add("nitro", 26, true, 1, "m5d.xlarge")
	add("nitro", 32, false, 1, "m7i.large", "m7i.xlarge", "m7i.12xlarge", "m7i-flex.large", "c7i.large", "c7a.xlarge", "r7i.2xlarge", "m8g.large", "r8g.4xlarge")
	add("nitro", 48, false, 1, "m7i.16xlarge", "i7ie.18xlarge", "m8g.16xlarge")
	add("nitro", 128, false, 1, "m7i.48xlarge", "m7a.48xlarge", "r8g.48xlarge", "g6.48xlarge")
	add("nitro", 64, false, 1, "m7i.24xlarge", "r8g.24xlarge", "p5.48xlarge")
	add("nitro", 88, false, 1, "m7a.32xlarge")
	add("nitro", 128, false, 2, "r8gb.48xlarge")
	add("nitro", 9, true, 1, "g5.48xlarge")
	add("nitro", 3, true, 1, "d3en.12xlarge")
	add("nitro", 19, true, 1, "i4i.32xlarge")
	add("nitro", 28, false, 1, "p4d.24xlarge")
	add("", 31, true, 1, "m5.metal")
	add("xen", 39, true, 1, "x1.32xlarge", "t2.medium")
}

func typeOf(name string) instanceType { return typeTable[name] }

// limit is how many volumes an instance of the type takes with that many
// network interfaces, its root disk among them.
// https://docs.aws.amazon.com/ebs/latest/userguide/volume_limits.html
func (t instanceType) limit(enis int) int {
	if t.shared {
		return max(1, t.max-(enis-1))
	}
	return t.max
}

func (t instanceType) nvme() string {
	if t.hypervisor == "xen" {
		return "unsupported"
	}
	return "required"
}

type cardXML struct {
	Index int32 `xml:"ebsCardIndex"`
}

type typeXML struct {
	Name       string       `xml:"instanceType"`
	Hypervisor *string      `xml:"hypervisor"`
	BareMetal  bool         `xml:"bareMetal"`
	Optimized  string       `xml:"ebsInfo>ebsOptimizedSupport"`
	Encryption string       `xml:"ebsInfo>encryptionSupport"`
	NVMe       string       `xml:"ebsInfo>nvmeSupport"`
	Max        int          `xml:"ebsInfo>maximumEbsAttachments"`
	LimitType  string       `xml:"ebsInfo>attachmentLimitType"`
	MaxCards   int32        `xml:"ebsInfo>maximumEbsCards"`
	Cards      set[cardXML] `xml:"ebsInfo>ebsCardSet"`
}

type typesAnswer struct {
	answer
	Types     set[typeXML] `xml:"instanceTypeSet"`
	NextToken *string      `xml:"nextToken"`
}

func (t instanceType) xml() typeXML {
	x := typeXML{
		Name: t.name, Hypervisor: ptr(t.hypervisor), BareMetal: t.hypervisor == "", Optimized: "default", Encryption: "supported",
		NVMe: t.nvme(), Max: t.max, LimitType: "dedicated", MaxCards: t.cards,
	}
	if t.shared {
		x.LimitType = "shared"
	}
	for i := range t.cards {
		x.Cards.Items = append(x.Cards.Items, cardXML{i})
	}
	return x
}

func (t instanceType) fact(name string) []string {
	return map[string][]string{
		"instance-type":         {t.name},
		"hypervisor":            {t.hypervisor},
		"ebs-info.nvme-support": {t.nvme()},
	}[name]
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypes.html
func describeInstanceTypes(r *request) (stampable, *APIError) {
	names := r.list("InstanceType")
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	types := slices.Collect(maps.Values(typeTable))
	if len(names) > 0 {
		types = nil
		for _, n := range names {
			t, ok := typeTable[n]
			if !ok {
				return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", n)
			}
			types = append(types, t)
		}
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	types = slices.DeleteFunc(types, func(t instanceType) bool { return !matchAll(filters, t.fact) })
	types, next, err := page(r, types, func(t instanceType) string { return t.name }, 100, names, "instanceTypes")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &typesAnswer{NextToken: next}
	slices.SortFunc(types, func(a, b instanceType) int { return cmp.Compare(a.name, b.name) })
	for _, t := range types {
		ans.Types.Items = append(ans.Types.Items, t.xml())
	}
	return ans, nil
}
