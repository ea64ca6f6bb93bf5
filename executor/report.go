package executor

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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
func (x *Executor) Service() *Service {
	c := x.core.Load()
	if c.stats.service == nil {
		return nil
	}
	var s *Service
	if !c.call(func() { s = c.stats.service.snapshot() }) {
		s = c.stats.service.snapshot()
	}
	return s
}

// reportOf is the report of a core, and what it was made from. Any goroutine may ask.
func reportOf(c *core) (r *formats.Report, tallies []tally) {
	read := func() {
		elapsed := c.now() - c.stats.began
		r = &formats.Report{Format: formats.FormatReport, Source: "serve", Policy: c.spec.Name, Runs: 1, Events: c.loop.Told()}
		tallies = talliesOf(c)
		sumUp(r, tallies, elapsed)
		if c.workers != nil {
			r.Devices = c.workers.deviceReports(elapsed)
		}
		r.Transfer = c.stats.tiers()
		c.answers.report(r)
	}
	if !c.call(read) {
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

func summary(h *hdrhistogram.Histogram) formats.LatencySummary {
	at := func(q float64) formats.Micros {
		return formats.Micros(time.Duration(h.ValueAtQuantile(q)) * time.Microsecond)
	}
	if h.TotalCount() == 0 {
		return formats.LatencySummary{}
	}
	return formats.LatencySummary{
		MeanUS: formats.Micros(h.Mean() * float64(time.Microsecond)), P50US: at(50), P90US: at(90), P95US: at(95), P99US: at(99),
		MaxUS: formats.Micros(time.Duration(h.Max()) * time.Microsecond),
	}
}

// deviceReports adds up the use of devices by kind; a share of 1/v counts 1/v.
func (w *workers) deviceReports(elapsed time.Duration) []formats.DeviceReport {
	out := make([]formats.DeviceReport, len(w.c.tables.Kinds))
	weight := make([]float64, len(out))
	busy, loading, both := make([]float64, len(out)), make([]float64, len(out)), make([]float64, len(out))
	seen := make([]map[int32]bool, len(out))
	for _, d := range w.own {
		t := &w.c.tables.Devices[d.index]
		w := 1 / float64(max(t.Share, 1))
		weight[t.Kind] += w
		busy[t.Kind] += w * float64(d.busy)
		if d.home != nil {
			loading[t.Kind] += w * float64(d.home.loading)
			both[t.Kind] += w * float64(d.home.both)
		}
		if seen[t.Kind] == nil {
			seen[t.Kind] = map[int32]bool{}
		}
		seen[t.Kind][t.GPU] = true
	}
	used := out[:0]
	for k := range w.c.tables.Kinds {
		if weight[k] == 0 {
			continue
		}
		all := weight[k] * float64(elapsed)
		r := formats.DeviceReport{Device: w.c.tables.Kinds[k], Count: len(seen[k]), RunningUS: formats.Micros(busy[k] - both[k]), LoadingUS: formats.Micros(max(loading[k]-both[k], 0)), BothUS: formats.Micros(both[k])}
		r.IdleUS = max(formats.Micros(all)-r.RunningUS-r.LoadingUS-r.BothUS, 0)
		if all > 0 {
			r.Utilisation = busy[k] / all
		}
		used = append(used, r)
	}
	return used
}

// tiers reports how tensors moved. Between stages, the time is from the end
// of the producer's run until the consumer has been told where the tensor
// lies (reference: in its own process, on a GPU by its address there; ipc: in
// GPU memory of another process; pinned: in shared memory that GPUs copy from and to
// directly, within the runs; shm: in shared memory); nothing is copied here. A stream is a tensor to or from another host: the time is that of its
// way here, and the way out counts with the next run. Ingress and egress are the copies from requests into the first
// stage's memory, and from the last stage's.
func (s *stats) tiers() *formats.TierReport {
	out := &formats.TierReport{}
	for _, t := range []struct {
		name string
		*transferCount
	}{{"reference", &s.reference}, {"ipc", &s.ipc}, {"pinned", &s.pinned}, {"shm", &s.shm}, {"stream", &s.stream}, {"ingress", &s.ingress}, {"egress", &s.egress}} {
		if t.n == 0 {
			continue
		}
		tier := formats.Tier{Name: t.name, Transfers: t.n, Bytes: t.bytes}
		if t.took > 0 {
			tier.BytesPerSecond = float64(t.bytes) / t.took.Seconds()
		}
		out.Tiers = append(out.Tiers, tier)
	}
	return out
}
