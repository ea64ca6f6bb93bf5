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
	Bound int64 `runs:"known"`
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
	Workers       []int32 `runs:"latest"` // number of workers at the end of every second
}

// FlowSecond holds the figures of the requests that arrived within a second.
type FlowSecond struct {
	Arrived, Good int32
	Bound         int32   // how many of them the bound answers in time
	Capacity      float64 // requests that the workers can serve in the second, with the planned batch sizes
}

// flowStats collects the FlowResult of a run. A worker is a module on a device.
type flowStats struct {
	loop             *loop
	tables           *flows.GraphTables
	services         int32           // number of services
	runTimes         []time.Duration // [request slot * services + service]: time of devices on the request
	totals           FlowResult
	arrivalTimes     []time.Duration // arrival times of all requests
	workersUp        []int32         // number of workers, by service
	servicesByDevice [][]int32       // by device: the services that run on it
	isServing        []bool          // by device: its workers are loaded and serve
	isLoadOrdered    []bool          // by device: its worker is decided for and not loaded yet
	presentSince     []time.Duration // by device: when its worker was decided for; -1 if there is none
}

// newFlowStats returns the collector of figures of applications for a run. For plans of other kinds it returns nil. It
// also makes the random outcomes of branches, if the applications have some and the run was given no truth (what
// requests really do). Such a truth is put into the run.
func newFlowStats(loop *loop) *flowStats {
	tables := flows.GraphTablesOf(loop.tables)
	if tables == nil {
		return nil
	}
	services, devices := len(loop.tables.Services), len(loop.tables.Devices)
	stats := &flowStats{
		loop: loop, tables: tables, services: int32(services), workersUp: make([]int32, services),
		servicesByDevice: make([][]int32, devices), isServing: make([]bool, devices), isLoadOrdered: make([]bool, devices), presentSince: make([]time.Duration, devices),
	}

	// Count the workers that are loaded from the start. Devices without a loaded network are not in use (presentSince -1).
	for service := range loop.tables.Services {
		stats.totals.Modules = append(stats.totals.Modules, FlowModule{Name: loop.tables.Services[service].Name})
		for _, deviceIndex := range tables.Modules[service].Workers {
			stats.servicesByDevice[deviceIndex] = append(stats.servicesByDevice[deviceIndex], int32(service))
			stats.presentSince[deviceIndex] = -1
			if len(loop.tables.Resident[deviceIndex]) > 0 {
				stats.presentSince[deviceIndex], stats.isServing[deviceIndex] = 0, true
				stats.workersUp[service]++
			}
		}
	}
	if loop.truth == nil && hasBranches(tables) {
		loop.truth = newBranchTruth(loop.tables, tables, loop.cfg.Seed)
	}
	return stats
}

// addRequest counts a new request for the second of its arrival, and clears the run times of its slot. runTimes has one
// time per service for each slot, at slot * services.
func (f *flowStats) addRequest(req int32) {
	for int(req+1)*int(f.services) > len(f.runTimes) {
		f.runTimes = append(f.runTimes, 0)
	}
	clear(f.runTimes[req*f.services : (req+1)*f.services])
	arrivedAt := f.loop.ledger.requests[req].arrivedAt
	f.arrivalTimes = append(f.arrivalTimes, arrivedAt)
	if f.loop.ledger.reportCounts.IsCounted(arrivedAt) {
		f.totals.Requests++
		f.secondOf(arrivedAt).Arrived++
	}
}

// secondOf returns the figures of the second that contains an instant. The list of seconds grows up to it.
func (f *flowStats) secondOf(instant time.Duration) *FlowSecond {
	second := int(instant / time.Second)
	for len(f.totals.Seconds) <= second {
		f.totals.Seconds = append(f.totals.Seconds, FlowSecond{})
	}
	return &f.totals.Seconds[second]
}

// addBatch counts a batch of a service whose run took `duration`, which is divided equally among its tasks (members).
// The time of a task whose request was dropped while it ran was in vain. ConsumedSLO grows by the part of the
// request's SLO that has passed by now.
func (f *flowStats) addBatch(service int32, duration time.Duration, members []int32) {
	module := &f.totals.Modules[service]
	module.countBatches(len(members), 1)
	module.RunTime += duration

	// Divide the time among the tasks.
	perTask := duration / time.Duration(len(members))
	for _, task := range members {
		req := f.loop.ledger.tasks.List[task].Req
		request := &f.loop.ledger.requests[req]
		if request.state != requestOpen { // dropped while it ran
			module.InvalidTime += perTask
			continue
		}
		f.runTimes[req*f.services+service] += perTask
		module.ConsumedSLO += float64(f.loop.agenda.now-request.arrivedAt) / float64(request.deadline-request.arrivedAt)
		module.EndedTasks++
	}
}

// addDrop counts a dropped request, at the module of the task that caused the drop, and its run time so far as in vain.
// A task of -1, or a task slot that belongs to another request by now, stands for the entry: the module of the
// application's first node.
func (f *flowStats) addDrop(req, task int32) {
	request := &f.loop.ledger.requests[req]
	service := f.tables.Apps[request.model].Nodes[0].Service
	if task >= 0 && int(task) < len(f.loop.ledger.tasks.List) && f.loop.ledger.tasks.List[task].Req == req {
		service = f.loop.ledger.tasks.List[task].Service
	}
	if f.loop.ledger.reportCounts.IsCounted(request.arrivedAt) {
		f.totals.Dropped++
		f.totals.Modules[service].Dropped++
	}
	f.markInvalid(req)
}

