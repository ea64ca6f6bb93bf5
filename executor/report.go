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

// Service returns a copy of the service times (how long batches took, for a simulation) of the plan in force that are
// recorded so far. Without Options.RecordService it returns nil.
func (x *Executor) Service() *turn.ServiceTimes {
	c := x.core.Load()
	if c.Stats.Recorder == nil {
		return nil
	}
	var s *turn.ServiceTimes
	c.Loop.ReadInRound(func() { s = c.Stats.Recorder.Snapshot() }) // the loop's rounds write the times
	return s
}

// reportOf returns the report of a core since it started, and the counts by model (tallies) that it was made from. Any
// goroutine may call it: the counts are read in a round of the core.
func reportOf(c *turn.Core) (r *formats.Report, tallies []modelTally) {
	c.Loop.ReadInRound(func() {
		elapsed := c.Loop.Now() - c.Stats.StartedAt
		r = &formats.Report{Format: formats.FormatReport, Source: "serve", Policy: c.Spec.Name, Runs: 1, Events: c.Loop.ToldEvents()}
		tallies = talliesOf(c)
		fillReport(r, tallies, elapsed)
		c.Report(r, elapsed)
	})
	return r, tallies
}

// requestCounts are the counts of requests. dropped is by reason.
type requestCounts struct {
	requests, completed, late int64
	dropped                   []int64
}

// add adds other counts.
func (c *requestCounts) add(o *requestCounts) {
	c.requests += o.requests
	c.completed += o.completed
	c.late += o.late
	for i, n := range o.dropped {
		c.dropped[i] += n
	}
}

// unfinished returns the number of requests that have not ended.
func (c *requestCounts) unfinished() int64 { return max(c.requests-c.completed-sumOf(c.dropped), 0) }

// report returns the counts of `elapsed` in the form of a report, with goodput and attainment. Requests without an
// answer so far are counted as dropped, under a reason of their own.
func (c *requestCounts) report(elapsed time.Duration) formats.Counts {
	out := formats.Counts{
		Requests: c.requests, Completed: c.completed, Late: c.late, Dropped: sumOf(c.dropped), DroppedByReason: map[string]int64{},
	}
	for reason, n := range c.dropped {
		if n > 0 {
			out.DroppedByReason[policy.DropReason(reason).String()] = n
		}
	}
	if open := c.unfinished(); open > 0 {
		out.Dropped += open
		out.DroppedByReason[report.Unfinished] = open
	}
	report.SetAttainment(&out, elapsed.Seconds())
	return out
}

// sumOf returns the sum of numbers.
func sumOf(ns []int64) int64 {
	var s int64
	for _, n := range ns {
		s += n
	}
	return s
}
