package drop

import (
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// workerFleet holds the workers of all modules: which of them take tasks, and which load or unload networks.
type workerFleet struct {
	tables        *policy.Tables
	graphTables   *flow.GraphTables
	shortestQueue bool            // a task goes to the worker that can start it first
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

// moduleWorkers holds the workers of a service.
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

// newWorkerFleet returns the workers (a module on a device) of a plan's tables. With jsq, tasks join the worker
// that could start them earliest, otherwise they are dealt in turn.
func newWorkerFleet(t *policy.Tables, graphTables *flow.GraphTables, jsq bool) *workerFleet {
	f := &workerFleet{tables: t, graphTables: graphTables, shortestQueue: jsq, modules: make([]moduleWorkers, len(t.Services)), devices: make([]device, len(t.Devices))}
	f.addWorkers()
	for m := range f.modules {
		f.initModule(int32(m))
	}
	return f
}

// addWorkers creates, when the policy is made, the workers (a module on a device) of all devices, and numbers them
// device after device, so that those that take turns are neighbours.
func (f *workerFleet) addWorkers() {
	// Collect the workers of each device.
	byDevice := make([][]worker, len(f.devices))
	for m := range f.modules {
		s, i := &f.tables.Services[m], 0
		f.modules[m].workers = make([]int32, len(f.graphTables.Modules[m].Workers))
		for pl := s.FirstPipeline; pl < s.FirstPipeline+s.NumPipelines; pl++ {
			pipe := &f.tables.Pipelines[pl]
			stage := &f.tables.Stages[pipe.FirstStage]
			for _, d := range f.tables.DevicesOf(pipe.FirstStage) {
				w := worker{device: d, module: int32(m), indexInModule: int32(i), pipeline: pl, stage: pipe.FirstStage, plannedBatch: pipe.Batch, formingLimit: pipe.Batch,
					plannedTimes: stage.Infer, batchTimes: stage.Infer, fullBatchTime: stage.Infer[pipe.Batch-1], deviceShare: f.graphTables.Modules[m].DeviceShares[i]}
				w.batchInterval = batchInterval(w.fullBatchTime, w.deviceShare)
				byDevice[d] = append(byDevice[d], w)
				i++
			}
		}
	}

	// Number them device after device.
	for d := range byDevice {
		f.devices[d] = device{firstWorker: int32(len(f.workers)), workers: int32(len(byDevice[d])), runningWorker: -1}
		for i := range byDevice[d] {
			byDevice[d][i].id = int32(len(f.workers) + i)
			f.modules[byDevice[d][i].module].workers[byDevice[d][i].indexInModule] = byDevice[d][i].id
		}
		f.workers = append(f.workers, byDevice[d]...)
	}
}

// batchInterval returns the time from one batch to the next on a device that has only a share of its time for them.
func batchInterval(batchTime time.Duration, deviceShare float64) time.Duration {
	if deviceShare == 1 {
		return batchTime
	}
	return time.Duration(float64(batchTime) / deviceShare)
}

// initModule sets which workers of a module serve at the start: all, or with scaling the first ones, as many as the
// plan starts with.
func (f *workerFleet) initModule(m int32) {
	mod := &f.modules[m]
	mod.earliestStart = newStartTree(len(mod.workers))
	mod.targetWorkers = len(mod.workers)
	if f.graphTables.Scaling != nil {
		mod.targetWorkers = f.graphTables.Scaling.StartWorkers[m]
	}
	for i, id := range mod.workers {
		w := &f.workers[id]
		w.isWanted = i < mod.targetWorkers
		w.networkLoaded = w.isWanted
	}
	f.refreshLive(m)
}

// workersOn returns the workers of a device.
func (f *workerFleet) workersOn(d int32) []worker {
	return f.workers[f.devices[d].firstWorker:][:f.devices[d].workers]
}

// runningWorker returns the worker whose batch runs on a device. If none runs, it returns nil.
func (f *workerFleet) runningWorker(d int32) *worker {
	if id := f.devices[d].runningWorker; id >= 0 {
		return &f.workers[id]
	}
	return nil
}

// takesTurns returns true if other modules run on a worker's device, too.
func (f *workerFleet) takesTurns(w *worker) bool { return f.devices[w.device].workers > 1 }

// startTime returns when a worker could start a further task: at once if its device is idle, otherwise behind the full
// batches of all tasks that wait on the device.
func (f *workerFleet) startTime(w *worker) time.Duration {
	runningWorker := f.runningWorker(w.device)
	switch {
	case runningWorker == nil:
		return 0
	case !f.takesTurns(w):
		return w.batchEndsAt + w.backlogTime()
	}
	startAt, workers := runningWorker.batchEndsAt, f.workersOn(w.device)
	for i := range workers {
		startAt += workers[i].backlogTime()
	}
	return startAt
}

// learnSpeeds makes estimates follow the measured times of batches.
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

// refreshLive computes anew which workers of a module take tasks, their joint capacity in tasks per second, and
// when each could start one more. It is called when a worker was lost, loaded or is no longer wanted.
func (f *workerFleet) refreshLive(m int32) {
	mod := &f.modules[m]
	mod.liveWorkers, mod.capacity = mod.liveWorkers[:0], 0
	for i, id := range mod.workers {
		if w := &f.workers[id]; w.takesTasks() {
			mod.liveWorkers = append(mod.liveWorkers, id)
			mod.capacity += float64(w.plannedBatch) / w.batchInterval.Seconds()
			mod.earliestStart.setStart(i, f.startTime(w))
		} else {
			mod.earliestStart.setStart(i, farFuture)
		}
	}
	if mod.nextLive >= len(mod.liveWorkers) {
		mod.nextLive = 0
	}
}

// nextWorker returns the worker of a module that takes the next task: with shortestQueue the one that could start
// it earliest, otherwise the next in turn. If no worker takes tasks, it returns nil.
func (f *workerFleet) nextWorker(m int32) *worker {
	mod := &f.modules[m]
	switch {
	case len(mod.liveWorkers) == 0:
		return nil
	case f.shortestQueue:
		return &f.workers[mod.workers[mod.earliestStart.earliestWorker()]]
	}
	id := mod.liveWorkers[mod.nextLive]
	if mod.nextLive++; mod.nextLive == len(mod.liveWorkers) {
		mod.nextLive = 0
	}
	return &f.workers[id]
}

// batchWait returns how long a further task of a module would wait until a worker could start it. Without workers
// it returns 0.
func (f *workerFleet) batchWait(now time.Duration, m int32) time.Duration {
	mod := &f.modules[m]
	switch {
	case len(mod.liveWorkers) == 0:
		return 0
	case f.shortestQueue:
		return max(0, mod.earliestStart.startTimes[mod.earliestStart.earliestWorker()]-now)
	}
	return max(0, f.startTime(&f.workers[mod.liveWorkers[mod.nextLive]])-now)
}

// updateStarts updates when the workers of a device could start a further task, after its work has changed. Only
// the choice by shortest queue reads that.
func (f *workerFleet) updateStarts(w *worker) {
	if !f.shortestQueue {
		return
	}
	workers := f.workersOn(w.device)
	for i := range workers {
		if other := &workers[i]; other.takesTasks() {
			f.modules[other.module].earliestStart.setStart(int(other.indexInModule), f.startTime(other))
		}
	}
}

// networkOf returns the network of a worker.
func (f *workerFleet) networkOf(w *worker) int32 { return f.tables.Pipelines[w.pipeline].Network }

// startLoad loads the network of a worker.
func (f *workerFleet) startLoad(w *worker, out *policy.Actions) {
	w.isLoading = true
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: f.networkOf(w), Device: w.device})
}

