package drop

import (
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// workerFleet holds the workers of all modules (a worker is a module on a device): which of them take tasks, and
// which load or unload networks.
type workerFleet struct {
	tables        *policy.Tables
	graphTables   *flow.GraphTables
	shortestQueue bool            // a task goes to the worker that can start it first; otherwise to the next in turn
	modules       []moduleWorkers // by service
	devices       []device
	workers       []worker      // device after device
	speeds        []moduleSpeed // by service; nil if the plan's times count
}

// device has a worker for each module that runs on it. The workers take turns.
type device struct {
	firstWorker, workers int32 // its range in the fleet's workers
	runningWorker        int32 // worker whose batch runs; -1 if none
}

// moduleWorkers holds the workers of a module (a service): those that there are, and those that take tasks now.
type moduleWorkers struct {
	workers       []int32      // in the order in which scaling uses them
	liveWorkers   []int32      // those that take tasks
	nextLive      int          // index in liveWorkers of the next one in round robin
	earliestStart startTree    // by worker: the earliest start of a further task
	capacity      float64      // tasks per second of the live workers
	targetWorkers int          // number of workers that scaling has decided on
	pendingSizes  []sizeChange // decisions that are not in force yet
}

// sizeChange is a number of workers that takes effect at a time.
type sizeChange struct {
	effectiveAt time.Duration
	workers     int
}

// newWorkerFleet returns the workers (a module on a device each) of a plan's tables, when the policy is made. With
// shortestQueue a new task goes to the worker of its module that could start it earliest, otherwise to the workers in
// turn.
func newWorkerFleet(tables *policy.Tables, graphTables *flow.GraphTables, shortestQueue bool) *workerFleet {
	fleet := &workerFleet{tables: tables, graphTables: graphTables, shortestQueue: shortestQueue, modules: make([]moduleWorkers, len(tables.Services)), devices: make([]device, len(tables.Devices))}
	fleet.addWorkers()
	for module := range fleet.modules {
		fleet.initModule(int32(module))
	}
	return fleet
}

// addWorkers creates, when the policy is made, the workers (a module on a device) of all devices, and numbers them
// device after device, so that those that take turns are neighbours.
func (f *workerFleet) addWorkers() {
	// Collect the workers of each device. index counts the workers of a module; the plan lists the shares that they have of
	// their devices in that order.
	byDevice := make([][]worker, len(f.devices))
	for module := range f.modules {
		service, index := &f.tables.Services[module], 0
		f.modules[module].workers = make([]int32, len(f.graphTables.Modules[module].Workers))
		for pipelineIndex := service.FirstPipeline; pipelineIndex < service.FirstPipeline+service.NumPipelines; pipelineIndex++ {
			pipeline := &f.tables.Pipelines[pipelineIndex]
			stage := &f.tables.Stages[pipeline.FirstStage]
			for _, deviceIndex := range f.tables.DevicesOf(pipeline.FirstStage) {
				newWorker := worker{device: deviceIndex, module: int32(module), indexInModule: int32(index), pipeline: pipelineIndex, stage: pipeline.FirstStage, plannedBatch: pipeline.Batch, formingLimit: pipeline.Batch,
					plannedTimes: stage.Infer, batchTimes: stage.Infer, fullBatchTime: stage.Infer[pipeline.Batch-1], deviceShare: f.graphTables.Modules[module].DeviceShares[index]}
				newWorker.batchInterval = batchInterval(newWorker.fullBatchTime, newWorker.deviceShare)
				byDevice[deviceIndex] = append(byDevice[deviceIndex], newWorker)
				index++
			}
		}
	}

	// Number them device after device, and list each module's workers by these numbers, in the order of the plan.
	for deviceIndex := range byDevice {
		f.devices[deviceIndex] = device{firstWorker: int32(len(f.workers)), workers: int32(len(byDevice[deviceIndex])), runningWorker: -1}
		for index := range byDevice[deviceIndex] {
			newWorker := &byDevice[deviceIndex][index]
			newWorker.id = int32(len(f.workers) + index)
			f.modules[newWorker.module].workers[newWorker.indexInModule] = newWorker.id
		}
		f.workers = append(f.workers, byDevice[deviceIndex]...)
	}
}

// batchInterval returns the time from one batch to the next on a device that has only a share of its time (0 to 1)
// for batches that take batchTime.
func batchInterval(batchTime time.Duration, deviceShare float64) time.Duration {
	if deviceShare == 1 {
		return batchTime
	}
	return time.Duration(float64(batchTime) / deviceShare)
}

// initModule sets which workers of a module are wanted and have their network at the start: all or, with scaling (the
// number of workers follows the rate), the first ones, as many as the plan starts with.
func (f *workerFleet) initModule(module int32) {
	workers := &f.modules[module]
	workers.earliestStart = newStartTree(len(workers.workers))
	workers.targetWorkers = len(workers.workers)
	if f.graphTables.Scaling != nil {
		workers.targetWorkers = f.graphTables.Scaling.StartWorkers[module]
	}
	for i, id := range workers.workers {
		worker := &f.workers[id]
		worker.isWanted = i < workers.targetWorkers
		worker.networkLoaded = worker.isWanted
	}
	f.updateLiveWorkers(module)
}

// workersOn returns the workers of all modules on a device.
func (f *workerFleet) workersOn(device int32) []worker {
	return f.workers[f.devices[device].firstWorker:][:f.devices[device].workers]
}

// runningWorker returns the worker whose batch runs on a device. If none runs, it returns nil.
func (f *workerFleet) runningWorker(device int32) *worker {
	if id := f.devices[device].runningWorker; id >= 0 {
		return &f.workers[id]
	}
	return nil
}

// takesTurns reports whether other modules run on a worker's device, too, so that their workers take turns.
func (f *workerFleet) takesTurns(worker *worker) bool { return f.devices[worker.device].workers > 1 }

// startTime returns when a worker (a module on a device) could start a further task: at once (0) if its device is idle,
// otherwise behind the running batch and the full batches of all tasks that wait on the device. Where modules take
// turns, those of all of them count.
func (f *workerFleet) startTime(worker *worker) time.Duration {
	runningWorker := f.runningWorker(worker.device)
	switch {
	case runningWorker == nil:
		return 0
	case !f.takesTurns(worker):
		return worker.batchEndsAt + worker.backlogTime()
	}

	// Where modules take turns, the tasks of all of them are before it.
	startAt, workers := runningWorker.batchEndsAt, f.workersOn(worker.device)
	for i := range workers {
		startAt += workers[i].backlogTime()
	}
	return startAt
}

// learnSpeeds makes the estimated times of batches follow the measured ones from now on.
func (f *workerFleet) learnSpeeds() {
	for range f.modules {
		f.speeds = append(f.speeds, moduleSpeed{factor: 1})
	}
}

// skewClocks shifts the clock of every worker by a random time of at most maxSkew in either direction, to simulate
// machines whose clocks differ. 0 changes nothing.
func (f *workerFleet) skewClocks(maxSkew time.Duration, rng *rand.Rand) {
	for i := range f.workers {
		if maxSkew > 0 {
			f.workers[i].clockSkew = time.Duration(rng.Int64N(int64(2*maxSkew)+1)) - maxSkew
		}
	}
}

// updateLiveWorkers is called when a worker of a module was lost or loaded, is no longer wanted, or has other batch
// times. It computes anew which workers of the module take tasks (liveWorkers, by number), their joint capacity in tasks
// per second, and when each could start one more; farFuture stands for those that take none.
func (f *workerFleet) updateLiveWorkers(module int32) {
	workers := &f.modules[module]
	workers.liveWorkers, workers.capacity = workers.liveWorkers[:0], 0
	for i, id := range workers.workers {
		if worker := &f.workers[id]; worker.takesTasks() {
			workers.liveWorkers = append(workers.liveWorkers, id)
			workers.capacity += float64(worker.plannedBatch) / worker.batchInterval.Seconds()
			workers.earliestStart.setStart(i, f.startTime(worker))
		} else {
			workers.earliestStart.setStart(i, farFuture)
		}
	}
	if workers.nextLive >= len(workers.liveWorkers) {
		workers.nextLive = 0
	}
}

// nextWorker returns the worker of a module that takes the next task: with shortestQueue the one that could start it
// earliest, otherwise the next in turn. If no worker of the module takes tasks, it returns nil.
func (f *workerFleet) nextWorker(module int32) *worker {
	workers := &f.modules[module]
	switch {
	case len(workers.liveWorkers) == 0:
		return nil
	case f.shortestQueue:
		return &f.workers[workers.workers[workers.earliestStart.earliestWorker()]]
	}
	id := workers.liveWorkers[workers.nextLive]
	workers.nextLive++
	if workers.nextLive == len(workers.liveWorkers) {
		workers.nextLive = 0
	}
	return &f.workers[id]
}

// batchWait returns how long a task of a module that came now would wait until a worker could start it. Without
// workers it returns 0.
func (f *workerFleet) batchWait(now time.Duration, module int32) time.Duration {
	workers := &f.modules[module]
	switch {
	case len(workers.liveWorkers) == 0:
		return 0
	case f.shortestQueue:
		return max(0, workers.earliestStart.startTimes[workers.earliestStart.earliestWorker()]-now)
	}
	return max(0, f.startTime(&f.workers[workers.liveWorkers[workers.nextLive]])-now)
}

// updateStarts is called after the work of a worker's device has changed: a task was queued, or a batch formed, started
// or ended. It updates earliestStart, when each worker on the device could start a further task. Only the choice by
// shortest queue reads that.
func (f *workerFleet) updateStarts(worker *worker) {
	if !f.shortestQueue {
		return
	}
	workers := f.workersOn(worker.device)
	for i := range workers {
		if other := &workers[i]; other.takesTasks() {
			f.modules[other.module].earliestStart.setStart(int(other.indexInModule), f.startTime(other))
		}
	}
}

// networkOf returns the network (weights) that a worker needs.
func (f *workerFleet) networkOf(worker *worker) int32 {
	return f.tables.Pipelines[worker.pipeline].Network
}

// startLoad orders the load of a worker's network onto its device.
func (f *workerFleet) startLoad(worker *worker, out *policy.Actions) {
	worker.isLoading = true
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: f.networkOf(worker), Device: worker.device})
}

