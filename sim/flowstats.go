package sim

import (
	"time"

	"inferplan/policy"
	dropping "inferplan/policy/drop"
	flows "inferplan/policy/flow"
)

// FlowResult holds the figures of a run of applications beside its report. Only requests
// that the report counts count here, except for the times of devices.
type FlowResult struct {
	Modules []FlowModule
	Seconds []FlowSecond // by arrival
	// Good requests were answered in time, Late ones after their deadline. The work for late
	// and dropped requests is invalid.
	Requests, Good, Late, Dropped int64
	// Bound is an upper bound on the requests that any policy could have answered in time
	// (flowbound.go). It is -1 if it is unknown.
	Bound int64
	// DeviceTime is the sum over the workers of the time from the decision for a worker to
	// its removal.
	DeviceTime time.Duration
	Seen       *dropping.Seen // nil if the policy has no such figures
}

// FlowModule holds the figures of a module.
type FlowModule struct {
	Name     string
	Requests int64         // tasks of the module
	Dropped  int64         // requests that were dropped because of a task of the module
	Running  time.Duration // time of its devices on requests
	Invalid  time.Duration // the part of RunTime on requests that were not answered in time
	Consumed float64       // sum over the ended tasks of (end - arrival) / SLO
	Ended    int64
	Runs     []int64 // number of batches, by size
	Workers  []int32 // number of workers at the end of every second
}

// FlowSecond holds the figures of the requests that arrived within a second.
type FlowSecond struct {
	Arrived, Good int32
	Bound         int32   // how many of them the bound answers in time
	Carried       float64 // requests that the workers can serve in the second, with the planned batch sizes
}

// flowStats collects the FlowResult of a run.
type flowStats struct {
	l       *loop
	own     *flows.Tables
	n       int32           // number of services
	spent   []time.Duration // run time by request and service
	sums    FlowResult
	came    []time.Duration // arrival times of all requests
	up      []int32         // number of workers, by service
	modules [][]int32       // services that run on a device, by device
	there   []bool          // the worker serves, by device
	coming  []bool          // the worker is decided for and not loaded yet, by device
	since   []time.Duration // when the worker was decided for, by device, or -1 if there is none
}

// newFlowStats returns nil for plans of other kinds. It also draws the branches, if the
// applications have some and the run has no truth.
func newFlowStats(l *loop) *flowStats {
	own := flows.Of(l.t)
	if own == nil {
		return nil
	}
	f := &flowStats{l: l, own: own, n: int32(len(l.t.Services)), up: make([]int32, len(l.t.Services)), modules: make([][]int32, len(l.t.Devices)), there: make([]bool, len(l.t.Devices)), coming: make([]bool, len(l.t.Devices)), since: make([]time.Duration, len(l.t.Devices))}

	// Count the workers that are loaded from the start.
	for s := range l.t.Services {
		f.sums.Modules = append(f.sums.Modules, FlowModule{Name: l.t.Services[s].Name})
		for _, d := range own.Modules[s].Workers {
			f.modules[d], f.since[d] = append(f.modules[d], int32(s)), -1
			if len(l.t.Resident[d]) > 0 {
				f.since[d], f.there[d] = 0, true
				f.up[s]++
			}
		}
	}
	if l.truth == nil && hasWays(own) {
		l.truth = newWays(l.t, own, l.cfg.Seed)
	}
	return f
}

// addRequest counts a new request.
func (f *flowStats) arrive(req int32) {
	for int(req+1)*int(f.n) > len(f.spent) {
		f.spent = append(f.spent, 0)
	}
	clear(f.spent[req*f.n : (req+1)*f.n])
	at := f.l.requests[req].arrived
	f.came = append(f.came, at)
	if f.l.acc.Counted(at) {
		f.sums.Requests++
		f.second(at).Arrived++
	}
}

// secondOf returns the figures of the second that contains an instant.
func (f *flowStats) second(at time.Duration) *FlowSecond {
	s := int(at / time.Second)
	for len(f.sums.Seconds) <= s {
		f.sums.Seconds = append(f.sums.Seconds, FlowSecond{})
	}
	return &f.sums.Seconds[s]
}

// addBatch counts a batch of a module with its duration.
func (f *flowStats) ran(service int32, took time.Duration, members []int32) {
	m := &f.sums.Modules[service]
	for len(m.Runs) <= len(members) {
		m.Runs = append(m.Runs, 0)
	}
	m.Runs[len(members)]++
	m.Running += took
	each := took / time.Duration(len(members))
	for _, t := range members {
		req := f.l.tasks.List[t].Req
		q := &f.l.requests[req]
		if q.state != waiting { // dropped while it ran
			m.Invalid += each
			continue
		}
		f.spent[req*f.n+service] += each
		m.Consumed += float64(f.l.now-q.arrived) / float64(q.deadline-q.arrived)
		m.Ended++
	}
}

