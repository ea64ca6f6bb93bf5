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
	place          int32 // index among the module's workers
	pipeline       int32
	stage          int32
	batch          int32           // planned batch size
	limit          int32           // size limit of the forming batch: planned, or what its members have time for
	planned        []time.Duration // [n-1]: planned time of a batch of n
	infer          []time.Duration // [n-1]: the same as measured lately (moduleSpeed)
	began          time.Duration   // when the running batch started
	full           time.Duration   // time of a planned batch
	part           float64         // share of the device's time for the module; 1 if no other module is there
	every          time.Duration   // time from one planned batch to the next while tasks wait: fullBatchTime / deviceShare
	off            time.Duration   // how far its clock is off (Options.MaxClockSkew)
	end            time.Duration   // expected end of the running batch
	running        bool
	up             bool // its network is loaded
	wanted         bool // scaling wants it to take tasks
	loading        bool
	lost           bool
	current        []flow.Entry // the running batch
	forming        []flow.Entry // the next one
	queue          depq
	aside          depq // older tasks for which there is no time (feas)
	proof          proof
}

// takesTasks returns true if a worker takes tasks.
func (w *worker) serves() bool { return w.up && w.wanted && !w.lost }

// waitingTasks returns how many tasks wait for a batch to form.
func (w *worker) waiting() int { return w.queue.len() + w.aside.len() }

// hasRoom returns true if the forming batch takes a further task.
func (w *worker) room() bool { return len(w.forming) < int(w.limit) }

// backlogTime returns how long the full batches take that a worker runs before a further task.
func (w *worker) ahead() time.Duration {
	tasks := len(w.forming) + w.waiting()
	if !w.room() { // it counts as a planned batch
		tasks = int(w.batch) + w.waiting()
	}
	return time.Duration(tasks/int(w.batch)) * w.full
}

// dropUnwanted removes the tasks of closed requests from the forming batch.
func (w *worker) forget(book *flow.Book) {
	kept := w.forming[:0]
	for i := range w.forming {
		if book.Wanted(&w.forming[i]) {
			kept = append(kept, w.forming[i])
		}
	}
	w.forming = kept
	if len(kept) == 0 {
		w.limit = w.batch
	}
}

// removeAll moves all tasks that have not started to a list.
func (w *worker) empty(to []flow.Entry) []flow.Entry {
	to = append(append(append(to, w.forming...), w.queue.list...), w.aside.list...)
	w.limit = w.batch
	w.forming, w.queue.list, w.aside.list = w.forming[:0], w.queue.list[:0], w.aside.list[:0]
	return to
}
