package sim

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	dropping "inferplan/policy/drop"
)

// setFlow puts the figures of a run of applications into the result and, if there is one, into its report. Bound is
// the number of requests that any policy could have answered in time, -1 if it is not known.
func (r *Result) setFlow(f *FlowResult) {
	r.Flow = f
	if r.Report == nil {
		return
	}
	if f.Bound > 0 {
		share := float64(f.Good) / float64(f.Bound)
		r.Report.ShareOfBound = &share
	}

	// Report the modules, and the part of their time that was in vain.
	runTime, invalid := time.Duration(0), time.Duration(0)
	for i := range f.Modules {
		m := &f.Modules[i]
		runTime, invalid = runTime+m.RunTime, invalid+m.InvalidTime
		r.Report.Modules = append(r.Report.Modules, m.moduleReport(f.DropStats, i))
	}
	report := &formats.FlowReport{Invalid: timeShare(invalid, runTime), DeviceUS: document.Micros(f.DeviceTime), Overload: f.overloadReport()}

	// The worst windows of several widths, in seconds.
	for _, width := range []int{1, 2, 5, 10, 20, 60} {
		report.Windows = append(report.Windows, f.worstWindow(width))
	}

	// The changes between low-budget-first (lbf) and high-budget-first (hbf) order.
	if f.DropStats != nil {
		for _, m := range f.DropStats.OrderChanges {
			order := "lbf"
			if m.HighestFirst {
				order = "hbf"
			}
			report.Modes = append(report.Modes, formats.FlowModeChange{AtUS: document.Micros(m.ChangedAt), Module: f.Modules[m.Module].Name, ServiceOrder: order})
		}
	}
	r.Report.Flow = report
}

// timeShare returns part / total, at most 1, or 0 if total is 0.
func timeShare(part, total time.Duration) float64 {
	if total == 0 {
		return 0
	}
	return min(1, part.Seconds()/total.Seconds())
}

// moduleReport returns a module's part of a report: its requests, mean batch and run time, the share of run time
// that was in vain, and, if the policy keeps statistics, its queueing times. i is the module's index in these.
func (m *FlowModule) moduleReport(stats *dropping.RunStatistics, i int) formats.ModuleReport {
	report := formats.ModuleReport{Module: m.Name, Requests: m.Requests, Dropped: m.Dropped, InvalidShare: timeShare(m.InvalidTime, m.RunTime)}
	batches, tasks := int64(0), int64(0)
	for size, n := range m.BatchesBySize {
		batches, tasks = batches+n, tasks+int64(size)*n
	}
	if batches > 0 {
		report.RunUS, report.Batch = document.Micros(m.RunTime/time.Duration(batches)), float64(tasks)/float64(batches)
	}
	if m.EndedTasks > 0 {
		report.ConsumedShare = m.ConsumedSLO / float64(m.EndedTasks)
	}
	if stats != nil {
		report.QueueTime, report.WaitTime = millisecondQuantiles(stats.QueueTimes[i]), millisecondQuantiles(stats.BatchWaits[i])
	}
	return report
}

// millisecondQuantiles returns quantiles of times that were counted by whole milliseconds: counts[ms] is how many
// took ms. If all counts are 0, it returns nil.
func millisecondQuantiles(counts []int64) *formats.TimeQuantiles {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	quantile := func(share float64) document.Micros {
		sum := int64(0)
		for ms, n := range counts {
			if sum += n; float64(sum) >= share*float64(total) {
				return document.Micros(time.Duration(ms) * time.Millisecond)
			}
		}
		return 0
	}
	return &formats.TimeQuantiles{P50US: quantile(.5), P90US: quantile(.9), P99US: quantile(.99)}
}

// worstWindow returns the least goodput and the largest drop rate of the windows with a width
// in seconds. Windows with fewer than five requests per second do not count.
func (f *FlowResult) worstWindow(width int) formats.FlowWindow {
	worst := formats.FlowWindow{WidthUS: document.Micros(time.Duration(width) * time.Second), Goodput: 1}
	for s := 0; s+width <= len(f.Seconds); s += width {
		if w := f.windowSum(s, width); int(w.Arrived) >= 5*width {
			goodput := float64(w.Good) / float64(w.Arrived)
			worst.Goodput, worst.Drop = min(worst.Goodput, goodput), max(worst.Drop, 1-goodput)
		}
	}
	return worst
}

