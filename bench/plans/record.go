package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"inferplan/cputime"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// record holds the figures of one solve.
type record struct {
	Set     string   `json:"set"`
	Case    string   `json:"case"`
	None    bool     `json:"none,omitempty"` // there is no plan
	Value   float64  `json:"value"`
	Bound   *float64 `json:"bound,omitempty"`
	Costs   bool     `json:"costs,omitempty"` // less is better
	Proved  bool     `json:"proved,omitempty"`
	Errors  []string `json:"errors,omitempty"` // what plan check finds wrong
	SHA256  string   `json:"sha256"`           // of the plan, or of why there is none
	Seconds float64  `json:"cpu_s"`
}

// costs are the objectives of which less is better.
var costs = map[string]bool{"cost": true, "power": true, "gpus": true, "latency": true}

// solve plans a case and checks the plan. CPU time is that of the whole process: nothing else may run in it.
func solve(ctx context.Context, c *planCase) (*record, error) {
	r := &record{Set: c.set, Case: c.Name}
	before := cputime.Used()
	res, err := planner.Solve(ctx, c.Inputs, planner.Options{Values: c.Values, SkipNearest: true}, highs.Solver{}, nil)
	r.Seconds = (cputime.Used() - before).Seconds()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if none, ok := errors.AsType[*planner.InfeasibleError](err); ok {
		r.None, r.SHA256 = true, fmt.Sprintf("%x", sha256.Sum256([]byte(none.Error())))
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	text, err := document.Marshal(res.Plan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	objective := &res.Plan.Objective
	r.Value, r.Bound, r.Costs, r.Proved = objective.Value, objective.Bound, costs[objective.Name], res.Plan.StoppedBy == "proved"
	r.SHA256 = fmt.Sprintf("%x", sha256.Sum256(text))
	for _, f := range check.Recompute(res.Plan, c.Inputs.Profile, c.Inputs.Cluster, c.Inputs.Workload) {
		if f.Severity == check.Error {
			r.Errors = append(r.Errors, f.Path+": "+f.Message)
		}
	}
	return r, nil
}

// readRecords reads what an earlier run kept.
func readRecords(path string) (map[string]record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what was kept (-against): %w", err)
	}
	var list []record
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading what was kept: %s: %w", path, err)
	}
	records := map[string]record{}
	for _, r := range list {
		records[r.Case] = r
	}
	return records, nil
}

// keepRecords writes records for a later run.
func keepRecords(path string, list []record) error {
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return fmt.Errorf("keeping records: %w", err)
	}
	_, err = document.WriteBytes(path, append(data, '\n'), document.Force(true))
	return err
}
