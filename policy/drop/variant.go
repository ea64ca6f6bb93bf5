package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// Variant is what a baseline or an ablation does otherwise than pard, or than feas. What is nil is as there.
type Variant struct {
	Name    string
	Feas    bool // it is one of feas
	InOrder bool // tasks are served as they came, with High false
	Sudden  bool // a mode changes without delay
	NoAside bool // feas: HBF in place of standing aside and of smaller batches
	// High says that the greatest remaining budget is always, or never, served first.
	High *bool
	// Rest is what counts of a module still to come, by its mean queueing and its batch's time. The waits
	// for its batches do not count then.
	Rest func(queued, run time.Duration) time.Duration
	// Waits is a quantile of the sum of waits for batches along a path, by the latest waits of each module.
	Waits func(path [][]time.Duration, lambda float64) time.Duration
	// Keep is the test of a task that could enter a batch.
	Keep func(c Candidate) bool
	// Form fills a batch.
	Form func(f Batch)
	// Began hears how long a task will have been in a module when its batch ends, Admitted how long it queued.
	Began    func(module int32, took time.Duration)
	Admitted func(module int32, now, queued time.Duration)
	// Second is called once per second, with the times of planned batches by module. Admit is called at
	// each arrival: it may refuse the request.
	Second func(now time.Duration, runs []time.Duration)
	Admit  func() bool
}

// Candidate is a task that could enter a batch.
type Candidate struct {
	Request         *flow.Request
	Module          int32
	Now, Start, End time.Duration // now; of the batch, as planned
	Revealed        time.Duration
}

// Batch is a batch that forms.
type Batch struct {
	Now, Start time.Duration // now; of the batch
	b          *broker
	w          *worker
	out        *policy.Actions
}

// Task is a task that waits for a batch.
type Task struct {
	Entry   flow.Entry
	Request *flow.Request
	Module  int32
	Wanted  bool // its request is open
}

// Len returns how many tasks wait.
func (f Batch) Len() int { return f.w.waiting() }

// Size returns the size of the planned batch.
func (f Batch) Size() int { return int(f.w.batch) }

// Room returns whether the batch takes a further task.
func (f Batch) Room() bool { return f.w.room() }

// End returns when a batch of a size ends.
func (f Batch) End(size int) time.Duration { return f.Start + f.w.infer[size-1] }

// Next takes the first task out of the queue.
func (f Batch) Next() Task {
	e := f.w.queue.popMin()
	return Task{Entry: e, Request: &f.b.book.Requests[e.Req], Module: f.w.module, Wanted: f.b.book.Wanted(&e)}
}

// Take puts a task that is wanted into the batch, whatever the test says.
func (f Batch) Take(t *Task) {
	f.b.admit(f.Now, f.Start, f.w, &t.Entry, &f.b.book.Tasks[t.Entry.Task])
}

// Drop refuses the request of a task that is wanted.
func (f Batch) Drop(t *Task) {
	f.b.drop(f.Now, t.Entry.Req, t.Entry.Task, policy.ReasonDeadline, f.out)
}
