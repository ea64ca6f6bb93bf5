package drop

import (
	"time"

	"inferplan/policy/flow"
)

// worker serves one module on a device. The batch slot of its batch is the number of the device: a device runs one batch
// at a time, whichever of its workers it belongs to.
type worker struct {
	id             int32 // index among the fleet's workers
	device, module int32
	indexInModule  int32 // index among the module's workers
	pipeline       int32
	stage          int32
	plannedBatch   int32           // planned batch size
	formingLimit   int32           // size limit of the forming batch: planned, or what its members have time for
	plannedTimes   []time.Duration // [n-1]: planned time of a batch of n
	batchTimes     []time.Duration // [n-1]: the same as measured lately (moduleSpeed)
	startedAt      time.Duration   // when the running batch started
	fullBatchTime  time.Duration   // time of a planned batch
	deviceShare    float64         // share of the device's time for the module; 1 if no other module is there
	batchInterval  time.Duration   // time from one planned batch to the next while tasks wait: fullBatchTime / deviceShare
	clockSkew      time.Duration   // how far its clock is off (Options.MaxClockSkew)
	batchEndsAt    time.Duration   // expected end of the running batch
	isRunning      bool
	networkLoaded  bool // its network is loaded
	isWanted       bool // scaling wants it to take tasks
	isLoading      bool
	isLost         bool
	runningBatch   []flow.QueueEntry // the running batch
	formingBatch   []flow.QueueEntry // the next one
	queue          doubleEndedQueue
	setAside       doubleEndedQueue // older tasks for which there is no time (feas)
	proof          feasibilityProof
}

// takesTasks reports whether a worker takes new tasks: its network is loaded, scaling wants it, and its device is not lost.
func (worker *worker) takesTasks() bool {
	return worker.networkLoaded && worker.isWanted && !worker.isLost
}

// waitingTasks returns how many tasks of a worker wait to enter a batch, in its queue and set aside.
func (worker *worker) waitingTasks() int { return worker.queue.len() + worker.setAside.len() }

// hasRoom reports whether the forming batch (the next one) of a worker takes a further task.
func (worker *worker) hasRoom() bool { return len(worker.formingBatch) < int(worker.formingLimit) }

// backlogTime returns how long the batches take that a worker has to run before a further task can start. These are
// the planned batches that the tasks of its forming batch and its queues fill; the further task joins the batch behind
// them.
func (worker *worker) backlogTime() time.Duration {
	tasks := len(worker.formingBatch) + worker.waitingTasks()
	if !worker.hasRoom() { // a full forming batch takes no more tasks, even if its limit is below the planned size
		tasks = int(worker.plannedBatch) + worker.waitingTasks()
	}
	return time.Duration(tasks/int(worker.plannedBatch)) * worker.fullBatchTime
}

// dropUnwanted removes the tasks of closed requests from a worker's forming batch, the next one to start. If none is
// left, the batch may have its planned size again.
func (worker *worker) dropUnwanted(tasks *flow.TaskTable) {
	wanted := worker.formingBatch[:0]
	for i := range worker.formingBatch {
		if tasks.IsWanted(&worker.formingBatch[i]) {
			wanted = append(wanted, worker.formingBatch[i])
		}
	}
	worker.formingBatch = wanted
	if len(wanted) == 0 {
		worker.formingLimit = worker.plannedBatch
	}
}

// removeAll removes all tasks of a worker that have not started, those of its forming batch and of its queues, and returns
// `removed` with these tasks appended.
func (worker *worker) removeAll(removed []flow.QueueEntry) []flow.QueueEntry {
	removed = append(removed, worker.formingBatch...)
	removed = append(removed, worker.queue.list...)
	removed = append(removed, worker.setAside.list...)
	worker.formingLimit = worker.plannedBatch
	worker.formingBatch, worker.queue.list, worker.setAside.list = worker.formingBatch[:0], worker.queue.list[:0], worker.setAside.list[:0]
	return removed
}
