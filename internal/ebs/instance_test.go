package ebs

import "testing"

func TestLimitOf(t *testing.T) {
	for instanceType, want := range map[string]InstanceLimit{
		// Shared by default, and where instance-store disks take places.
		"t3.small":      {27, Shared, Nitro},
		"m5.large":      {27, Shared, Nitro},
		"c5.4xlarge":    {27, Shared, Nitro},
		"r6i.2xlarge":   {27, Shared, Nitro},
		"m5d.xlarge":    {26, Shared, Nitro},
		"m5d.16xlarge":  {23, Shared, Nitro},
		"g5.48xlarge":   {9, Shared, Nitro},
		"d3en.12xlarge": {3, Shared, Nitro},
		"i4i.32xlarge":  {19, Shared, Nitro},
		"m5.metal":      {31, Shared, Nitro},
		"i3.metal":      {27, Shared, Nitro},
		// Dedicated by size.
		"m7i.large":       {32, Dedicated, Nitro},
		"m7i.16xlarge":    {48, Dedicated, Nitro},
		"m7i.24xlarge":    {64, Dedicated, Nitro},
		"m7a.32xlarge":    {88, Dedicated, Nitro},
		"m7i.48xlarge":    {128, Dedicated, Nitro},
		"m7i-flex.large":  {32, Dedicated, Nitro},
		"i7ie.18xlarge":   {48, Dedicated, Nitro},
		"r8g.48xlarge":    {128, Dedicated, Nitro},
		"r8g.metal-24xl":  {39, Dedicated, Nitro},
		"r8a.metal-24xl":  {64, Dedicated, Nitro},
		"r8gb.48xlarge":   {128, Dedicated, Nitro},
		"c8gn.48xlarge":   {64, Dedicated, Nitro},
		"p4d.24xlarge":    {28, Dedicated, Nitro},
		"p5.48xlarge":     {64, Dedicated, Nitro},
		"x8aedz.12xlarge": {64, Dedicated, Nitro},
		// Xen.
		"t2.medium":   {39, Dedicated, XenHypervisor},
		"x1.32xlarge": {39, Dedicated, XenHypervisor},
		// What is newer than the table.
		"z9.large": {27, Shared, Nitro},
		"":         {27, Shared, Nitro},
	} {
		if got := LimitOf(instanceType); got != want {
			t.Errorf("%s: want %+v, got %+v", instanceType, want, got)
		}
	}
}

// TestTablesAgree: a family in two tables would have two limits.
func TestTablesAgree(t *testing.T) {
	for family := range sharedExceptions {
		if dedicatedFamilies[family] || xenFamilies[family] || plainMetal[family] {
			t.Errorf("family %s is in two tables", family)
		}
	}
	for family := range dedicatedExceptions {
		if !dedicatedFamilies[family] {
			t.Errorf("family %s has exceptions from dedicated limits and is not in dedicatedFamilies", family)
		}
	}
	for family := range plainMetal {
		if dedicatedFamilies[family] || xenFamilies[family] {
			t.Errorf("family %s is in two tables", family)
		}
	}
}

func TestFree(t *testing.T) {
	shared := InstanceLimit{Volumes: 27, Kind: Shared}
	dedicated := InstanceLimit{Volumes: 32, Kind: Dedicated}
	for name, tc := range map[string]struct {
		why   string
		limit InstanceLimit
		taken Occupancy
		want  int
	}{
		"root volume":        {"the root volume takes a place", shared, Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}, 26},
		"further interfaces": {"the first interface is in the limit, others take places", shared, Occupancy{ReservedVolumes: 1, NetworkInterfaces: 3}, 24},
		"dedicated":          {"interfaces take no places from a dedicated limit", dedicated, Occupancy{ReservedVolumes: 2, NetworkInterfaces: 8}, 30},
		"unknown interfaces": {"no interfaces reported add no places", shared, Occupancy{ReservedVolumes: 1}, 26},
		"full":               {"0 would mean without limit", InstanceLimit{Volumes: 3, Kind: Shared}, Occupancy{ReservedVolumes: 2, NetworkInterfaces: 4}, 1},
	} {
		if got := tc.limit.Free(tc.taken); got != tc.want {
			t.Errorf("%s: %s: want %d, got %d", name, tc.why, tc.want, got)
		}
	}
}

func TestAgrees(t *testing.T) {
	shared := InstanceLimit{27, Shared, Nitro}
	for name, tc := range map[string]struct {
		why        string
		table, ec2 InstanceLimit
		want       bool
	}{
		"same":         {"nothing to tell", shared, shared, true},
		"number":       {"the node promises places that are not there", shared, InstanceLimit{25, Shared, Nitro}, false},
		"kind":         {"interfaces would take places, or not", shared, InstanceLimit{27, Dedicated, Nitro}, false},
		"kind on Xen":  {"EC2 calls it shared, the names of Xen disks are for volumes alone", LimitOf("t2.medium"), InstanceLimit{39, Shared, XenHypervisor}, true},
		"bare metal":   {"EC2 calls limits of the newer metal sizes shared", LimitOf("m7i.metal-24xl"), InstanceLimit{39, Shared, ""}, true},
		"metal number": {"its number counts like any other", LimitOf("m7i.metal-24xl"), InstanceLimit{31, Shared, ""}, false},
	} {
		if got := tc.table.Agrees(tc.ec2); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.why, got)
		}
	}
	if shared.String() == (InstanceLimit{27, Dedicated, Nitro}).String() {
		t.Error("what shares a limit is not told")
	}
}

// Who cannot know what is attached assumes more, never less: the limit is then
// below that of an instance with as many interfaces as its size has.
func TestMostOccupied(t *testing.T) {
	for instanceType, want := range map[string]int{
		"t3.nano": 24, "m5.large": 23, "m5.2xlarge": 22, "m5.12xlarge": 18, "m5.24xlarge": 10, "m5.metal": 14, "d3en.12xlarge": 1,
		"m7i.large": 30,
	} {
		if got := LimitOf(instanceType).Free(MostOccupied(instanceType)); got != want {
			t.Errorf("%s: %d volumes, want %d", instanceType, got, want)
		}
	}
}

func TestIsClaimDevice(t *testing.T) {
	for name, want := range map[string]bool{
		"xvdaa": true, "/dev/xvddx": true, "xvdba": true,
		"xvda": false, "/dev/xvda": false, "sda1": false, "/dev/sdb": false, "xvdb": false, "xvdea": false, "xvdaa1": false, "": false,
	} {
		if got := IsClaimDevice(name); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
}
