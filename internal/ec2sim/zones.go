package ec2sim

func zoneActions() []action {
	return []action{{
		name:    "DescribeAvailabilityZones",
		handle:  describeZones,
		params:  params([]string{"ZoneName.N", "ZoneId.N", "AllAvailabilityZones"}, filterParam),
		filters: []string{"zone-name", "zone-id", "region-name", "state", "zone-type", "opt-in-status"},
		bucket:  bucketDescribe,
	}}
}

type zoneXML struct {
	Name       string `xml:"zoneName"`
	ID         string `xml:"zoneId"`
	State      string `xml:"zoneState"`
	Region     string `xml:"regionName"`
	Type       string `xml:"zoneType"`
	OptIn      string `xml:"optInStatus"`
	Group      string `xml:"groupName"`
	BorderName string `xml:"networkBorderGroup"`
}

type zonesAnswer struct {
	answer
	Zones set[zoneXML] `xml:"availabilityZoneInfo"`
}

func (z zoneXML) fact(name string) []string {
	return map[string][]string{
		"zone-name":     {z.Name},
		"zone-id":       {z.ID},
		"region-name":   {z.Region},
		"state":         {z.State},
		"zone-type":     {z.Type},
		"opt-in-status": {z.OptIn},
	}[name]
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeAvailabilityZones.html
func describeZones(r *request) (stampable, *APIError) {
	r.boolean("AllAvailabilityZones") // there are no zones that need opting in
	names, ids := r.list("ZoneName"), r.list("ZoneId")
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	wanted, err := r.sim.wantedZones(names, ids)
	if err != nil {
		return nil, err
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &zonesAnswer{}
	region := r.sim.cfg.Region
	for _, z := range wanted {
		x := zoneXML{z.name, z.id, "available", region, "availability-zone", "opt-in-not-required", region + "-zg-1", region}
		if matchAll(filters, x.fact) {
			ans.Zones.Items = append(ans.Zones.Items, x)
		}
	}
	return ans, nil
}

// wantedZones are the zones of those names and ids; all if none is given.
func (s *Sim) wantedZones(names, ids []string) ([]zone, *APIError) {
	if len(names)+len(ids) == 0 {
		return s.zones, nil
	}
	var out []zone
	for _, n := range names {
		z, err := s.findZone(n, "")
		if err != nil {
			return nil, err
		}
		out = append(out, z)
	}
	for _, id := range ids {
		z, err := s.findZone("", id)
		if err != nil {
			return nil, err
		}
		out = append(out, z)
	}
	return out, nil
}

// findZone is the zone of that name or, without a name, of that id.
func (s *Sim) findZone(name, id string) (zone, *APIError) {
	for _, z := range s.zones {
		if name != "" && z.name == name || name == "" && z.id == id {
			return z, nil
		}
	}
	return zone{}, refuse("InvalidZone.NotFound", "The zone '%s' does not exist.", name+id)
}
