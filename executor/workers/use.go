package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
)

// countRun counts a run that has ended, whether or not anybody waits for it.
func (d *Device) count(c *turn.Core, r *run, n *turn.News, begin, end time.Duration) {
	d.Busy += end - begin
	own := n.Total - d.total
	d.total = n.Total
	d.stats.Ran(time.Duration(n.Cpu), time.Duration(own))
	// The device is counted as busy from the time at which it could have begun: until it did, the policy decided,
	// the batch was copied into its memory, and the command was sent.
	if asked := r.sent; !d.remote {
		if r.Batch != nil && r.Batch.Hop == 0 {
			asked = r.Batch.Dispatched
		}
		begin = min(begin, max(asked, d.ended))
	}
	d.ended = max(d.ended, end)
	if c.Stats.Service != nil && r.Batch != nil && worker.Code(n.Code) == worker.OK && !c.Answers.Holds(r.Batch.Pipeline) {
		r.Batch.Recorded = c.Stats.Service.Ran(r.stage, r.size, begin, end-begin)
	}
}

// recordLoad records a load that the policy is told of now. It began when it was ordered and the load before it was
// over: evicting other networks is a part of it.
func (h *home) loaded(c *turn.Core, o *turn.Order) {
	now := c.Now()
	if begin := max(o.Given, h.free); c.Stats.Service != nil {
		c.Stats.Service.Loads[o.Network] = append(c.Stats.Service.Loads[o.Network], turn.RecordedRun{Start: begin - c.Stats.Service.First(), Took: now - begin})
	}
	h.free = now
}

// recordTransfer records a tensor that the next stage takes over, by tier.
func moved(c *turn.Core, bytes int64, from, to *Device, by tier, took time.Duration) {
	s := c.Stats
	t, m := &s.Shm, &s.Metrics.Shm
	onDevice := !by.lasts()
	switch gpu := !formats.IsCPU(from.Kind) && c.Options.Engine == engineONNX; {
	case from.remote || to.remote:
		t, m = &s.Stream, &s.Metrics.Stream
	case onDevice && from != to:
		t, m = &s.Ipc, &s.Metrics.Ipc
	case from == to && (onDevice || !gpu):
		t, m = &s.Reference, &s.Metrics.Reference
	case gpu && from.pinned && to.pinned:
		t, m = &s.Pinned, &s.Metrics.Pinned
	}
	t.Add(bytes)
	t.Took += took
	m.Transfers.Inc()
	m.Bytes.Add(float64(bytes))
}

// Report adds up the use of devices by kind. A share of 1/v counts as 1/v.
func (w *Workers) Report(r *formats.Report, elapsed time.Duration) {
	out := make([]formats.DeviceReport, len(w.c.Tables.Kinds))
	weight := make([]float64, len(out))
	busy, loading, both := make([]float64, len(out)), make([]float64, len(out)), make([]float64, len(out))
	seen := make([]map[int32]bool, len(out))

	// Sum up by kind.
	for _, d := range w.Own {
		t := &w.c.Tables.Devices[d.Index]
		w := 1 / float64(max(t.Share, 1))
		weight[t.Kind] += w
		busy[t.Kind] += w * float64(d.Busy)
		if d.Home != nil {
			loading[t.Kind] += w * float64(d.Home.loading)
			both[t.Kind] += w * float64(d.Home.both)
		}
		if seen[t.Kind] == nil {
			seen[t.Kind] = map[int32]bool{}
		}
		seen[t.Kind][t.GPU] = true
	}

	// Report the kinds that have devices here.
	used := out[:0]
	for k := range w.c.Tables.Kinds {
		if weight[k] == 0 {
			continue
		}
		all := weight[k] * float64(elapsed)
		of := formats.DeviceReport{Device: w.c.Tables.Kinds[k], Count: len(seen[k]), RunningUS: document.Micros(busy[k] - both[k]), LoadingUS: document.Micros(max(loading[k]-both[k], 0)), BothUS: document.Micros(both[k])}
		of.IdleUS = max(document.Micros(all)-of.RunningUS-of.LoadingUS-of.BothUS, 0)
		if all > 0 {
			of.Utilisation = busy[k] / all
		}
		used = append(used, of)
	}
	r.Devices = used
}