// windowSum adds up the figures of the seconds in a window: `width` seconds from second `first` on.
func (f *FlowResult) windowSum(first, width int) FlowSecond {
	var w FlowSecond
	for _, s := range f.Seconds[first : first+width] {
		w.Arrived, w.Good, w.Bound, w.Capacity = w.Arrived+s.Arrived, w.Good+s.Good, w.Bound+s.Bound, w.Capacity+s.Capacity
	}
	return w
}

// OverloadedWindows adds up the windows of ten seconds in which more requests arrived than the workers
// could serve, and returns the number of these windows.
func (f *FlowResult) OverloadedWindows() (w FlowSecond, windows int) {
	const width = 10
	for s := 0; s+width <= len(f.Seconds); s += width {
		if x := f.windowSum(s, width); float64(x.Arrived) > x.Capacity {
			w.Arrived, w.Good, w.Bound, w.Capacity = w.Arrived+x.Arrived, w.Good+x.Good, w.Bound+x.Bound, w.Capacity+x.Capacity
			windows++
		}
	}
	return w, windows
}

// overloadReport returns the report of the windows in which more arrived than could be served: the share that was
// answered in time, also of the bound. If no window was overloaded, it returns nil.
func (f *FlowResult) overloadReport() *formats.FlowOverload {
	w, n := f.OverloadedWindows()
	if n == 0 {
		return nil
	}
	report := &formats.FlowOverload{Windows: n, Requests: int64(w.Arrived), Goodput: float64(w.Good) / float64(w.Arrived)}
	if f.Bound > 0 && w.Bound > 0 {
		share := float64(w.Good) / float64(w.Bound)
		report.ShareOfBound = &share
	}
	return report
}

// poolFlows adds up the figures of applications over several runs and puts the sums into the pooled result. Without
// such figures it does nothing. Changes of the order are those of the first run, because they have no sum.
func poolFlows(pooled *Result, results []*Result) {
	if results[0].Flow == nil {
		return
	}
	total := &FlowResult{Modules: make([]FlowModule, len(results[0].Flow.Modules))}
	if results[0].Flow.DropStats != nil {
		total.DropStats = dropping.NewRunStatistics(len(total.Modules))
		total.DropStats.OrderChanges = results[0].Flow.DropStats.OrderChanges
	}
	for _, r := range results {
		total.addRun(r.Flow)
	}
	pooled.setFlow(total)
}

// addRun adds the figures of another run. The numbers of workers by second are those of the latest run. A bound
// that is not known in one run (below 0) is not known for all.
func (f *FlowResult) addRun(o *FlowResult) {
	f.Requests, f.Good, f.Late, f.Dropped = f.Requests+o.Requests, f.Good+o.Good, f.Late+o.Late, f.Dropped+o.Dropped
	f.DeviceTime += o.DeviceTime
	if f.Bound += o.Bound; o.Bound < 0 {
		f.Bound = -1
	}
	for i := range o.Modules {
		f.Modules[i].addRun(&o.Modules[i])
		if f.DropStats != nil && o.DropStats != nil {
			f.DropStats.Add(i, o.DropStats)
		}
	}
	for s, x := range o.Seconds {
		if s == len(f.Seconds) {
			f.Seconds = append(f.Seconds, FlowSecond{})
		}
		w := &f.Seconds[s]
		w.Arrived, w.Good, w.Bound, w.Capacity = w.Arrived+x.Arrived, w.Good+x.Good, w.Bound+x.Bound, w.Capacity+x.Capacity
	}
}

// addRun adds the figures of a run of a module. The workers by second are those of the latest run.
func (m *FlowModule) addRun(x *FlowModule) {
	m.Name, m.Workers = x.Name, x.Workers
	m.Requests, m.Dropped, m.EndedTasks = m.Requests+x.Requests, m.Dropped+x.Dropped, m.EndedTasks+x.EndedTasks
	m.RunTime, m.InvalidTime, m.ConsumedSLO = m.RunTime+x.RunTime, m.InvalidTime+x.InvalidTime, m.ConsumedSLO+x.ConsumedSLO
	for len(m.BatchesBySize) < len(x.BatchesBySize) {
		m.BatchesBySize = append(m.BatchesBySize, 0)
	}
	for size, n := range x.BatchesBySize {
		m.BatchesBySize[size] += n
	}
}
