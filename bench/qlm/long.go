package main

import (
	"fmt"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/table"
	"inferplan/policy/vqueue"
)

// longs are runs of one instance with a long queue, and of many with none. Limit is the
// most milliseconds of CPU a request that are asked; 0 if nothing is asked.
var longs = []struct {
	fleet.Long
	limit float64
}{
	{fleet.Long{Instances: 1, Requests: 1000, Load: 20, Seed: 1}, 0},
	{fleet.Long{Instances: 1, Requests: 4800, Load: 20, Seed: 1}, 0},
	{fleet.Long{Instances: 1, Requests: 20000, Load: 20, Seed: 1}, 0.5},
	{fleet.Long{Instances: 1, Requests: 20000, Load: 20, Delta: 1, Seed: 1}, 0.5},
	{fleet.Long{Instances: 1, Requests: 20000, Load: 20, Rule: vqueue.FCFS, Seed: 1}, 0.5},
	{fleet.Long{Instances: 1, Requests: 20000, Load: 20, Rule: vqueue.EDF, Seed: 1}, 0.5},
	{fleet.Long{Instances: 4, Requests: 3000, Load: 2, Delta: 1, Seed: 1}, 0},
	{fleet.Long{Instances: 100, Requests: 20000, Load: 1, Seed: 1}, 0},
	{fleet.Long{Instances: 1000, Requests: 60000, Load: 1, Seed: 1}, 0.05},
}

// orderOf names the order of the queues.
func orderOf(x *fleet.Long) string {
	switch {
	case x.Rule == vqueue.FCFS:
		return "first come first served"
	case x.Rule == vqueue.EDF:
		return "earliest deadline first"
	case x.Delta == 0:
		return "groups of 4 batches"
	}
	return fmt.Sprintf("groups of %g batches", x.Delta)
}

// longQueues shows what simulation takes a request where queues are long or instances
// many.
func longQueues(b *bench, t *table.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"instances", "requests", "load", "order", "CPU ms a request", "asked", "re-plans", "positions", "in time"}
	for i := range longs {
		x := longs[i].Long
		if b.small {
			x.Requests /= 10
		}
		r, err := measured(b.keep, fmt.Sprintf("long/%+v", x), func() (*fleet.Spent, error) { return d.MeasureLong(b.ctx, &x) })
		if err != nil {
			return err
		}
		each, asked, order := 1000*r.CPU/float64(x.Requests), "", orderOf(&x)
		if limit := longs[i].limit; limit > 0 {
			asked = fmt.Sprintf("%g", limit)
			b.figures = append(b.figures, figures.Figure{
				Claim:  fmt.Sprintf("CPU a request of a simulated run, %d requests at load %g on %d instances of Vicuna-13B, %s", x.Requests, x.Load, x.Instances, order),
				Source: "the policy vqueue, lengths of Azure's conversations of 2023, Poisson arrivals, seed 1", Asked: "at most " + asked, Measured: each, Unit: "ms of CPU",
				Holds: figures.If(each <= limit), Note: fmt.Sprintf("%d requests in time", r.InTime),
			})
		}
		t.Add(x.Instances, x.Requests, fmt.Sprintf("%g", x.Load), order, fmt.Sprintf("%.3f", each), asked, r.Searches, fmt.Sprintf("%.3g", float64(r.Searched)), r.InTime)
	}
	t.Note("Answers within 30, 120 and 300 s (shares .2, .4, .4). Re-plans may be as long as `plan simulate` lets them be. At load 20 nearly all requests wait at once.")
	return nil
}
