package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/imds"
	"github.com/holdfast-dev/holdfast/internal/kube"
)

// Where a node process may learn of its instance.
const (
	fromIMDS       = "imds"
	fromKubernetes = "kubernetes"
)

// parseSources reads --metadata-sources.
func parseSources(text string) ([]string, error) {
	sources := strings.Split(text, ",")
	for i, s := range sources {
		if s != fromIMDS && s != fromKubernetes || slices.Contains(sources[:i], s) {
			return nil, fmt.Errorf("--metadata-sources is %q: use imds, kubernetes, or both with a comma between, the first to be asked first", text)
		}
	}
	return sources, nil
}

// source is one place to ask.
type source struct {
	name string
	driver.InstanceMetadata
}

// newMetadata makes the sources. Without an API server or the node's name there
// is no Node to read, which matters where it is the only source.
func newMetadata(names []string, nodeName string, file memory, log logr.Logger) (*metadata, error) {
	m := &metadata{log: log, memory: file}
	for _, name := range names {
		if name == fromIMDS {
			m.sources = append(m.sources, source{name, imds.New(imds.Options{})})
			continue
		}
		client, err := kube.InCluster()
		if err == nil && nodeName == "" {
			err = fmt.Errorf("the node's name is unknown: set --node-name, or %s in the environment", nodeNameVariable)
		}
		switch {
		case err == nil:
			m.sources = append(m.sources, source{name, kube.NodeMetadata{Client: client, NodeName: nodeName}})
		case len(names) == 1:
			return nil, fmt.Errorf("--metadata-sources=%s: %w", fromKubernetes, err)
		default:
			log.Info("the Node object is not asked about the instance", "reason", err.Error())
		}
	}
	return m, nil
}

// metadata asks sources in their order. What an instance is, any of them may
// tell. What takes places of its attachment limit is told by the source that
// answered before, or one that is asked before that: a later one knows less and
// would change a limit that has not changed.
type metadata struct {
	sources []source
	log     logr.Logger
	// memory is what a process before this one knew.
	memory memory

	mu sync.Mutex
	// last is 1 + the index of the source that told of the occupancy last.
	last int
}

// Instance implements driver.InstanceMetadata.
func (m *metadata) Instance(ctx context.Context) (imds.Instance, error) {
	var failed []error
	for _, s := range m.sources {
		i, err := s.Instance(ctx)
		if err == nil {
			return i, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
	}
	return imds.Instance{}, errors.Join(failed...)
}

// Occupancy implements driver.InstanceMetadata.
func (m *metadata) Occupancy(ctx context.Context) (ebs.Occupancy, error) {
	m.mu.Lock()
	last := m.last
	m.mu.Unlock()
	if last == 0 {
		last = len(m.sources)
	}
	var failed []error
	for n, s := range m.sources[:last] {
		o, err := s.Occupancy(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		if o, err = m.remember(ctx, s, o); err != nil {
			return ebs.Occupancy{}, err
		}
		if m.answered(n+1) && s.name == fromKubernetes {
			m.log.Info("attachment limit computed with the most that an instance of this size can have attached: --volume-attach-limit says better",
				"networkInterfaces", o.NetworkInterfaces, "reservedVolumes", o.ReservedVolumes)
		}
		return o, nil
	}
	return ebs.Occupancy{}, errors.Join(failed...)
}

// remember keeps what the metadata service tells, for a process that starts
// while it is silent, and holds what is assumed instead to what was known.
func (m *metadata) remember(ctx context.Context, s source, o ebs.Occupancy) (ebs.Occupancy, error) {
	i, err := s.Instance(ctx)
	if err != nil {
		return ebs.Occupancy{}, fmt.Errorf("%s: %w", s.name, err)
	}
	if s.name == fromKubernetes {
		known, err := m.memory.atLeast(o, i.ID)
		if err != nil { // better a node that guesses than one without volumes
			m.log.Error(err, "The attachment limit is computed without what was known before", "file", string(m.memory))
		}
		return known, nil
	}
	if err := m.memory.keep(remembered{Instance: i.ID, Occupancy: o}); err != nil {
		m.log.Error(err, "A driver that starts while the metadata service is silent will have to guess")
	}
	return o, nil
}

// answered notes which source told of the occupancy, and says whether it is
// another one than before.
func (m *metadata) answered(source int) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = m.last != source
	m.last = source
	return changed
}
