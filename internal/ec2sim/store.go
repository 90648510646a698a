package ec2sim

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// store holds the records and remembers which of them the running call
// changed, until commit writes those to the journal. The caller holds Sim.mu.
type store struct {
	volumes   map[string]*Volume
	snapshots map[string]*Snapshot
	instances map[string]*Instance
	tokens    map[string]*clientToken
	dirty     map[string]any // key to record, nil when it is gone
	journal   *journal
	history   *history // nil unless reads lag
}

const (
	kindVolume   = "volume/"
	kindSnapshot = "snapshot/"
	kindInstance = "instance/"
	kindToken    = "token/"
)

func newStore() *store {
	return &store{
		volumes:   map[string]*Volume{},
		snapshots: map[string]*Snapshot{},
		instances: map[string]*Instance{},
		tokens:    map[string]*clientToken{},
		dirty:     map[string]any{},
		journal:   &journal{},
	}
}

// openStore takes up the records kept in dir, nothing if dir is empty. Where
// there are none yet, vacant has to allow a beginning.
func openStore(dir string, vacant func() error) (*store, error) {
	st := newStore()
	if dir == "" {
		return st, vacant()
	}
	j, records, err := openJournal(dir, vacant)
	if err != nil {
		return nil, err
	}
	st.journal = j
	for key, value := range records {
		if err := st.load(key, value); err != nil {
			_ = j.close()
			return nil, fmt.Errorf("state: record %s: %w", key, err)
		}
	}
	return st, nil
}

func (st *store) load(key string, value json.RawMessage) error {
	switch {
	case strings.HasPrefix(key, kindVolume):
		return loadInto(st.volumes, key[len(kindVolume):], value)
	case strings.HasPrefix(key, kindSnapshot):
		return loadInto(st.snapshots, key[len(kindSnapshot):], value)
	case strings.HasPrefix(key, kindInstance):
		return loadInto(st.instances, key[len(kindInstance):], value)
	case strings.HasPrefix(key, kindToken):
		return loadInto(st.tokens, key[len(kindToken):], value)
	}
	return fmt.Errorf("unknown kind; the folder was written by another version")
}

func loadInto[T any](m map[string]*T, id string, value json.RawMessage) error {
	rec := new(T)
	if err := json.Unmarshal(value, rec); err != nil {
		return err
	}
	m[id] = rec
	return nil
}

func (st *store) putVolume(v *Volume) {
	st.volumes[v.ID] = v
	st.dirty[kindVolume+v.ID] = v
}

func (st *store) dropVolume(id string) {
	delete(st.volumes, id)
	st.dirty[kindVolume+id] = nil
}

func (st *store) putSnapshot(sn *Snapshot) {
	st.snapshots[sn.ID] = sn
	st.dirty[kindSnapshot+sn.ID] = sn
}

func (st *store) dropSnapshot(id string) {
	delete(st.snapshots, id)
	st.dirty[kindSnapshot+id] = nil
}

func (st *store) putInstance(i *Instance) {
	st.instances[i.ID] = i
	st.dirty[kindInstance+i.ID] = i
}

func (st *store) dropInstance(id string) {
	delete(st.instances, id)
	st.dirty[kindInstance+id] = nil
}

func (st *store) putToken(t *clientToken) {
	st.tokens[t.ID] = t
	st.dirty[kindToken+t.ID] = t
}

func (st *store) dropToken(id string) {
	delete(st.tokens, id)
	st.dirty[kindToken+id] = nil
}

// commit makes what changed since the last commit outlive the process.
func (st *store) commit() error {
	if len(st.dirty) == 0 {
		return nil
	}
	var e entry
	for key, rec := range st.dirty {
		if rec == nil {
			e.Drop = append(e.Drop, key)
			continue
		}
		value, err := json.Marshal(rec)
		if err != nil {
			return fmt.Errorf("state: record %s: %w", key, err)
		}
		e.Put = append(e.Put, stored{Key: key, Value: value})
	}
	sort.Slice(e.Put, func(i, j int) bool { return e.Put[i].Key < e.Put[j].Key })
	sort.Strings(e.Drop)
	if err := st.journal.append(e); err != nil {
		return err
	}
	st.history.note(st.dirty)
	clear(st.dirty)
	if st.journal.bloated(len(st.volumes) + len(st.snapshots) + len(st.instances) + len(st.tokens)) {
		return st.compact()
	}
	return nil
}

func (st *store) compact() error {
	records := map[string]json.RawMessage{}
	for id, v := range st.volumes {
		if err := marshalInto(records, kindVolume+id, v); err != nil {
			return err
		}
	}
	for id, sn := range st.snapshots {
		if err := marshalInto(records, kindSnapshot+id, sn); err != nil {
			return err
		}
	}
	for id, i := range st.instances {
		if err := marshalInto(records, kindInstance+id, i); err != nil {
			return err
		}
	}
	for id, t := range st.tokens {
		if err := marshalInto(records, kindToken+id, t); err != nil {
			return err
		}
	}
	return st.journal.rewrite(records)
}

func marshalInto(records map[string]json.RawMessage, key string, rec any) error {
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("state: record %s: %w", key, err)
	}
	records[key] = value
	return nil
}
