package ec2sim

import (
	"maps"
	"slices"
)

// action is one action of the EC2 API as far as it is modelled.
type action struct {
	name string
	// handle validates, authorizes, honours a dry run and acts. It runs
	// under Sim.mu; what it changed is committed before the answer is sent.
	handle func(r *request) (stampable, *APIError)
	// params are the modelled parameters, indexes written as N, besides
	// Action, Version and DryRun. A name ending in ".N" stands for a list.
	params []string
	// filters are the modelled filter names; a name ending in ":*" stands
	// for all that begin so.
	filters []string
	// bucket is the throttling bucket of the action.
	bucket bucketSize
	// plainBucket: calls that ask for everything have a bucket of their own.
	plainBucket bool
}

// Parameter groups that many actions share.
var (
	paging      = []string{"MaxResults", "NextToken"}
	filterParam = []string{"Filter.N.Name", "Filter.N.Value.N"}
	tagSpec     = []string{"TagSpecification.N.ResourceType", "TagSpecification.N.Tag.N.Key", "TagSpecification.N.Tag.N.Value"}
	tagFilters  = []string{"tag:*", "tag-key"}
)

// actionTable is everything the simulator can do.
func actionTable() map[string]*action {
	table := map[string]*action{}
	for _, group := range [][]action{zoneActions(), instanceActions(), volumeActions(), attachActions(),
		copyActions(),
		snapshotActions(), fastRestoreActions(), lockActions(), modifyActions(), statusActions(), tagActions()} {
		for _, a := range group {
			table[a.name] = &a
		}
	}
	return table
}

func params(groups ...[]string) []string { return slices.Concat(groups...) }

// knows tells whether a parameter is modelled.
func (a *action) knows(param string) bool {
	switch param {
	case "Action", "Version", "DryRun":
		return true
	}
	return slices.Contains(a.params, pattern(param))
}

// knowsFilter tells whether a filter is modelled.
func (a *action) knowsFilter(name string) bool {
	return slices.ContainsFunc(a.filters, func(f string) bool { return f == name || prefixPattern(f, name) })
}

// ActionNames are the actions that are modelled, in order.
func (s *Sim) ActionNames() []string { return slices.Sorted(maps.Keys(s.actions)) }
