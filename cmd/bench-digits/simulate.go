package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// shown is a run in virtual time.
type shown struct {
	p50, p95 time.Duration
	switches int64
	batches  int64
}

// simulate repeats a run: the same requests at the moments when they were sent,
// with the service times that were recorded. aligned puts these at their
// moments; otherwise they come in the order of recording.
func (f *family) simulate(ctx context.Context, plan *formats.Plan, run *served, aligned bool) (*shown, error) {
	tables, err := policy.Compile(plan)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	var list []arrivals.Request
	var rows []int
	for _, a := range run.answers {
		list = append(list, arrivals.Request{At: a.arrived})
		rows = append(rows, a.row)
	}
	f.rowsAs(tables, rows)
	pol, err := policies.New(plan.Policy, tables)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	recorded := sim.Samples{Runs: run.service.Runs}
	if aligned {
		recorded.Starts = run.service.Starts
	}
	service, err := sim.Empirical(tables, recorded, false, 1)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	var took []time.Duration
	counted := run.answers[run.lead].arrived
	res, err := sim.Run(ctx, sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(list), Service: service, Ingress: run.service.Ingress, Egress: run.service.Egress,
		NoReport: true, Completed: func(arrived, answered time.Duration) {
			if arrived >= counted {
				took = append(took, answered-arrived)
			}
		}})
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	slices.Sort(took)
	return &shown{p50: report.Percentile(took, .5), p95: report.Percentile(took, .95), switches: res.Gears.Switches, batches: res.Dispatched}, nil
}
