package sim

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	dropping "inferplan/policy/drop"
)

// reportFlow puts the figures of a run of applications into the report. flow.Bound is the number of requests that any
// policy could have answered in time, -1 if it is not known.
func (r *Result) reportFlow() {
	flow := r.Flow
	if flow == nil {
		return
	}
	if flow.Bound > 0 {
		share := float64(flow.Good) / float64(flow.Bound)
		r.Report.ShareOfBound = &share
	}

	// Report the modules, and the part of their time that was in vain.
	runTime, invalidTime := time.Duration(0), time.Duration(0)
	for moduleIndex := range flow.Modules {
		module := &flow.Modules[moduleIndex]
		runTime += module.RunTime
		invalidTime += module.InvalidTime
		r.Report.Modules = append(r.Report.Modules, module.moduleReport(flow.DropStats, moduleIndex))
	}
	report := &formats.FlowReport{Invalid: timeShare(invalidTime, runTime), DeviceUS: document.Micros(flow.DeviceTime), Overload: flow.overloadReport()}

	// The worst windows of several widths, in seconds.
	for _, width := range []int{1, 2, 5, 10, 20, 60} {
		report.Windows = append(report.Windows, flow.worstWindow(width))
	}

	// The changes between lowest budget first (lbf) and highest budget first (hbf), the orders of a module's queue. A budget
	// is the time left to a deadline.
	if flow.DropStats != nil {
		for _, change := range flow.DropStats.OrderChanges {
			order := "lbf"
			if change.HighestFirst {
				order = "hbf"
			}
			report.Modes = append(report.Modes, formats.FlowModeChange{AtUS: document.Micros(change.ChangedAt), Module: flow.Modules[change.Module].Name, ServiceOrder: order})
		}
	}
	r.Report.Flow = report
}

// timeShare returns which share of a total time a part of it is, at most 1; 0 if the total is 0.
func timeShare(part, total time.Duration) float64 {
	if total == 0 {
		return 0
	}
	return min(1, part.Seconds()/total.Seconds())
}

// moduleReport returns a module's part of a report: its requests, mean batch and run time, the share of its run time
// that was in vain and, if the policy keeps statistics (else stats is nil), its queueing times. moduleIndex is the
// module's index in these.
func (m *FlowModule) moduleReport(stats *dropping.RunStatistics, moduleIndex int) formats.ModuleReport {
	report := formats.ModuleReport{Module: m.Name, Requests: m.Requests, Dropped: m.Dropped, InvalidShare: timeShare(m.InvalidTime, m.RunTime)}
	batches, tasks := int64(0), int64(0)
	for size, batchCount := range m.BatchesBySize {
		batches += batchCount
		tasks += int64(size) * batchCount
	}
	if batches > 0 {
		report.RunUS, report.Batch = document.Micros(m.RunTime/time.Duration(batches)), float64(tasks)/float64(batches)
	}
	if m.EndedTasks > 0 {
		report.ConsumedShare = m.ConsumedSLO / float64(m.EndedTasks)
	}
	if stats != nil {
		report.QueueTime, report.WaitTime = millisecondQuantiles(stats.QueueTimes[moduleIndex]), millisecondQuantiles(stats.BatchWaits[moduleIndex])
	}
	return report
}

// millisecondQuantiles returns the quantiles 0.5, 0.9 and 0.99, in microseconds, of times that were counted by whole
// milliseconds: counts[ms] is the number of times of ms milliseconds. If all counts are 0, it returns nil.
func millisecondQuantiles(counts []int64) *formats.TimeQuantiles {
	total := int64(0)
	for _, count := range counts {
		total += count
	}
	if total == 0 {
		return nil
	}

	// A quantile is the first millisecond up to which at least that share of all times was counted.
	quantile := func(share float64) document.Micros {
		countUpTo := int64(0)
		for ms, count := range counts {
			countUpTo += count
			if float64(countUpTo) >= share*float64(total) {
				return document.Micros(time.Duration(ms) * time.Millisecond)
			}
		}
		return 0
	}
	return &formats.TimeQuantiles{P50US: quantile(.5), P90US: quantile(.9), P99US: quantile(.99)}
}

// minWindowRate is the least rate, in requests per second, of a window whose goodput counts: with fewer requests a single
// one would change it much.
const minWindowRate = 5

// worstWindow returns the least goodput (share of requests answered in time) and the largest drop rate (1 - goodput) of
// the windows of a width in seconds, which lie side by side. Windows with fewer than minWindowRate requests per second do
// not count. If none counts, goodput is 1 and the drop rate 0.
func (f *FlowResult) worstWindow(width int) formats.FlowWindow {
	worst := formats.FlowWindow{WidthUS: document.Micros(time.Duration(width) * time.Second), Goodput: 1}
	for first := 0; first+width <= len(f.Seconds); first += width {
		if window := f.windowSum(first, width); int(window.Arrived) >= minWindowRate*width {
			goodput := float64(window.Good) / float64(window.Arrived)
			worst.Goodput, worst.Drop = min(worst.Goodput, goodput), max(worst.Drop, 1-goodput)
		}
	}
	return worst
}

// windowSum returns the sums of the figures of `width` seconds from second number `first` on: requests that arrived, that
// were answered in time, that any policy could have answered in time (Bound), and that the workers could serve (Capacity).
func (f *FlowResult) windowSum(first, width int) FlowSecond {
	var window FlowSecond
	for _, second := range f.Seconds[first : first+width] {
		window.add(&second)
	}
	return window
}

// add adds the figures of another second or window.
func (s *FlowSecond) add(other *FlowSecond) {
	s.Arrived += other.Arrived
	s.Good += other.Good
	s.Bound += other.Bound
	s.Capacity += other.Capacity
}

// OverloadedWindows adds up the windows of ten seconds, side by side, in which more requests arrived than the workers
// could serve (Capacity, requests), and returns the sums and the number of these windows.
func (f *FlowResult) OverloadedWindows() (sum FlowSecond, windows int) {
	const width = 10
	for first := 0; first+width <= len(f.Seconds); first += width {
		if window := f.windowSum(first, width); float64(window.Arrived) > window.Capacity {
			sum.add(&window)
			windows++
		}
	}
	return sum, windows
}

// overloadReport returns the report of the windows in which more arrived than could be served: the share that was
// answered in time, also of the bound. If no window was overloaded, it returns nil.
func (f *FlowResult) overloadReport() *formats.FlowOverload {
	sum, windows := f.OverloadedWindows()
	if windows == 0 {
		return nil
	}
	report := &formats.FlowOverload{Windows: windows, Requests: int64(sum.Arrived), Goodput: float64(sum.Good) / float64(sum.Arrived)}
	if f.Bound > 0 && sum.Bound > 0 {
		share := float64(sum.Good) / float64(sum.Bound)
		report.ShareOfBound = &share
	}
	return report
}

// countBatches counts so many batches of a size.
func (m *FlowModule) countBatches(size int, count int64) {
	for len(m.BatchesBySize) <= size {
		m.BatchesBySize = append(m.BatchesBySize, 0)
	}
	m.BatchesBySize[size] += count
}
