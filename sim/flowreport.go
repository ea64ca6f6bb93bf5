package sim

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	dropping "inferplan/policy/drop"
)

// setFlow puts the figures of a run of applications into the result and its report.
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
	running, invalid := time.Duration(0), time.Duration(0)
	for i := range f.Modules {
		m := &f.Modules[i]
		running, invalid = running+m.Running, invalid+m.Invalid
		r.Report.Modules = append(r.Report.Modules, m.report(f.Seen, i))
	}
	out := &formats.FlowReport{Invalid: part(invalid, running), DeviceUS: document.Micros(f.DeviceTime), Overloaded: f.overloaded()}

	// The worst windows of several widths, in seconds.
	for _, width := range []int{1, 2, 5, 10, 20, 60} {
		out.Windows = append(out.Windows, f.worst(width))
	}

	// The changes between low-budget-first (lbf) and high-budget-first (hbf) order.
	if f.Seen != nil {
		for _, m := range f.Seen.Modes {
			order := "lbf"
			if m.High {
				order = "hbf"
			}
			out.Modes = append(out.Modes, formats.FlowModeChange{AtUS: document.Micros(m.At), Module: f.Modules[m.Module].Name, Order: order})
		}
	}
	r.Report.Flow = out
}

// timeShare returns part / total, at most 1, or 0 if total is 0.
func part(a, of time.Duration) float64 {
	if of == 0 {
		return 0
	}
	return min(1, a.Seconds()/of.Seconds())
}

// moduleReport returns the module's part of a report. i is its index in stats.
func (m *FlowModule) report(seen *dropping.Seen, i int) formats.ModuleReport {
	out := formats.ModuleReport{Module: m.Name, Requests: m.Requests, Dropped: m.Dropped, Invalid: part(m.Invalid, m.Running)}
	batches, tasks := int64(0), int64(0)
	for size, n := range m.Runs {
		batches, tasks = batches+n, tasks+int64(size)*n
	}
	if batches > 0 {
		out.RunUS, out.Batch = document.Micros(m.Running/time.Duration(batches)), float64(tasks)/float64(batches)
	}
	if m.Ended > 0 {
		out.Consumed = m.Consumed / float64(m.Ended)
	}
	if seen != nil {
		out.Queued, out.Waited = quantiles(seen.Queued[i]), quantiles(seen.Waited[i])
	}
	return out
}

// millisecondQuantiles returns quantiles of counts by whole milliseconds, or nil if all counts
// are 0.
func quantiles(counts []int64) *formats.TimeQuantiles {
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return nil
	}
	at := func(share float64) document.Micros {
		sum := int64(0)
		for ms, n := range counts {
			if sum += n; float64(sum) >= share*float64(all) {
				return document.Micros(time.Duration(ms) * time.Millisecond)
			}
		}
		return 0
	}
	return &formats.TimeQuantiles{P50US: at(.5), P90US: at(.9), P99US: at(.99)}
}

// worstWindow returns the least goodput and the largest drop rate of the windows with a width
// in seconds. Windows with fewer than five requests per second do not count.
func (f *FlowResult) worst(width int) formats.FlowWindow {
	out := formats.FlowWindow{WidthUS: document.Micros(time.Duration(width) * time.Second), Goodput: 1}
	for s := 0; s+width <= len(f.Seconds); s += width {
		if w := f.window(s, width); int(w.Arrived) >= 5*width {
			good := float64(w.Good) / float64(w.Arrived)
			out.Goodput, out.Drop = min(out.Goodput, good), max(out.Drop, 1-good)
		}
	}
	return out
}

// window adds up the seconds of a window.
func (f *FlowResult) window(from, width int) FlowSecond {
	var w FlowSecond
	for _, s := range f.Seconds[from : from+width] {
		w.Arrived, w.Good, w.Bound, w.Carried = w.Arrived+s.Arrived, w.Good+s.Good, w.Bound+s.Bound, w.Carried+s.Carried
	}
	return w
}

// Overload adds up the windows of ten seconds in which more requests arrived than the workers
// could serve, and returns the number of these windows.
func (f *FlowResult) Overload() (w FlowSecond, windows int) {
	const width = 10
	for s := 0; s+width <= len(f.Seconds); s += width {
		if x := f.window(s, width); float64(x.Arrived) > x.Carried {
			w.Arrived, w.Good, w.Bound, w.Carried = w.Arrived+x.Arrived, w.Good+x.Good, w.Bound+x.Bound, w.Carried+x.Carried
			windows++
		}
	}
	return w, windows
}

// overloadReport returns the report of Overload, or nil if no window was overloaded.
func (f *FlowResult) overloaded() *formats.FlowOverload {
	w, n := f.Overload()
	if n == 0 {
		return nil
	}
	out := &formats.FlowOverload{Windows: n, Requests: int64(w.Arrived), Goodput: float64(w.Good) / float64(w.Arrived)}
	if f.Bound > 0 && w.Bound > 0 {
		share := float64(w.Good) / float64(w.Bound)
		out.ShareOfBound = &share
	}
	return out
}

// poolFlows adds up the figures of runs.
func poolFlows(out *Result, runs []*Result) {
	if runs[0].Flow == nil {
		return
	}
	all := &FlowResult{Modules: make([]FlowModule, len(runs[0].Flow.Modules))}
	if runs[0].Flow.Seen != nil {
		all.Seen = dropping.NewSeen(len(all.Modules))
		all.Seen.Modes = runs[0].Flow.Seen.Modes
	}
	for _, r := range runs {
		all.add(r.Flow)
	}
	out.setFlow(all)
}

// add adds the figures of a run. The workers by second are those of the latest run.
func (f *FlowResult) add(o *FlowResult) {
	f.Requests, f.Good, f.Late, f.Dropped = f.Requests+o.Requests, f.Good+o.Good, f.Late+o.Late, f.Dropped+o.Dropped
	f.DeviceTime += o.DeviceTime
	if f.Bound += o.Bound; o.Bound < 0 {
		f.Bound = -1
	}
	for i := range o.Modules {
		f.Modules[i].add(&o.Modules[i])
		if f.Seen != nil && o.Seen != nil {
			f.Seen.Add(i, o.Seen)
		}
	}
	for s, x := range o.Seconds {
		if s == len(f.Seconds) {
			f.Seconds = append(f.Seconds, FlowSecond{})
		}
		w := &f.Seconds[s]
		w.Arrived, w.Good, w.Bound, w.Carried = w.Arrived+x.Arrived, w.Good+x.Good, w.Bound+x.Bound, w.Carried+x.Carried
	}
}

// add adds the figures of a run of a module. The workers by second are those of the latest run.
func (m *FlowModule) add(x *FlowModule) {
	m.Name, m.Workers = x.Name, x.Workers
	m.Requests, m.Dropped, m.Ended = m.Requests+x.Requests, m.Dropped+x.Dropped, m.Ended+x.Ended
	m.Running, m.Invalid, m.Consumed = m.Running+x.Running, m.Invalid+x.Invalid, m.Consumed+x.Consumed
	for len(m.Runs) < len(x.Runs) {
		m.Runs = append(m.Runs, 0)
	}
	for size, n := range x.Runs {
		m.Runs[size] += n
	}
}