// unloadWorker unloads the network of a worker that has no tasks left.
func (f *workerFleet) unloadWorker(w *worker, out *policy.Actions) {
	w.networkLoaded = false
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: f.networkOf(w), Device: w.device})
}

// handleLoaded handles the end of a load. A load that has failed is repeated.
func (f *workerFleet) handleLoaded(w *worker, ok bool, out *policy.Actions) {
	switch {
	case !w.isLoading || w.isLost:
		return
	case !ok:
		f.startLoad(w, out) // try again
		return
	}
	w.isLoading, w.networkLoaded = false, true
	f.refreshLive(w.module)
}

// handleWorkerBack takes a worker back after its device was lost. It is empty and holds the resident networks.
func (f *workerFleet) handleWorkerBack(w *worker, out *policy.Actions) {
	w.isLost = false
	w.networkLoaded = slices.Contains(f.tables.Resident[w.device], f.networkOf(w))
	switch {
	case !w.isWanted && w.networkLoaded:
		f.unloadWorker(w, out)
	case w.isWanted && !w.networkLoaded:
		f.startLoad(w, out)
	}
	f.refreshLive(w.module)
}

// setTargetWorkers decides that the first n workers of a module serve. Missing networks are loaded now. The number takes
// effect after the module's cold start; then the other workers finish their tasks and unload.
func (f *workerFleet) setTargetWorkers(now time.Duration, m int32, n int, out *policy.Actions) {
	mod := &f.modules[m]
	for _, id := range mod.workers[min(mod.targetWorkers, n):n] {
		if w := &f.workers[id]; !w.isLost && !w.isLoading {
			f.startLoad(w, out)
		}
	}
	if n != mod.targetWorkers {
		mod.targetWorkers = n
		mod.pendingSizes = append(mod.pendingSizes, sizeChange{now + f.graphTables.Modules[m].ColdStart, n})
	}
}

// applySizes applies the decisions on the number of a module's workers that have taken effect by now; of several
// only the latest counts. Workers beyond the number take no more tasks, and unload once they are idle.
func (f *workerFleet) applySizes(now time.Duration, m int32, out *policy.Actions) {
	mod := &f.modules[m]
	dueChanges := 0
	for dueChanges < len(mod.pendingSizes) && mod.pendingSizes[dueChanges].effectiveAt <= now {
		dueChanges++
	}

	// Only the latest decision counts.
	if dueChanges == 0 {
		return
	}
	n := mod.pendingSizes[dueChanges-1].workers
	mod.pendingSizes = mod.pendingSizes[:copy(mod.pendingSizes, mod.pendingSizes[dueChanges:])]
	for i, id := range mod.workers {
		w := &f.workers[id]
		w.isWanted = i < n
		if !w.isWanted && w.networkLoaded && !w.isRunning {
			f.unloadWorker(w, out)
		}
	}
	f.refreshLive(m)
}
