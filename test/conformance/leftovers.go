package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// deletionTime is how long what the last spec deleted may stay in EC2: its claims
// are gone, their volumes are detached and deleted behind them.
const deletionTime = time.Minute

// inEC2 are the ids of the volumes and snapshots that the simulated EC2 has.
func inEC2(ctx context.Context, endpoint string) ([]string, error) {
	var state ec2sim.State
	if err := ask(ctx, endpoint+"/_sim/state", &state); err != nil {
		return nil, err
	}
	var ids []string
	for _, v := range state.Volumes {
		ids = append(ids, v.ID)
	}
	for _, s := range state.Snapshots {
		ids = append(ids, s.ID)
	}
	return ids, nil
}

// leftInEC2 are sentences about what the run has left behind, or asked of EC2 and
// the simulator does not model: specs that met such an answer have shown less than
// it seems. before is what was there when it began; what goes within that time is no
// leftover.
func leftInEC2(ctx context.Context, endpoint string, before []string, within time.Duration) ([]string, error) {
	var problems []string
	err := testenv.Eventually(ctx, within, "nothing left in EC2", func(ctx context.Context) (string, error) {
		now, err := inEC2(ctx, endpoint)
		now = slices.DeleteFunc(now, func(id string) bool { return slices.Contains(before, id) })
		return strings.Join(now, " "), err
	})
	if err != nil {
		problems = append(problems, err.Error())
	}
	var unmodelled []ec2sim.UnmodelledCount
	if err := ask(ctx, endpoint+"/_sim/unmodelled", &unmodelled); err != nil {
		return nil, err
	}
	for _, u := range unmodelled {
		problems = append(problems, fmt.Sprintf("asked of EC2 and not modelled by the simulator: %+v", u))
	}
	return problems, nil
}

// ask gets JSON from the simulator's control API.
func ask(ctx context.Context, url string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the simulator: %s: %s", url, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask the simulator: %s: %w", url, err)
	}
	return nil
}