// unloadWorker orders the unload of the network of a worker that has no tasks left.
func (f *workerFleet) unloadWorker(worker *worker, out *policy.Actions) {
	worker.networkLoaded = false
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: f.networkOf(worker), Device: worker.device})
}

// handleLoaded handles the event NetworkLoaded of a worker: the load of its network has ended, and it takes tasks from
// now on. A load that has failed (ok is false) is repeated. A load that the worker did not order, or of a lost worker,
// is ignored.
func (f *workerFleet) handleLoaded(worker *worker, ok bool, out *policy.Actions) {
	switch {
	case !worker.isLoading || worker.isLost:
		return
	case !ok:
		f.startLoad(worker, out) // try again
		return
	}
	worker.isLoading, worker.networkLoaded = false, true
	f.updateLiveWorkers(worker.module)
}

// handleWorkerBack takes a worker back whose device was lost. It has no tasks, and holds the networks that the plan puts
// there. What it holds but is not wanted for is unloaded, and what it lacks is loaded.
func (f *workerFleet) handleWorkerBack(worker *worker, out *policy.Actions) {
	worker.isLost = false
	worker.networkLoaded = slices.Contains(f.tables.Resident[worker.device], f.networkOf(worker))
	switch {
	case !worker.isWanted && worker.networkLoaded:
		f.unloadWorker(worker, out)
	case worker.isWanted && !worker.networkLoaded:
		f.startLoad(worker, out)
	}
	f.updateLiveWorkers(worker.module)
}

