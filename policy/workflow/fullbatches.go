package workflow

// fullBatchFinder finds the first full batch in a queue. That batch runs before the first task that may run, if this
// task can still be in time behind it: full batches do the most work per device time.
type fullBatchFinder struct {
	firstRunnable  int32          // queue position of the first task that may run; -1 if none yet
	latestStart    int64          // latest start of that task, in ns
	partialBatches []partialBatch // by service
}

// partialBatch is the batch that the tasks of a service seen so far would form.
type partialBatch struct {
	firstPosition, size int32 // position of its first task, and number of tasks
	workFactor          int64 // largest work factor
}

// newFullBatchFinder returns a finder of full batches in the queues of devices. services is the number of services.
func newFullBatchFinder(services int) fullBatchFinder {
	return fullBatchFinder{partialBatches: make([]partialBatch, services)}
}

// reset forgets the tasks that were added, so that another queue can be looked at.
func (f *fullBatchFinder) reset() {
	f.firstRunnable = -1
	clear(f.partialBatches)
}

// addTask adds the next task of a device's queue that may run, with its queue position.
// If it completes a full batch that may run first, it returns the position of the batch's first task, otherwise -1.
// A batch may run before the first task of the queue that may run if that task can still start in time behind it.
func (f *fullBatchFinder) addTask(tables *deviceTables, task *task, deviceIndex, position int32, now int64) int32 {
	// The first task that may run could start until latestStart. Its order key, by Options.ByDeadline, is the latest end with
	// which its request is in time.
	if f.firstRunnable < 0 {
		f.firstRunnable, f.latestStart = position, task.orderKey-tables.batchTime(task.service, deviceIndex, 1, task.workFactor)
	}
	if tables.isLanguageModel(task.service) {
		return -1 // its tasks are sequences, which need not start together
	}

	// Add the task to the batch of its service.
	batch, maxBatch := &f.partialBatches[task.service], tables.profileOn(task.service, deviceIndex).maxBatch
	if batch.size == 0 {
		batch.firstPosition = position
	}
	batch.size, batch.workFactor = batch.size+1, max(batch.workFactor, task.workFactor)
	if batch.size != maxBatch {
		return -1 // the task does not make it full
	}

	// A full batch may run first if it has the first task that may run, or if that task can still start in time behind it.
	hasFirstTask := batch.firstPosition == f.firstRunnable
	if hasFirstTask || now+tables.batchTime(task.service, deviceIndex, maxBatch, batch.workFactor) <= f.latestStart {
		return batch.firstPosition
	}
	return -1
}
