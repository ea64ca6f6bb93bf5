package main

import (
	"fmt"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
	"inferplan/policy/vqueue"
)

// longs are runs of one instance with a long queue, and of many with none. limit is in milliseconds of CPU a request.
var longs = []struct {
	order string
	limit float64
	fleet.Long
}{
	{"groups of 4 batches", 0.5, fleet.Long{Instances: 1, Requests: 20000, Load: 20, Seed: 1}},
	{"groups of 1 batches", 0.5, fleet.Long{Instances: 1, Requests: 20000, Load: 20, Delta: 1, Seed: 1}},
	{"first come first served", 0.5, fleet.Long{Instances: 1, Requests: 20000, Load: 20, Rule: vqueue.FCFS, Seed: 1}},
	{"earliest deadline first", 0.5, fleet.Long{Instances: 1, Requests: 20000, Load: 20, Rule: vqueue.EDF, Seed: 1}},
	{"groups of 4 batches", 0.05, fleet.Long{Instances: 1000, Requests: 60000, Load: 1, Seed: 1}},
}

// longQueues shows what simulation takes a request where queues are long or instances many.
func (b *bench) longQueues(r *instrument.Run, t *instrument.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"instances", "requests", "load", "order", "CPU ms a request", "asked", "re-plans", "positions", "in time"}
	for i := range longs {
		x := longs[i]
		if b.small {
			x.Requests /= 10
		}
		out, err := instrument.Measured(r, fmt.Sprintf("long/%+v", x.Long), func() (*fleet.Outcome, error) { return d.MeasureLong(r.Ctx, &x.Long) })
		if err != nil {
			return err
		}
		each := 1000 * out.CPU / float64(x.Requests)
		r.AtMost(fmt.Sprintf("CPU a request of a simulated run, %d requests at load %g on %d instances of Vicuna-13B, %s", x.Requests, x.Load, x.Instances, x.order),
			"the policy vqueue, lengths of Azure's conversations of 2023, Poisson arrivals, seed 1", x.limit, "ms of CPU", each).Note = fmt.Sprintf("%d requests in time", out.InTime)
		t.Add(x.Instances, x.Requests, x.Load, x.order, fmt.Sprintf("%.3f", each), x.limit, out.Searches, fmt.Sprintf("%.3g", float64(out.Searched)), out.InTime)
	}
	t.Note("Answers within 30, 120 and 300 s (shares .2, .4, .4). Re-plans may be as long as `plan simulate` lets them be. At load 20 nearly all requests wait at once.")
	return nil
}
