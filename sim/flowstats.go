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
	DropStats  *dropping.RunStatistics // nil if the policy has no such figures
}

// FlowModule holds the figures of a module.
type FlowModule struct {
	Name          string
	Requests      int64         // tasks of the module
	Dropped       int64         // requests that were dropped because of a task of the module
	RunTime       time.Duration // time of its devices on requests
	InvalidTime   time.Duration // the part of RunTime on requests that were not answered in time
	ConsumedSLO   float64       // sum over the ended tasks of (end - arrival) / SLO
	EndedTasks    int64
	BatchesBySize []int64 // number of batches, by size
	Workers       []int32 // number of workers at the end of every second
}

// FlowSecond holds the figures of the requests that arrived within a second.
type FlowSecond struct {
	Arrived, Good int32
	Bound         int32   // how many of them the bound answers in time
	Capacity      float64 // requests that the workers can serve in the second, with the planned batch sizes
}

// flowStats collects the FlowResult of a run.
type flowStats struct {
	loop         *loop
	tables       *flows.GraphTables
	services     int32           // number of services
	runTimes     []time.Duration // run time by request and service
	totals       FlowResult
	arrivalTimes []time.Duration // arrival times of all requests
	workersUp    []int32         // number of workers, by service
	modules      [][]int32       // services that run on a device, by device
	serving      []bool          // the worker serves, by device
	loadOrdered  []bool          // the worker is decided for and not loaded yet, by device
	presentSince []time.Duration // when the worker was decided for, by device, or -1 if there is none
}

// newFlowStats returns the collector of figures of applications for a run, and nil for plans of other kinds. It
// also makes the random outcomes of branches, if the applications have some and the run was given no truth (what
// requests really do).
func newFlowStats(l *loop) *flowStats {
	tables := flows.GraphTablesOf(l.tables)
	if tables == nil {
		return nil
	}
	stats := &flowStats{loop: l, tables: tables, services: int32(len(l.tables.Services)), workersUp: make([]int32, len(l.tables.Services)), modules: make([][]int32, len(l.tables.Devices)), serving: make([]bool, len(l.tables.Devices)), loadOrdered: make([]bool, len(l.tables.Devices)), presentSince: make([]time.Duration, len(l.tables.Devices))}

	// Count the workers that are loaded from the start.
	for s := range l.tables.Services {
		stats.totals.Modules = append(stats.totals.Modules, FlowModule{Name: l.tables.Services[s].Name})
		for _, d := range tables.Modules[s].Workers {
			stats.modules[d], stats.presentSince[d] = append(stats.modules[d], int32(s)), -1
			if len(l.tables.Resident[d]) > 0 {
				stats.presentSince[d], stats.serving[d] = 0, true
				stats.workersUp[s]++
			}
		}
	}
	if l.truth == nil && hasBranches(tables) {
		l.truth = newBranchTruth(l.tables, tables, l.cfg.Seed)
	}
	return stats
}

// addRequest counts a new request, for the second of its arrival, and clears the run times of its slot (one for
// each service).
func (f *flowStats) addRequest(req int32) {
	for int(req+1)*int(f.services) > len(f.runTimes) {
		f.runTimes = append(f.runTimes, 0)
	}
	clear(f.runTimes[req*f.services : (req+1)*f.services])
	arrivedAt := f.loop.ledger.requests[req].arrivedAt
	f.arrivalTimes = append(f.arrivalTimes, arrivedAt)
	if f.loop.ledger.acc.IsCounted(arrivedAt) {
		f.totals.Requests++
		f.secondOf(arrivedAt).Arrived++
	}
}

// secondOf returns the figures of the second that contains an instant.
func (f *flowStats) secondOf(at time.Duration) *FlowSecond {
	s := int(at / time.Second)
	for len(f.totals.Seconds) <= s {
		f.totals.Seconds = append(f.totals.Seconds, FlowSecond{})
	}
	return &f.totals.Seconds[s]
}

// addBatch counts a batch of a module that took `duration`, divided among its tasks. The time of a task whose
// request was dropped while it ran was in vain. ConsumedSLO is the part of the request's time budget that has
// passed by the end of the batch.
func (f *flowStats) addBatch(service int32, duration time.Duration, members []int32) {
	m := &f.totals.Modules[service]
	for len(m.BatchesBySize) <= len(members) {
		m.BatchesBySize = append(m.BatchesBySize, 0)
	}
	m.BatchesBySize[len(members)]++
	m.RunTime += duration
	perTask := duration / time.Duration(len(members))
	for _, t := range members {
		req := f.loop.ledger.tasks.List[t].Req
		q := &f.loop.ledger.requests[req]
		if q.state != requestOpen { // dropped while it ran
			m.InvalidTime += perTask
			continue
		}
		f.runTimes[req*f.services+service] += perTask
		m.ConsumedSLO += float64(f.loop.agenda.now-q.arrivedAt) / float64(q.deadline-q.arrivedAt)
		m.EndedTasks++
	}
}

