package executor

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/formats"
)

// count notes a run that ended, whether anybody waits for it or not.
func (d *device) count(c *core, r *run, n *news) {
	took := time.Duration(n.end - n.start)
	d.busy += took
	own := n.total - d.total
	d.total = n.total
	d.stats.ran(time.Duration(n.cpu), time.Duration(own))
	begin, end := c.since(n.start), c.since(n.end)
	// The device was taken from the moment at which it could have begun: until it
	// did, the policy decided, the batch was laid into its memory and the command
	// travelled.
	if asked := r.sent; !d.remote {
		if r.batch != nil && r.batch.hop == 0 {
			asked = r.batch.dispatched
		}
		begin = min(begin, max(asked, d.ended))
	}
	d.ended = max(d.ended, end)
	if c.stats.service != nil && r.batch != nil && worker.Code(n.code) == worker.OK && !c.answers.holds(r.batch.pipeline) {
		r.batch.recorded = c.stats.service.ran(r.stage, r.size, begin, end-begin)
	}
}

// loaded notes a load that the policy is told of now. It began when it was asked for
// and the one before it was over: what makes room for it is a part of it.
func (h *home) loaded(c *core, o *order) {
	now := c.now()
	if begin := max(o.given, h.free); c.stats.service != nil {
		c.stats.service.loads[o.network] = append(c.stats.service.loads[o.network], recordedRun{start: begin - c.stats.service.first(), took: now - begin})
	}
	h.free = now
}

// moved notes a tensor that the next stage takes over.
func moved(c *core, bytes int64, from, to *device, by tier, took time.Duration) {
	s := c.stats
	t, m := &s.shm, &s.metrics.shm
	onDevice := !by.lasts()
	switch gpu := !formats.IsCPU(from.kind) && c.opt.Engine == engineONNX; {
	case from.remote || to.remote:
		t, m = &s.stream, &s.metrics.stream
	case onDevice && from != to:
		t, m = &s.ipc, &s.metrics.ipc
	case from == to && (onDevice || !gpu):
		t, m = &s.reference, &s.metrics.reference
	case gpu && from.pinned && to.pinned:
		t, m = &s.pinned, &s.metrics.pinned
	}
	t.add(bytes)
	t.took += took
	m.transfers.Inc()
	m.bytes.Add(float64(bytes))
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