// addDrop counts a dropped request, at the module of the task that caused the drop. A task
// of -1 stands for the entry.
func (f *flowStats) dropped(req, task int32) {
	q := &f.l.requests[req]
	service := f.own.Apps[q.model].Nodes[0].Service
	if task >= 0 && int(task) < len(f.l.tasks.List) && f.l.tasks.List[task].Req == req {
		service = f.l.tasks.List[task].Service
	}
	if f.l.acc.Counted(q.arrived) {
		f.sums.Dropped++
		f.sums.Modules[service].Dropped++
	}
	f.void(req)
}

// markInvalid counts the run time of a request as invalid.
func (f *flowStats) void(req int32) {
	for s, d := range f.spent[req*f.n : (req+1)*f.n] {
		f.sums.Modules[s].Invalid += d
	}
}

// addAnswer counts the answer to a request.
func (f *flowStats) answered(req int32) {
	q := &f.l.requests[req]
	late := f.l.now+f.l.cfg.Egress > q.deadline
	if late {
		f.void(req)
	}
	switch {
	case !f.l.acc.Counted(q.arrived):
	case late:
		f.sums.Late++
	default:
		f.sums.Good++
		f.second(q.arrived).Good++
	}
}

// workerOrdered notes the decision for a worker.
func (f *flowStats) ordered(device int32) {
	f.coming[device] = true
	if f.since[device] < 0 {
		f.since[device] = f.l.now
	}
}

// workerChanged notes that a worker was loaded, or unloaded.
func (f *flowStats) change(device int32, up bool) {
	f.serves(device, up)
	switch {
	case up:
		f.coming[device] = false
	case f.since[device] >= 0:
		f.sums.DeviceTime += f.l.now - f.since[device]
		if f.since[device] = f.l.now; !f.coming[device] {
			f.since[device] = -1
		}
	}
}

// setServing notes that a worker serves, or no longer does.
func (f *flowStats) serves(device int32, up bool) {
	f.known(f.l.now)
	if f.there[device] == up {
		return
	}
	f.there[device] = up
	for _, s := range f.modules[device] {
		if up {
			f.up[s]++
		} else {
			f.up[s]--
		}
	}
}

// deviceFault notes that a device failed, or came back with the networks of the plan. The
// time of a failed device counts as device time.
func (f *flowStats) fault(device int32, back bool) {
	if !back || len(f.l.t.Resident[device]) > 0 {
		f.serves(device, back)
	}
}

// fillWorkerCounts stores the current number of workers for all seconds before now that have none.
func (f *flowStats) known(now time.Duration) {
	for s := range f.sums.Modules {
		m := &f.sums.Modules[s]
		for len(m.Workers) < int(now/time.Second) {
			m.Workers = append(m.Workers, f.up[s])
		}
	}
}

// addResult completes the figures and puts them into the result.
func (f *flowStats) result(r *Result) {
	f.known(f.l.now + time.Second)
	end := f.l.now
	if f.l.cfg.Duration > 0 {
		end = f.l.cfg.Duration
	}
	for _, at := range f.since {
		if at >= 0 {
			f.sums.DeviceTime += max(0, end-at)
		}
	}
	f.sums.Bound = f.bound()
	if p, ok := policy.As[interface{ Seen() *dropping.Seen }](f.l.cfg.Policy); ok {
		f.sums.Seen = p.Seen()
	}
	for s := range f.sums.Seconds {
		f.sums.Seconds[s].Carried = f.carried(s)
	}
	r.setFlow(&f.sums)
}

// capacityIn returns the requests that the workers can serve in a second: the least over
// the modules that every request visits.
func (f *flowStats) carried(second int) float64 {
	least, one := 0.0, false
	for a := range f.own.Apps {
		for i := range f.own.Apps[a].Nodes {
			n := &f.own.Apps[a].Nodes[i]
			if !n.Always {
				continue
			}
			w, p := f.sums.Modules[n.Service].Workers, &f.l.t.Pipelines[f.l.t.Services[n.Service].FirstPipeline]
			rate := float64(w[min(second, len(w)-1)]) * f.own.Modules[n.Service].Parts[0] * float64(p.Batch) / f.l.t.Stages[p.FirstStage].Infer[p.Batch-1].Seconds()
			if !one || rate < least {
				least, one = rate, true
			}
		}
	}
	return least
}