// markInvalid counts all run time spent on a request as invalid, because it was dropped or is late.
func (f *flowStats) markInvalid(req int32) {
	for service, runTime := range f.runTimes[req*f.services : (req+1)*f.services] {
		f.totals.Modules[service].InvalidTime += runTime
	}
}

// addAnswer counts the answer to a request, as good or late. All run time of a late request was in vain. Requests
// outside of the counted time (warm-up) are left out of the counts.
func (f *flowStats) addAnswer(req int32) {
	request := &f.loop.ledger.requests[req]
	isLate := f.loop.agenda.now+f.loop.cfg.Egress > request.deadline
	if isLate {
		f.markInvalid(req)
	}
	switch {
	case !f.loop.ledger.reportCounts.IsCounted(request.arrivedAt):
	case isLate:
		f.totals.Late++
	default:
		f.totals.Good++
		f.secondOf(request.arrivedAt).Good++
	}
}

// workerOrdered notes that the policy has ordered the load of a device's worker. From then on the device counts as
// used.
func (f *flowStats) workerOrdered(device int32) {
	f.isLoadOrdered[device] = true
	if f.presentSince[device] < 0 {
		f.presentSince[device] = f.loop.agenda.now
	}
}

// workerChanged notes that a device's worker was loaded, or unloaded. A device is in use from the order of its load
// (workerOrdered sets presentSince then) until its worker is unloaded; the time in use is added up in DeviceTime. An
// unload ends one use of the device. If another load was ordered before it, the next use begins at once; otherwise
// presentSince is -1, which means that the device is not in use.
func (f *flowStats) workerChanged(device int32, isLoaded bool) {
	f.setServing(device, isLoaded)
	switch {
	case isLoaded:
		f.isLoadOrdered[device] = false
	case f.presentSince[device] >= 0:
		f.totals.DeviceTime += f.loop.agenda.now - f.presentSince[device]
		f.presentSince[device] = f.loop.agenda.now
		if !f.isLoadOrdered[device] {
			f.presentSince[device] = -1
		}
	}
}

// setServing notes that a device's workers (a module on a device) begin to serve or stop, when a load or an unload
// ends or the device is lost. The counts of workers up to now are written first.
func (f *flowStats) setServing(device int32, isServing bool) {
	f.fillWorkerCounts(f.loop.agenda.now)
	if f.isServing[device] == isServing {
		return
	}
	f.isServing[device] = isServing
	for _, service := range f.servicesByDevice[device] {
		if isServing {
			f.workersUp[service]++
		} else {
			f.workersUp[service]--
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

// fillWorkerCounts stores the current number of workers of every service for all seconds before now that have none. It
// is called before that number changes, and at the end.
func (f *flowStats) fillWorkerCounts(now time.Duration) {
	for service := range f.totals.Modules {
		module := &f.totals.Modules[service]
		for len(module.Workers) < int(now/time.Second) {
			module.Workers = append(module.Workers, f.workersUp[service])
		}
	}
}

// addResult completes the figures at the end of a run and puts them into the result: device time, the bound, the
// capacity of each second, and the policy's own statistics if it keeps some.
func (f *flowStats) addResult(result *Result) {
	f.fillWorkerCounts(f.loop.agenda.now + time.Second)

	// Add the time of the devices that are still in use.
	end := f.loop.agenda.now
	if f.loop.cfg.Duration > 0 {
		end = f.loop.cfg.Duration
	}
	for _, presentSince := range f.presentSince {
		if presentSince >= 0 {
			f.totals.DeviceTime += max(0, end-presentSince)
		}
	}
	f.totals.Bound = f.maxGoodRequests()

	// Add the policy's own statistics, and the capacity of each second.
	if statisticsSource, ok := policy.FindExtension[interface {
		Statistics() *dropping.RunStatistics
	}](f.loop.cfg.Policy); ok {
		f.totals.DropStats = statisticsSource.Statistics()
	}
	for second := range f.totals.Seconds {
		f.totals.Seconds[second].Capacity = f.capacityIn(second)
	}
	result.Flow = &f.totals
}

// capacityIn returns how many requests per second the workers that are present in a second of the run can serve: the
// least over the modules that every request visits, at their planned batch sizes. A worker serves batch / run time,
// times the share of its device's time that the plan gives the module. Without any such module it returns 0.
func (f *flowStats) capacityIn(second int) float64 {
	minRate, found := 0.0, false
	for app := range f.tables.Apps {
		for nodeIndex := range f.tables.Apps[app].Nodes {
			node := &f.tables.Apps[app].Nodes[nodeIndex]
			if !node.AlwaysReached {
				continue
			}
			workers := f.totals.Modules[node.Service].Workers // by second
			workerCount := workers[min(second, len(workers)-1)]
			deviceShare := f.tables.Modules[node.Service].DeviceShares[0]
			pipeline := &f.loop.tables.Pipelines[f.loop.tables.Services[node.Service].FirstPipeline]
			batchTime := f.loop.tables.Stages[pipeline.FirstStage].Infer[pipeline.Batch-1]
			rate := float64(workerCount) * deviceShare * float64(pipeline.Batch) / batchTime.Seconds()
			if !found || rate < minRate {
				minRate, found = rate, true
			}
		}
	}
	return minRate
}
