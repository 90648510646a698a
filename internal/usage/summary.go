package usage

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/types"
)

// podStats is what is read of a Pod in kubelet's summary.
// https://pkg.go.dev/k8s.io/kubelet/pkg/apis/stats/v1alpha1#PodStats
type podStats struct {
	Volumes []struct {
		Claim *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"pvcRef"`
		Capacity   *float64 `json:"capacityBytes"`
		Available  *float64 `json:"availableBytes"`
		Inodes     *float64 `json:"inodes"`
		InodesFree *float64 `json:"inodesFree"`
	} `json:"volume"`
}

// readSummary reads kubelet's /stats/summary Pod by Pod.
func readSummary(body io.Reader) (found, error) {
	f := found{}
	d := json.NewDecoder(body)
	err := object(d, func(key string) error {
		if key != "pods" {
			return skip(d)
		}
		return array(d, func() error {
			var pod podStats
			if err := d.Decode(&pod); err != nil {
				return err
			}
			f.addPod(pod)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the summary: %w", err)
	}
	return f, nil
}

func (f found) addPod(pod podStats) {
	for _, v := range pod.Volumes {
		if v.Claim == nil {
			continue
		}
		claim := types.NamespacedName{Namespace: v.Claim.Namespace, Name: v.Claim.Name}
		for series, value := range map[string]*float64{capacityBytes: v.Capacity, availableBytes: v.Available, inodes: v.Inodes, inodesFree: v.InodesFree} {
			if value != nil {
				f.add(claim, series, *value)
			}
		}
	}
}

// object goes through the keys of a JSON object; each has to read its value.
func object(d *json.Decoder, each func(key string) error) error {
	if err := delimiter(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if err := each(name); err != nil {
			return err
		}
	}
	return delimiter(d, '}')
}

// array goes through the elements of a JSON array; null is an empty one.
func array(d *json.Decoder, each func() error) error {
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("found %v, want a list", begin)
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	return delimiter(d, ']')
}

func delimiter(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("found %v, want %v", got, want)
	}
	return nil
}

// skip leaves a value out, whatever it holds.
func skip(d *json.Decoder) error {
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
