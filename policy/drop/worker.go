package drop

import (
	"time"

	"inferplan/policy/flow"
)

// worker serves one module on a device. The batch slot of what it runs is the device's
// number: a device runs one batch at a time, whichever of its workers it is of.
type worker struct {
	id             int32 // among the fleet's workers
	device, module int32
	place          int32 // among the module's workers
	pipeline       int32
	stage          int32
	batch          int32           // planned
	limit          int32           // of the forming batch: planned, or what its members have time for
	planned        []time.Duration // [n-1]: of a batch of n, by the plan
	infer          []time.Duration // likewise, as it lately was (pace)
	began          time.Duration   // the running batch
	full           time.Duration   // of a planned batch
	part           float64         // of the device's time that is the module's; 1 where no other module is there
	every          time.Duration   // from one planned batch to the next while tasks wait: full over part
	off            time.Duration   // how late its clock is (Options.Skew)
	end            time.Duration   // of the running batch, by the profile
	running        bool
	up             bool // it holds its network
	wanted         bool // it is to take tasks
	loading        bool
	lost           bool
	current        []flow.Entry // the running batch
	forming        []flow.Entry // the next one
	queue          depq
	aside          depq // older ones, for which there is no time (feas)
	proof          proof
}

// serves tells whether a worker takes tasks.
func (w *worker) serves() bool { return w.up && w.wanted && !w.lost }

// waiting is how many tasks wait for a batch to form.
func (w *worker) waiting() int { return w.queue.len() + w.aside.len() }

// room tells whether the forming batch takes a further task.
func (w *worker) room() bool { return len(w.forming) < int(w.limit) }

// ahead is how long the full batches take that a worker has before a further task.
func (w *worker) ahead() time.Duration {
	tasks := len(w.forming) + w.waiting()
	if !w.room() { // it counts as a planned one
		tasks = int(w.batch) + w.waiting()
	}
	return time.Duration(tasks/int(w.batch)) * w.full
}

// forget takes out of the forming batch what nobody wants any more.
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

// empty moves all tasks that have not begun to a list.
func (w *worker) empty(to []flow.Entry) []flow.Entry {
	to = append(append(append(to, w.forming...), w.queue.list...), w.aside.list...)
	w.limit = w.batch
	w.forming, w.queue.list, w.aside.list = w.forming[:0], w.queue.list[:0], w.aside.list[:0]
	return to
}
