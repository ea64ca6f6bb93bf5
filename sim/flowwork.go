package sim

import (
	"time"

	"inferplan/formats"
	flows "inferplan/policy/flow"
)

// WorkResult holds what the devices did in a run of workflows, in the counted time (after the warm-up).
type WorkResult struct {
	Services    []FlowModule
	Loads       int64
	CountedTime time.Duration // of each device
	Devices     int           `runs:"first"`

	// Sums over the devices. OverlapTime is part of both others.
	RunTime, LoadTime, OverlapTime time.Duration
}

// workflowStats collects the WorkResult of a run.
type workflowStats struct {
	loop        *loop
	totals      WorkResult
	countedSpan timeSpan
	endedLoads  [][]timeSpan    // by device: loads that ended after its latest batch
	loadStart   []time.Duration // by device: when its current load began, or -1
}

// newWorkflowStats returns the collector of what devices did in a run of workflows. If the plan has no workflows, it
// returns nil. In loadStart, by device, -1 means that no load runs.
func newWorkflowStats(loop *loop) *workflowStats {
	workflows := flows.WorkflowTablesOf(loop.tables)
	if workflows == nil || len(workflows.Apps) == 0 {
		return nil
	}
	stats := &workflowStats{loop: loop, countedSpan: loop.cfg.countedSpan(), endedLoads: make([][]timeSpan, len(loop.tables.Devices))}
	for range loop.tables.Devices {
		stats.loadStart = append(stats.loadStart, -1)
	}
	for service := range loop.tables.Services {
		stats.totals.Services = append(stats.totals.Services, FlowModule{Name: loop.tables.Services[service].Name})
	}
	stats.totals.Devices = len(loop.tables.Devices)
	return stats
}

// addBatch counts a batch of a service that ran on a device from start to end, with its number of tasks (size), if it
// started in the counted time (after the warm-up).
func (w *workflowStats) addBatch(service, device int32, start, end time.Duration, size int) {
	if figures := &w.totals.Services[service]; w.countedSpan.contains(start) {
		figures.countBatches(size, 1)
		figures.RunTime += end - start
	}
	w.addRunTime(device, start, end)
}

// addRunTime counts the time from start to end in which a device ran, as far as it is in the counted time, and how much
// of it overlaps with loads. Loads that have ended cannot overlap later runs and are forgotten. A load that still runs
// (loadStart of 0 or more) overlaps from its start on.
func (w *workflowStats) addRunTime(device int32, start, end time.Duration) {
	runSpan := w.countedSpan.intersect(timeSpan{start, end})
	w.totals.RunTime += runSpan.length()
	for _, load := range w.endedLoads[device] {
		w.totals.OverlapTime += runSpan.overlap(load)
	}
	w.endedLoads[device] = w.endedLoads[device][:0]
	if loadBegan := w.loadStart[device]; loadBegan >= 0 {
		w.totals.OverlapTime += runSpan.overlap(timeSpan{loadBegan, end})
	}
}

// loadBegun notes that a load of a network begins on a device now.
func (w *workflowStats) loadBegun(device int32) { w.loadStart[device] = w.loop.agenda.now }

// deviceLost notes that a device has failed, and the load that it was doing with it.
func (w *workflowStats) deviceLost(device int32) { w.loadStart[device] = -1 }

// loadEnded counts a load on a device that began at start and ends now, and keeps its span to find out how much of it
// overlaps with the running batch.
func (w *workflowStats) loadEnded(device int32, start time.Duration) {
	loadSpan := w.countedSpan.intersect(timeSpan{start, w.loop.agenda.now})
	if w.countedSpan.contains(start) {
		w.totals.Loads++
	}
	w.totals.LoadTime += loadSpan.length()
	w.loadStart[device] = -1
	w.endedLoads[device] = append(w.endedLoads[device], loadSpan)
}

// countTask counts a revealed task of a service.
func (w *workflowStats) countTask(service int32) { w.totals.Services[service].Requests++ }

// addResult puts what devices did into the result, at the end of the run.
func (w *workflowStats) addResult(r *Result) {
	w.totals.CountedTime = w.countedSpan.overlap(timeSpan{0, w.loop.agenda.now})
	r.Work = &w.totals
}

// reportWork puts into the report what devices did: the services with their batches, the number of
// loads, and the shares of time in which devices ran, loaded, did both or nothing.
func (r *Result) reportWork() {
	work := r.Work
	if work == nil {
		return
	}

	// Report the services, and the mean size of their batches.
	batches, tasks := int64(0), int64(0)
	for i := range work.Services {
		service := &work.Services[i]
		r.Report.Modules = append(r.Report.Modules, service.moduleReport(nil, i))
		for size, batchCount := range service.BatchesBySize {
			batches += batchCount
			tasks += int64(size) * batchCount
		}
	}
	r.Report.Loads = &work.Loads
	report := &formats.WorkflowReport{}

	// Divide the time of all devices into running, loading, both and idle.
	if work.CountedTime > 0 {
		report.LoadsPerMinute = float64(work.Loads) / work.CountedTime.Minutes()
		deviceTime := float64(work.CountedTime) * float64(work.Devices)
		overlap := float64(work.OverlapTime) / deviceTime
		shares := &formats.DeviceTime{Running: float64(work.RunTime)/deviceTime - overlap, Loading: float64(work.LoadTime)/deviceTime - overlap, RunningAndLoading: overlap}
		shares.Idle = max(0, 1-shares.Running-shares.Loading-overlap)
		r.Report.DeviceTime = shares
	}
	if batches > 0 {
		report.Batch = float64(tasks) / float64(batches)
	}
	r.Report.Workflow = report
}

// addWorkflowParts adds to the configuration of a run of workflows what they need beside the tables: the times of
// transfers between devices (MoveTime), and random draws for the branches (the choices of Control). For other plans it
// does nothing.
func (config *Config) addWorkflowParts() {
	workflows := flows.WorkflowTablesOf(config.Tables)
	if workflows == nil {
		return
	}
	tables := config.Tables
	config.MoveTime = func(service, from, to int32) time.Duration {
		return workflows.OutputTransferTime(tables, service, from, to)
	}
	if control, ok := config.Control.(*flows.WorkflowControl); ok {
		control.SetChoices(flows.NewRandomChoices(workflows, tables, config.Seed))
	}
}
