package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// remembered is what the metadata service last told of an instance's
// attachments, kept beside the driver's socket on the node: a process that
// starts while the service is silent must not count more places than the one
// before it did.
type remembered struct {
	Instance  ebs.InstanceID `json:"instance"`
	Occupancy ebs.Occupancy  `json:"occupancy"`
}

// memory is the file of what is remembered; empty: nothing is.
type memory string

// atLeast raises an assumption to what is remembered of the same instance.
func (m memory) atLeast(assumed ebs.Occupancy, of ebs.InstanceID) (ebs.Occupancy, error) {
	if m == "" {
		return assumed, nil
	}
	raw, err := os.ReadFile(string(m))
	if errors.Is(err, fs.ErrNotExist) {
		return assumed, nil
	}
	var last remembered
	if err == nil {
		err = json.Unmarshal(raw, &last)
	}
	if err != nil {
		return assumed, fmt.Errorf("read what was known of the instance's attachments: %w", err)
	}
	if last.Instance != of { // the node's disk is another instance's, as after a copy
		return assumed, nil
	}
	assumed.ReservedVolumes = max(assumed.ReservedVolumes, last.Occupancy.ReservedVolumes)
	assumed.NetworkInterfaces = max(assumed.NetworkInterfaces, last.Occupancy.NetworkInterfaces)
	return assumed, nil
}

// keep remembers what the metadata service told, whole or not at all.
func (m memory) keep(told remembered) error {
	if m == "" {
		return nil
	}
	raw, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("write what is known of the instance's attachments: %w", err)
	}
	if old, err := os.ReadFile(string(m)); err == nil && string(old) == string(raw) {
		return nil
	}
	part, err := os.CreateTemp(filepath.Dir(string(m)), filepath.Base(string(m))+".*")
	if err != nil {
		return fmt.Errorf("write what is known of the instance's attachments: %w", err)
	}
	_, err = part.Write(raw)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), string(m))
	}
	if err != nil {
		os.Remove(part.Name())
		return fmt.Errorf("write what is known of the instance's attachments: %w", err)
	}
	return nil
}
