package ec2sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
)

// entry is one line of the journal: what one call changed. A line is written
// whole or, after a kill in the middle of the write, does not count.
type entry struct {
	Put  []stored `json:"put,omitempty"`
	Drop []string `json:"drop,omitempty"` // keys
}

// stored is one record under its key, "<kind>/<id>".
type stored struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// compactFactor: the journal is rewritten when it holds this many times more
// lines than records, and at least compactFloor lines.
const (
	compactFactor = 4
	compactFloor  = 1000
)

// journal keeps records in one file, changes appended, in a folder of which it
// holds the lock. The zero value keeps nothing.
type journal struct {
	dir   string
	lock  *os.File
	file  *os.File
	lines int
}

// openJournal locks dir and reads the records kept in it. Where no journal is
// there one is begun, unless vacant refuses.
func openJournal(dir string, vacant func() error) (*journal, map[string]json.RawMessage, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, nil, fmt.Errorf("state folder %s is used by another ec2sim: %w", dir, err)
	}
	j := &journal{dir: dir, lock: lock}
	records, err := j.read()
	if errors.Is(err, fs.ErrNotExist) {
		records = map[string]json.RawMessage{}
		if err = vacant(); err != nil {
			err = fmt.Errorf("state folder %s has no records (%s): %w", dir, journalName, err)
		}
	}
	if err == nil {
		err = j.rewrite(records)
	}
	if err != nil {
		return nil, nil, errors.Join(err, j.close())
	}
	return j, records, nil
}

// journalName is the journal's name in the state folder.
const journalName = "state.jsonl"

func (j *journal) path() string { return filepath.Join(j.dir, journalName) }

// read replays the journal. A last line without an end is what a killed
// process left; any other line that does not parse is damage. Where there is
// no journal the error is fs.ErrNotExist.
func (j *journal) read() (map[string]json.RawMessage, error) {
	records := map[string]json.RawMessage{}
	data, err := os.ReadFile(j.path())
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	r := bufio.NewReader(bytes.NewReader(data))
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("state: %s line %d: %w", j.path(), n, err)
		}
		for _, p := range e.Put {
			records[p.Key] = p.Value
		}
		for _, key := range e.Drop {
			delete(records, key)
		}
	}
}

// append writes one call's changes. When it returns the changes outlive the
// process (not the machine: nothing is synced to the disk, as in a test that
// would only cost time).
func (j *journal) append(e entry) error {
	if j.file == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	j.lines++
	return nil
}

// bloated tells that the journal is worth rewriting.
func (j *journal) bloated(records int) bool {
	return j.file != nil && j.lines > compactFloor && j.lines > compactFactor*records
}

// rewrite replaces the journal by one that holds just the records: written
// beside it, synced, renamed over it.
func (j *journal) rewrite(records map[string]json.RawMessage) error {
	keys := make([]string, 0, len(records))
	for k := range records {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var buf bytes.Buffer
	for _, k := range keys {
		line, err := json.Marshal(entry{Put: []stored{{Key: k, Value: records[k]}}})
		if err != nil {
			return fmt.Errorf("state: %w", err)
		}
		buf.Write(append(line, '\n'))
	}
	tmp, err := os.Create(j.path() + ".new")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	_, err = tmp.Write(buf.Bytes())
	if err == nil {
		err = tmp.Sync()
	}
	if err == nil {
		err = os.Rename(tmp.Name(), j.path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("state: %w", err), tmp.Close())
	}
	old := j.file
	j.file, j.lines = tmp, len(keys)
	if old != nil {
		return old.Close()
	}
	return nil
}

func (j *journal) close() error {
	var errs []error
	for _, f := range []*os.File{j.file, j.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	j.file, j.lock = nil, nil
	return errors.Join(errs...)
}