// setTargetWorkers decides, for the rule by which the number of workers follows the rate, that the first `count` workers
// of a module serve. Missing networks are loaded now. The number takes effect after the module's cold start
// (applySizes); then the other workers finish their tasks and unload.
func (f *workerFleet) setTargetWorkers(now time.Duration, module int32, count int, out *policy.Actions) {
	workers := &f.modules[module]

	// Load the networks of the workers that are added.
	for _, id := range workers.workers[min(workers.targetWorkers, count):count] {
		if worker := &f.workers[id]; !worker.isLost && !worker.isLoading {
			f.startLoad(worker, out)
		}
	}
	if count != workers.targetWorkers {
		workers.targetWorkers = count
		workers.pendingSizes = append(workers.pendingSizes, sizeChange{now + f.graphTables.Modules[module].ColdStart, count})
	}
}

// applySizes applies the decisions on the number of a module's workers that have taken effect by now; of several
// only the latest counts. Workers beyond the number take no more tasks, and unload once they are idle.
func (f *workerFleet) applySizes(now time.Duration, module int32, out *policy.Actions) {
	workers := &f.modules[module]
	dueChanges := 0
	for dueChanges < len(workers.pendingSizes) && workers.pendingSizes[dueChanges].effectiveAt <= now {
		dueChanges++
	}

	// Only the latest decision counts. Remove all that are due.
	if dueChanges == 0 {
		return
	}
	count := workers.pendingSizes[dueChanges-1].workers
	workers.pendingSizes = workers.pendingSizes[:copy(workers.pendingSizes, workers.pendingSizes[dueChanges:])]
	for i, id := range workers.workers {
		worker := &f.workers[id]
		worker.isWanted = i < count
		if !worker.isWanted && worker.networkLoaded && !worker.isRunning {
			f.unloadWorker(worker, out)
		}
	}
	f.updateLiveWorkers(module)
}
