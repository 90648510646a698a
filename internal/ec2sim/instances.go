package ec2sim

import (
	"maps"
	"slices"
	"strings"
	"time"
)

func instanceActions() []action {
	return []action{{
		name:   "DescribeInstances",
		handle: describeInstances,
		params: params([]string{"InstanceId.N"}, filterParam, paging),
		filters: params(tagFilters, []string{"availability-zone", "availability-zone-id", "block-device-mapping.volume-id",
			"instance-id", "instance-state-name", "instance-type"}),
		bucket: bucketDescribe, plainBucket: true,
	}, {
		name:    "DescribeInstanceTypes",
		handle:  describeInstanceTypes,
		params:  params([]string{"InstanceType.N"}, filterParam, paging),
		filters: []string{"instance-type", "hypervisor", "ebs-info.nvme-support"},
		bucket:  bucketDescribe,
	}}
}

type ebsMappingXML struct {
	VolumeID            string `xml:"volumeId"`
	Status              string `xml:"status"`
	AttachTime          string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
	CardIndex           int32  `xml:"ebsCardIndex"`
}

type mappingXML struct {
	Device string        `xml:"deviceName"`
	EBS    ebsMappingXML `xml:"ebs"`
}

type interfaceXML struct {
	ID string `xml:"networkInterfaceId"`
}

type instanceXML struct {
	ID         string            `xml:"instanceId"`
	ImageID    string            `xml:"imageId"`
	StateCode  int               `xml:"instanceState>code"`
	StateName  string            `xml:"instanceState>name"`
	PrivateIP  *string           `xml:"privateIpAddress"`
	Type       string            `xml:"instanceType"`
	LaunchTime string            `xml:"launchTime"`
	Zone       string            `xml:"placement>availabilityZone"`
	ZoneID     string            `xml:"placement>availabilityZoneId"`
	RootDevice string            `xml:"rootDeviceName"`
	RootType   string            `xml:"rootDeviceType"`
	Mappings   set[mappingXML]   `xml:"blockDeviceMapping"`
	Interfaces set[interfaceXML] `xml:"networkInterfaceSet"`
	Hypervisor string            `xml:"hypervisor"`
	Tags       set[tagXML]       `xml:"tagSet"`
}

type reservationXML struct {
	ID        string           `xml:"reservationId"`
	OwnerID   string           `xml:"ownerId"`
	Instances set[instanceXML] `xml:"instancesSet"`
}

type instancesAnswer struct {
	answer
	Reservations set[reservationXML] `xml:"reservationSet"`
	NextToken    *string             `xml:"nextToken"`
}

// instanceStateCodes: the low byte of InstanceState.Code.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
var instanceStateCodes = map[string]int{instanceRunning: 16, instanceTerminated: 48, instanceStopped: 80}

const (
	rootDevice = "/dev/xvda"
	// hypervisorOfInstances is what DescribeInstances shows, on Nitro too.
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Instance.html
	hypervisorOfInstances = "xen"
)

func (s *Sim) instanceXML(i *Instance) instanceXML {
	x := instanceXML{
		ID: i.ID, ImageID: "ami-00000000000000000", StateCode: instanceStateCodes[i.State], StateName: i.State,
		PrivateIP: ptr(i.address()), Type: i.Type, LaunchTime: wireTime(i.Launched), Zone: i.Zone, ZoneID: s.zoneID(i.Zone),
		RootDevice: rootDevice, RootType: "ebs", Hypervisor: hypervisorOfInstances, Tags: tagsXML(i.Tags),
	}
	for n := range i.enis() {
		x.Interfaces.Items = append(x.Interfaces.Items, interfaceXML{i.interfaceID(n)})
	}
	for _, v := range s.attachedTo(i.ID) {
		a := v.attachment(i.ID)
		x.Mappings.Items = append(x.Mappings.Items, mappingXML{a.Device,
			ebsMappingXML{v.ID, a.State, wireTime(a.Since), a.DeleteOnTermination, a.CardIndex}})
	}
	return x
}

// attachedTo are the volumes of an instance in order of their device names.
func (s *Sim) attachedTo(instanceID string) []*Volume {
	var out []*Volume
	for _, v := range s.store.volumes {
		if v.attachment(instanceID) != nil {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *Volume) int {
		return strings.Compare(a.attachment(instanceID).Device, b.attachment(instanceID).Device)
	})
	return out
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html
func describeInstances(r *request) (stampable, *APIError) {
	ids := r.list("InstanceId")
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	instances, err := r.sim.wantedInstances(ids)
	if err != nil {
		return nil, err
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	instances = slices.DeleteFunc(instances, func(i *Instance) bool { return !matchAll(filters, r.sim.instanceFact(i)) })
	instances, next, err := page(r, instances, func(i *Instance) string { return i.ID }, 1000, ids, "instancesSet")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &instancesAnswer{NextToken: next}
	for _, i := range instances {
		ans.Reservations.Items = append(ans.Reservations.Items, reservationXML{
			ID: "r-" + strings.TrimPrefix(i.ID, "i-"), OwnerID: r.sim.cfg.Account,
			Instances: set[instanceXML]{[]instanceXML{r.sim.instanceXML(i)}},
		})
	}
	return ans, nil
}

func (s *Sim) instanceFact(i *Instance) func(name string) []string {
	return func(name string) []string {
		switch name {
		case "availability-zone":
			return []string{i.Zone}
		case "availability-zone-id":
			return []string{s.zoneID(i.Zone)}
		case "block-device-mapping.volume-id":
			var ids []string
			for _, v := range s.attachedTo(i.ID) {
				ids = append(ids, v.ID)
			}
			return ids
		case "instance-id":
			return []string{i.ID}
		case "instance-state-name":
			return []string{i.State}
		case "instance-type":
			return []string{i.Type}
		}
		return tagFact(i.Tags, name)
	}
}

func (s *Sim) wantedInstances(ids []string) ([]*Instance, *APIError) {
	if len(ids) == 0 {
		return slices.Collect(maps.Values(s.store.instances)), nil
	}
	if err := instanceIDs.checkAll(ids); err != nil {
		return nil, err
	}
	var out []*Instance
	var missing []string
	for _, id := range ids {
		i := s.store.instances[id]
		if i == nil {
			missing = append(missing, id)
		} else if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	if missing != nil {
		return nil, instanceNotFound(missing...)
	}
	return out, nil
}

func (s *Sim) instance(id string) (*Instance, *APIError) {
	if err := instanceIDs.check(id); err != nil {
		return nil, err
	}
	i := s.store.instances[id]
	if i == nil {
		return nil, instanceNotFound(id)
	}
	return i, nil
}

// address is the private address: the first source.
func (i *Instance) address() string {
	if len(i.Sources) == 0 {
		return ""
	}
	addr, _, _ := strings.Cut(i.Sources[0], "/")
	return addr
}

// interfaceID makes a stable id for each network interface.
func (i *Instance) interfaceID(n int) string {
	digits := strings.TrimPrefix(i.ID, "i-")
	return "eni-" + string("0123456789abcdef"[n%16]) + digits[1:]
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