// addDrop counts a dropped request, at the module of the task that caused the drop. A task
// of -1 stands for the entry.
func (f *flowStats) addDrop(req, task int32) {
	q := &f.loop.ledger.requests[req]
	service := f.tables.Apps[q.model].Nodes[0].Service
	if task >= 0 && int(task) < len(f.loop.ledger.tasks.List) && f.loop.ledger.tasks.List[task].Req == req {
		service = f.loop.ledger.tasks.List[task].Service
	}
	if f.loop.ledger.acc.IsCounted(q.arrivedAt) {
		f.totals.Dropped++
		f.totals.Modules[service].Dropped++
	}
	f.markInvalid(req)
}

// markInvalid counts the run time of a request as invalid.
func (f *flowStats) markInvalid(req int32) {
	for s, d := range f.runTimes[req*f.services : (req+1)*f.services] {
		f.totals.Modules[s].InvalidTime += d
	}
}

// addAnswer counts the answer to a request, as good or late. All run time of a late request was in vain. Requests
// outside the counted span (warm-up) are left out of the counts.
func (f *flowStats) addAnswer(req int32) {
	q := &f.loop.ledger.requests[req]
	isLate := f.loop.agenda.now+f.loop.cfg.Egress > q.deadline
	if isLate {
		f.markInvalid(req)
	}
	switch {
	case !f.loop.ledger.acc.IsCounted(q.arrivedAt):
	case isLate:
		f.totals.Late++
	default:
		f.totals.Good++
		f.secondOf(q.arrivedAt).Good++
	}
}

// workerOrdered notes that the policy has ordered the load of a device's worker. From then on the device counts as
// used.
func (f *flowStats) workerOrdered(device int32) {
	f.loadOrdered[device] = true
	if f.presentSince[device] < 0 {
		f.presentSince[device] = f.loop.agenda.now
	}
}

// workerChanged notes that a device's worker was loaded, or unloaded. After an unload the device is no longer used,
// unless another load was ordered.
func (f *flowStats) workerChanged(device int32, isLoaded bool) {
	f.setServing(device, isLoaded)
	switch {
	case isLoaded:
		f.loadOrdered[device] = false
	case f.presentSince[device] >= 0:
		f.totals.DeviceTime += f.loop.agenda.now - f.presentSince[device]
		if f.presentSince[device] = f.loop.agenda.now; !f.loadOrdered[device] {
			f.presentSince[device] = -1
		}
	}
}

// setServing notes that a device's workers (a module on a device) begin to serve or stop, when a load or an unload
// ends or the device is lost. The counts of workers up to now are written first.
func (f *flowStats) setServing(device int32, isServing bool) {
	f.fillWorkerCounts(f.loop.agenda.now)
	if f.serving[device] == isServing {
		return
	}
	f.serving[device] = isServing
	for _, s := range f.modules[device] {
		if isServing {
			f.workersUp[s]++
		} else {
			f.workersUp[s]--
		}
	}
}

// deviceFault notes that a device failed, or came back with the networks of the plan. The
// time of a failed device counts as device time.
func (f *flowStats) deviceFault(device int32, up bool) {
	if !up || len(f.loop.tables.Resident[device]) > 0 {
		f.setServing(device, up)
	}
}

// fillWorkerCounts stores the current number of workers for all seconds before now that have none.
func (f *flowStats) fillWorkerCounts(now time.Duration) {
	for s := range f.totals.Modules {
		m := &f.totals.Modules[s]
		for len(m.Workers) < int(now/time.Second) {
			m.Workers = append(m.Workers, f.workersUp[s])
		}
	}
}

// addResult completes the figures at the end of a run and puts them into the result: device time, the bound, the
// capacity of each second, and the policy's own statistics if it keeps some.
func (f *flowStats) addResult(r *Result) {
	f.fillWorkerCounts(f.loop.agenda.now + time.Second)
	end := f.loop.agenda.now
	if f.loop.cfg.Duration > 0 {
		end = f.loop.cfg.Duration
	}
	for _, since := range f.presentSince {
		if since >= 0 {
			f.totals.DeviceTime += max(0, end-since)
		}
	}
	f.totals.Bound = f.maxGoodRequests()
	if p, ok := policy.FindExtension[interface {
		Statistics() *dropping.RunStatistics
	}](f.loop.cfg.Policy); ok {
		f.totals.DropStats = p.Statistics()
	}
	for s := range f.totals.Seconds {
		f.totals.Seconds[s].Capacity = f.capacityIn(s)
	}
	r.setFlow(&f.totals)
}

// capacityIn returns how many requests per second the workers present in a second can serve: the least over the
// modules that every request visits, at their planned batches.
func (f *flowStats) capacityIn(second int) float64 {
	minRate, found := 0.0, false
	for a := range f.tables.Apps {
		for i := range f.tables.Apps[a].Nodes {
			n := &f.tables.Apps[a].Nodes[i]
			if !n.AlwaysReached {
				continue
			}
			w, p := f.totals.Modules[n.Service].Workers, &f.loop.tables.Pipelines[f.loop.tables.Services[n.Service].FirstPipeline]
			rate := float64(w[min(second, len(w)-1)]) * f.tables.Modules[n.Service].DeviceShares[0] * float64(p.Batch) / f.loop.tables.Stages[p.FirstStage].Infer[p.Batch-1].Seconds()
			if !found || rate < minRate {
				minRate, found = rate, true
			}
		}
	}
	return minRate
}
