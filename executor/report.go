package executor

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/report"
	"inferplan/policy"
)

// Report tells what was done since the start, with a part for each plan where there were
// several. Percentiles come from histograms with three digits. As in every report, requests
// that are still under way count as dropped, and a warning says how many.
func (x *Executor) Report() *formats.Report { return x.history.report() }

// Service returns the actual times recorded so far; nil without
// Options.RecordService.
func (x *Executor) Service() *turn.Service {
	c := x.core.Load()
	if c.Stats.Service == nil {
		return nil
	}
	var s *turn.Service
	if !c.Call(func() { s = c.Stats.Service.Snapshot() }) {
		s = c.Stats.Service.Snapshot()
	}
	return s
}

// reportOf is the report of a core, and what it was made from. Any goroutine may ask.
func reportOf(c *turn.Core) (r *formats.Report, tallies []tally) {
	read := func() {
		elapsed := c.Now() - c.Stats.Began
		r = &formats.Report{Format: formats.FormatReport, Source: "serve", Policy: c.Spec.Name, Runs: 1, Events: c.Events()}
		tallies = talliesOf(c)
		sumUp(r, tallies, elapsed)
		c.Report(r, elapsed)
	}
	if !c.Call(read) {
		read() // the last round is over: nobody writes any more
	}
	return r, tallies
}

type counts struct {
	requests, completed, late int64
	dropped                   []int64
}

func (c *counts) add(o *counts) {
	c.requests += o.requests
	c.completed += o.completed
	c.late += o.late
	for i, n := range o.dropped {
		c.dropped[i] += n
	}
}

// open is how many requests are still under way.
func (c *counts) open() int64 { return max(c.requests-c.completed-sum(c.dropped), 0) }

func (c *counts) report(elapsed time.Duration) formats.Counts {
	out := formats.Counts{
		Requests: c.requests, Completed: c.completed, Late: c.late, Dropped: sum(c.dropped), DroppedByReason: map[string]int64{},
	}
	for reason, n := range c.dropped {
		if n > 0 {
			out.DroppedByReason[policy.Reason(reason).String()] = n
		}
	}
	if open := c.open(); open > 0 {
		out.Dropped += open
		out.DroppedByReason[report.Unfinished] = open
	}
	report.SetAttainment(&out, elapsed.Seconds())
	return out
}

func sum(ns []int64) int64 {
	var s int64
	for _, n := range ns {
		s += n
	}
	return s
}
