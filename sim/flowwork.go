package sim

import (
	"time"

	"inferplan/formats"
	flows "inferplan/policy/flow"
)

// WorkResult holds what the devices did in a run of workflows, in the counted time.
type WorkResult struct {
	Services []FlowModule
	Loads    int64
	Counted  time.Duration // of each device
	Devices  int

	// Sums over the devices. overlapTime is part of both others.
	run, load, both time.Duration
}

// workflowStats collects the WorkResult of a run.
type flowWork struct {
	l        *loop
	sums     WorkResult
	from, to time.Duration
	loaded   [][]stretch     // by device: loads that ended after its latest batch
	loading  []time.Duration // by device: when its current load began, or -1
}

// timeSpan is a span of time.
type stretch struct{ from, to time.Duration }

// overlap returns how long two spans overlap.
func (s stretch) shared(o stretch) time.Duration {
	return max(0, min(s.to, o.to)-max(s.from, o.from))
}

// newWorkflowStats returns nil if the plan has no workflows.
func newFlowWork(l *loop) *flowWork {
	own := flows.WorkflowsOf(l.t)
	if own == nil || len(own.Apps) == 0 {
		return nil
	}
	w := &flowWork{l: l, from: l.cfg.Warmup, to: 1 << 62, loaded: make([][]stretch, len(l.t.Devices))}
	for range l.t.Devices {
		w.loading = append(w.loading, -1)
	}
	if l.cfg.Duration > 0 {
		w.to = l.cfg.Duration
	}
	for s := range l.t.Services {
		w.sums.Services = append(w.sums.Services, FlowModule{Name: l.t.Services[s].Name})
	}
	w.sums.Devices = len(l.t.Devices)
	return w
}

// countedSpan returns the part of a span that lies in the counted time.
func (w *flowWork) counted(from, to time.Duration) stretch {
	return stretch{max(from, w.from), min(to, w.to)}
}

// addBatch counts a batch of a service that ran from start to end.
func (w *flowWork) batch(service, device int32, start, end time.Duration, size int) {
	if m := &w.sums.Services[service]; start >= w.from && start < w.to {
		for len(m.Runs) <= size {
			m.Runs = append(m.Runs, 0)
		}
		m.Runs[size]++
		m.Running += end - start
	}
	w.ran(device, start, end)
}

// addRunTime counts the time in which a device ran, and how much of it overlaps with loads.
func (w *flowWork) ran(device int32, start, end time.Duration) {
	s := w.counted(start, end)
	w.sums.run += max(0, s.to-s.from)
	for _, o := range w.loaded[device] {
		w.sums.both += s.shared(o)
	}
	w.loaded[device] = w.loaded[device][:0]
	if began := w.loading[device]; began >= 0 {
		w.sums.both += s.shared(w.counted(began, end))
	}
}

// loadBegun notes that a load begins now.
func (w *flowWork) begun(device int32) { w.loading[device] = w.l.now }

// deviceLost notes that a device failed, and its load with it.
func (w *flowWork) lost(device int32) { w.loading[device] = -1 }

// loadEnded counts a load that ends now.
func (w *flowWork) load(device int32, start time.Duration) {
	s := w.counted(start, w.l.now)
	if start >= w.from && start < w.to {
		w.sums.Loads++
	}
	w.sums.load += max(0, s.to-s.from)
	w.loading[device] = -1
	w.loaded[device] = append(w.loaded[device], s)
}

// countTask counts a task of a service.
func (w *flowWork) asked(service int32) { w.sums.Services[service].Requests++ }

// addResult puts the figures into the result.
func (w *flowWork) result(r *Result) {
	w.sums.Counted = max(0, min(w.to, w.l.now)-w.from)
	r.setWork(&w.sums)
}

// setWork puts the figures of devices into the result and its report.
func (r *Result) setWork(w *WorkResult) {
	r.Work = w
	if r.Report == nil {
		return
	}

	// Report the services, and the mean size of their batches.
	batches, tasks := int64(0), int64(0)
	for i := range w.Services {
		m := &w.Services[i]
		r.Report.Modules = append(r.Report.Modules, m.report(nil, i))
		for size, n := range m.Runs {
			batches, tasks = batches+n, tasks+int64(size)*n
		}
	}
	r.Report.Loads = &w.Loads
	out := &formats.WorkflowReport{}

	// Divide the time of all devices into running, loading, both and idle.
	if w.Counted > 0 {
		out.LoadsPerMinute = float64(w.Loads) / w.Counted.Minutes()
		all := float64(w.Counted) * float64(w.Devices)
		both := float64(w.both) / all
		d := &formats.DeviceTime{Running: float64(w.run)/all - both, Loading: float64(w.load)/all - both, Both: both}
		d.Idle = max(0, 1-d.Running-d.Loading-both)
		r.Report.DeviceTime = d
	}
	if batches > 0 {
		out.Batch = float64(tasks) / float64(batches)
	}
	r.Report.Workflow = out
}

// poolWork adds up the figures of runs.
func poolWork(out *Result, runs []*Result) {
	if runs[0].Work == nil {
		return
	}
	all := &WorkResult{Services: make([]FlowModule, len(runs[0].Work.Services)), Devices: runs[0].Work.Devices}
	for _, r := range runs {
		w := r.Work
		all.Loads, all.Counted = all.Loads+w.Loads, all.Counted+w.Counted
		all.run, all.load, all.both = all.run+w.run, all.load+w.load, all.both+w.both
		for i := range w.Services {
			all.Services[i].add(&w.Services[i])
		}
	}
	out.setWork(all)
}

// addWorkflowParts adds to the configuration what workflows need beside the tables: the
// times of transfers between devices, and the draws of their branches.
func (cfg *Config) workflows() {
	own := flows.WorkflowsOf(cfg.Tables)
	if own == nil {
		return
	}
	t := cfg.Tables
	cfg.MoveTime = func(service, from, to int32) time.Duration { return own.MoveTime(t, service, from, to) }
	if walk, ok := cfg.Control.(*flows.Walk); ok {
		walk.Choose(flows.NewDraws(own, t, cfg.Seed))
	}
}
