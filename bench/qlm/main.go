package main

import (
	"flag"
	"fmt"
	"sync"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// bench holds what the parts have in common.
type bench struct {
	small       bool // the first cases of each part only
	rows, seeds int  // of the trace, of each point of the sweeps
	measured    int  // parts, without an error
	traces      func() (*fleet.Data, error)
}

// parts returns the parts in order: those named, then the sweeps.
func (b *bench) parts() []instrument.Part {
	list := []instrument.Part{
		{Name: "instance", Group: "instances", Title: "Instance model against real vLLM runs, 300 requests each", Measure: instances},
		{Name: "long", Group: "instances", Title: "CPU of long queues and of many instances", Measure: b.longQueues},
		{Name: "waits", Group: "instances", Title: "Waiting and completion times of drained queues, predicted", Measure: b.waits},
		{Name: "drift", Group: "instances", Title: "Waits predicted while a queue is served", Measure: b.drifts},
		{Name: "exact", Group: "search", Title: "Programs solved to the end, and the search (QLM, equations 6 to 13)", Measure: b.exact},
		{Name: "orders", Group: "search", Title: "Late requests of orders at mean times, and the bound", Measure: b.orders},
		{Name: "chance", Group: "search", Title: "Late requests under random times: mean (95th percentile) of 400 draws, and requests in groups that end late", Measure: b.chance},
		{Name: "replan", Group: "search", Title: "400,000 queued requests planned anew", Measure: b.replan},
		{Name: "operations", Group: "policies", Title: "What operations cost (QLM, figure 4)", Measure: operations},
		{Name: "fleet", Group: "policies", Title: "Policies on a fleet of four A100s", Measure: b.fleets},
		{Name: "priced", Group: "policies", Title: "Admission where all instances have one model", Measure: b.admissions},
		{Name: "sessions", Group: "policies", Title: "Conversations whose turns stay with their prefixes", Measure: b.sessions},
		{Name: "beside", Title: "Batches beside interactive requests on one fleet", Measure: b.measureBesideInteractive},
		{Name: "sizing", Title: "GPUs for 99 % of interactive and 99 % of batch requests in time", Measure: b.sizings},
	}
	for _, s := range sweeps() {
		list = append(list, instrument.Part{Name: s.name, Group: "sweeps", Title: s.source, Measure: func(r *instrument.Run, t *instrument.Table) error {
			return b.sweep(r, t, &s)
		}})
	}
	for i := range list {
		measure := list[i].Measure
		list[i].Measure = func(r *instrument.Run, t *instrument.Table) error {
			err := measure(r, t)
			if err == nil {
				b.measured++
			}
			return err
		}
	}
	others := len(list)
	return append(list, instrument.Part{Name: "time", Title: "CPU time of all parts", Measure: func(r *instrument.Run, _ *instrument.Table) error {
		if b.measured < others || b.small {
			return nil
		}
		r.AtMost(fmt.Sprintf("CPU time of all tables, %d rows and %d seeds of each point of the sweeps", b.rows, b.seeds), "this instrument", 30*60, "s of CPU", r.Spent()).Command = r.Command()
		return nil
	}})
}

// first returns the first n of a list of cases if only small ones are wanted, else all.
func first[T any](b *bench, n int, list []T) []T {
	if b.small {
		return list[:n]
	}
	return list
}

func (b *bench) instrument() *instrument.Instrument {
	return &instrument.Instrument{
		Name: "qlm", Keeps: true, Parts: b.parts(),
		Flags: func(f *flag.FlagSet) {
			f.BoolVar(&b.small, "small", false, "the first cases of each part only, with short runs")
			f.IntVar(&b.rows, "rows", 2000, "rows of the trace that the sweeps take")
			f.IntVar(&b.seeds, "seeds", 2, "seeds of each point of the sweeps")
		},
		Begin: func(r *instrument.Run) error {
			if b.rows < 1 || b.seeds < 1 {
				return instrument.Usagef("-rows %d, -seeds %d: expected at least 1", b.rows, b.seeds)
			}
			b.traces = sync.OnceValues(func() (*fleet.Data, error) { return fleet.Open(r.Data) })
			return nil
		},
	}
}

func main() { instrument.Main((&bench{}).instrument()) }
