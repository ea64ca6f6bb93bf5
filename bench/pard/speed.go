package main

import (
	"context"
	"fmt"

	"inferplan/bench/figures"
	"inferplan/cputime"
	"inferplan/sim/kernel"
)

// speed measures the case of 1.2 million requests alone, and a heap that does
// nothing but take and put the same number of events, in turns.
func (s *sheet) speed(ctx context.Context, b *bench) error {
	var j *job
	for _, p := range b.pipes {
		for _, t := range b.traces {
			if p.name == "lv" && t.name == "tweet" {
				j = b.job(p, t, false)
			}
		}
	}
	run, bare := 1e9, 1e9
	var out outcome
	for range 3 {
		var err error
		if out, err = j.measure(ctx, spec("feas", "tweet"), 1); err != nil {
			return err
		}
		run = min(run, out.CPU)
		bare = min(bare, heapLoop(int(out.events())))
	}
	s.of("speed")
	rate := out.events() / run
	s.add(figures.Figure{Claim: fmt.Sprintf("CPU time of a run of %d requests under feas, least of 3", out.Requests), Source: "simulator", Asked: "<= 2", Measured: run, Unit: "s", Holds: figures.If(run <= 2)})
	s.add(figures.Figure{Claim: "events (module arrivals and ends of batches) per CPU-second", Source: "simulator", Asked: ">= 5e6", Measured: rate, Unit: "1/s", Holds: figures.If(rate >= 5e6)})
	s.add(figures.Figure{Claim: "CPU time of the run over that of a bare heap loop with as many events", Source: "simulator", Asked: figures.AskedShown, Measured: run / bare, Unit: "ratio"})
	return nil
}

// heapLoop is the CPU time of a heap of 64 that takes and puts n events.
func heapLoop(n int) float64 {
	var q kernel.Queue[int64]
	for i := range int64(64) {
		q.Push(0, 0, i, i)
	}
	before := cputime.Used()
	for i := range int64(n) {
		at, _, x := q.Pop()
		q.Push(at+1000+1<<(x&7), 0, i, x+i)
	}
	return (cputime.Used() - before).Seconds()
}
