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

// takesTasks returns true if a worker takes tasks.
func (w *worker) takesTasks() bool { return w.networkLoaded && w.isWanted && !w.isLost }

// waitingTasks returns how many tasks wait for a batch to form.
func (w *worker) waitingTasks() int { return w.queue.len() + w.setAside.len() }

// hasRoom returns true if the forming batch takes a further task.
func (w *worker) hasRoom() bool { return len(w.formingBatch) < int(w.formingLimit) }

// backlogTime returns how long the full batches take that a worker has to run before a further task can start:
// those of its forming batch and its queue.
func (w *worker) backlogTime() time.Duration {
	tasks := len(w.formingBatch) + w.waitingTasks()
	if !w.hasRoom() { // it counts as a planned batch
		tasks = int(w.plannedBatch) + w.waitingTasks()
	}
	return time.Duration(tasks/int(w.plannedBatch)) * w.fullBatchTime
}

// dropUnwanted removes the tasks of closed requests from the forming batch.
func (w *worker) dropUnwanted(tasks *flow.TaskTable) {
	wanted := w.formingBatch[:0]
	for i := range w.formingBatch {
		if tasks.IsWanted(&w.formingBatch[i]) {
			wanted = append(wanted, w.formingBatch[i])
		}
	}
	w.formingBatch = wanted
	if len(wanted) == 0 {
		w.formingLimit = w.plannedBatch
	}
}

// removeAll moves all tasks that have not started to a list.
func (w *worker) removeAll(tasks []flow.QueueEntry) []flow.QueueEntry {
	tasks = append(append(append(tasks, w.formingBatch...), w.queue.list...), w.setAside.list...)
	w.formingLimit = w.plannedBatch
	w.formingBatch, w.queue.list, w.setAside.list = w.formingBatch[:0], w.queue.list[:0], w.setAside.list[:0]
	return tasks
}
