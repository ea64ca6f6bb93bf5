package executor

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/report"
	"inferplan/policy"
)

// Report returns what was done since the start, with a part for each plan if there were several. Percentiles come
// from histograms with three digits. As in every report, requests that have not ended count as dropped, and a warning
// names their number.
func (x *Executor) Report() *formats.Report { return x.history.report() }

// Service returns the service times recorded so far. Without Options.RecordService it returns nil.
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

// reportOf returns the report of a core, and the tallies that it was made from. Any goroutine may call it.
func reportOf(c *turn.Core) (r *formats.Report, tallies []tally) {
	read := func() {
		elapsed := c.Now() - c.Stats.Began
		r = &formats.Report{Format: formats.FormatReport, Source: "serve", Policy: c.Spec.Name, Runs: 1, Events: c.Events()}
		tallies = talliesOf(c)
		sumUp(r, tallies, elapsed)
		c.Report(r, elapsed)
	}
	if !c.Call(read) {
		read() // after the last round nobody writes the counts any more
	}
	return r, tallies
}

// requestCounts are the counts of requests. dropped is by reason.
type counts struct {
	requests, completed, late int64
	dropped                   []int64
}

// add adds other counts.
func (c *counts) add(o *counts) {
	c.requests += o.requests
	c.completed += o.completed
	c.late += o.late
	for i, n := range o.dropped {
		c.dropped[i] += n
	}
}

// unfinished returns the number of requests that have not ended.
func (c *counts) open() int64 { return max(c.requests-c.completed-sum(c.dropped), 0) }

// report returns the counts in the form of a report.
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

// sumOf returns the sum of numbers.
func sum(ns []int64) int64 {
	var s int64
	for _, n := range ns {
		s += n
	}
	return s
}
