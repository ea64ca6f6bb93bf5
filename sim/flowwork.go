package sim

import (
	"time"

	"inferplan/formats"
	flows "inferplan/policy/flow"
)

// WorkResult holds what the devices did in a run of workflows, in the counted time.
type WorkResult struct {
	Services    []FlowModule
	Loads       int64
	CountedTime time.Duration // of each device
	Devices     int

	// Sums over the devices. overlapTime is part of both others.
	runTime, loadTime, overlapTime time.Duration
}

// workflowStats collects the WorkResult of a run.
type workflowStats struct {
	loop        *loop
	totals      WorkResult
	countedSpan timeSpan
	endedLoads  [][]timeSpan    // by device: loads that ended after its latest batch
	loadStart   []time.Duration // by device: when its current load began, or -1
}

// newWorkflowStats returns the collector of what devices did in a run of workflows, or nil if the plan has no
// workflows. loadStart is -1 for a device that is not loading.
func newWorkflowStats(l *loop) *workflowStats {
	workflows := flows.WorkflowTablesOf(l.tables)
	if workflows == nil || len(workflows.Apps) == 0 {
		return nil
	}
	w := &workflowStats{loop: l, countedSpan: l.cfg.countedSpan(), endedLoads: make([][]timeSpan, len(l.tables.Devices))}
	for range l.tables.Devices {
		w.loadStart = append(w.loadStart, -1)
	}
	for s := range l.tables.Services {
		w.totals.Services = append(w.totals.Services, FlowModule{Name: l.tables.Services[s].Name})
	}
	w.totals.Devices = len(l.tables.Devices)
	return w
}

// addBatch counts a batch of a service that ran on a device from start to end, by its size, if it started in the
// counted span (after the warm-up).
func (w *workflowStats) addBatch(service, device int32, start, end time.Duration, size int) {
	if m := &w.totals.Services[service]; w.countedSpan.contains(start) {
		for len(m.BatchesBySize) <= size {
			m.BatchesBySize = append(m.BatchesBySize, 0)
		}
		m.BatchesBySize[size]++
		m.RunTime += end - start
	}
	w.addRunTime(device, start, end)
}

// addRunTime counts the time in which a device ran, as far as it is in the counted span, and how much of it
// overlaps with loads. Loads that have ended cannot overlap later runs and are forgotten.
func (w *workflowStats) addRunTime(device int32, start, end time.Duration) {
	span := w.countedSpan.intersect(timeSpan{start, end})
	w.totals.runTime += span.length()
	for _, load := range w.endedLoads[device] {
		w.totals.overlapTime += span.overlap(load)
	}
	w.endedLoads[device] = w.endedLoads[device][:0]
	if loadBegan := w.loadStart[device]; loadBegan >= 0 {
		w.totals.overlapTime += span.overlap(timeSpan{loadBegan, end})
	}
}

// loadBegun notes that a load begins now.
func (w *workflowStats) loadBegun(device int32) { w.loadStart[device] = w.loop.agenda.now }

// deviceLost notes that a device failed, and its load with it.
func (w *workflowStats) deviceLost(device int32) { w.loadStart[device] = -1 }

// loadEnded counts a load on a device that ends now, with its time, and keeps its span to find out how much of it
// overlaps with the running batch.
func (w *workflowStats) loadEnded(device int32, start time.Duration) {
	span := w.countedSpan.intersect(timeSpan{start, w.loop.agenda.now})
	if w.countedSpan.contains(start) {
		w.totals.Loads++
	}
	w.totals.loadTime += span.length()
	w.loadStart[device] = -1
	w.endedLoads[device] = append(w.endedLoads[device], span)
}

// countTask counts a task of a service.
func (w *workflowStats) countTask(service int32) { w.totals.Services[service].Requests++ }

// addResult puts the figures into the result.
func (w *workflowStats) addResult(r *Result) {
	w.totals.CountedTime = w.countedSpan.overlap(timeSpan{0, w.loop.agenda.now})
	r.setWork(&w.totals)
}

// setWork puts into the result and its report what devices did: the services with their batches, the number of
// loads, and the shares of time in which devices ran, loaded, did both or nothing.
func (r *Result) setWork(w *WorkResult) {
	r.Work = w
	if r.Report == nil {
		return
	}

	// Report the services, and the mean size of their batches.
	batches, tasks := int64(0), int64(0)
	for i := range w.Services {
		m := &w.Services[i]
		r.Report.Modules = append(r.Report.Modules, m.moduleReport(nil, i))
		for size, n := range m.BatchesBySize {
			batches, tasks = batches+n, tasks+int64(size)*n
		}
	}
	r.Report.Loads = &w.Loads
	report := &formats.WorkflowReport{}

	// Divide the time of all devices into running, loading, both and idle.
	if w.CountedTime > 0 {
		report.LoadsPerMinute = float64(w.Loads) / w.CountedTime.Minutes()
		deviceTime := float64(w.CountedTime) * float64(w.Devices)
		overlap := float64(w.overlapTime) / deviceTime
		d := &formats.DeviceTime{Running: float64(w.runTime)/deviceTime - overlap, Loading: float64(w.loadTime)/deviceTime - overlap, RunningAndLoading: overlap}
		d.Idle = max(0, 1-d.Running-d.Loading-overlap)
		r.Report.DeviceTime = d
	}
	if batches > 0 {
		report.Batch = float64(tasks) / float64(batches)
	}
	r.Report.Workflow = report
}

// poolWork adds up what devices did over several runs and puts the sums into the pooled result. Without such
// figures it does nothing.
func poolWork(pooled *Result, results []*Result) {
	if results[0].Work == nil {
		return
	}
	total := &WorkResult{Services: make([]FlowModule, len(results[0].Work.Services)), Devices: results[0].Work.Devices}
	for _, r := range results {
		w := r.Work
		total.Loads, total.CountedTime = total.Loads+w.Loads, total.CountedTime+w.CountedTime
		total.runTime, total.loadTime, total.overlapTime = total.runTime+w.runTime, total.loadTime+w.loadTime, total.overlapTime+w.overlapTime
		for i := range w.Services {
			total.Services[i].addRun(&w.Services[i])
		}
	}
	pooled.setWork(total)
}

// addWorkflowParts adds to the configuration what workflows need beside the tables: the
// times of transfers between devices, and the draws of their branches.
func (cfg *Config) addWorkflowParts() {
	workflows := flows.WorkflowTablesOf(cfg.Tables)
	if workflows == nil {
		return
	}
	t := cfg.Tables
	cfg.MoveTime = func(service, from, to int32) time.Duration { return workflows.OutputTransferTime(t, service, from, to) }
	if walk, ok := cfg.Control.(*flows.WorkflowControl); ok {
		walk.SetChoices(flows.NewRandomChoices(workflows, t, cfg.Seed))
	}
}
