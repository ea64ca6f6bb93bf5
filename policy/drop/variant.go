package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// Variant says in what a baseline or an ablation differs from pard, or from feas. A nil function changes nothing.
type Variant struct {
	Name    string
	Feas    bool // it is a variant of feas
	InOrder bool // tasks are served in the order of their reveal, with HighestFirst false
	Sudden  bool // the order changes without regard to the variation of the load
	NoAside bool // feas serves the highest budget first, in place of setting tasks aside and of smaller batches
	// HighestFirst, if set, says that the highest remaining budget is always, or never, served first.
	High *bool
	// ModuleEstimate returns the estimate for a module that is still to come, by its mean queueing time and its batch time.
	// The waits for its batches then count as 0.
	Rest func(queued, run time.Duration) time.Duration
	// WaitSumQuantile returns a quantile of the sum of waits for batches along a path, by the latest waits of each module.
	Waits func(path [][]time.Duration, lambda float64) time.Duration
	// PassesTest is the test of a task that could enter a batch.
	Keep func(c Candidate) bool
	// FormBatch fills a batch.
	Form func(f Batch)
	// BatchStarted is called with the time that a task will have been in a module when its batch ends, TaskEntered with the
	// time for which it queued.
	Began    func(module int32, took time.Duration)
	Admitted func(module int32, now, queued time.Duration)
	// EverySecond is called once per second, with the times of planned batches by module. AdmitRequest is called at each
	// arrival, and may refuse the request.
	Second func(now time.Duration, runs []time.Duration)
	Admit  func() bool
}

// EntryCandidate is a task that could enter a batch.
type Candidate struct {
	Request         *flow.Request
	Module          int32
	Now, Start, End time.Duration // now; planned start and end of the batch
	Revealed        time.Duration
}

// FormingBatch is a batch that Variant.FormBatch fills.
type Batch struct {
	Now, Start time.Duration // now; start of the batch
	b          *broker
	w          *worker
	out        *policy.Actions
}

// WaitingTask is a task that waits for a batch.
type Task struct {
	Entry   flow.Entry
	Request *flow.Request
	Module  int32
	Wanted  bool // its request is open
}

// Len returns the number of waiting tasks.
func (f Batch) Len() int { return f.w.waiting() }

// Size returns the size of the planned batch.
func (f Batch) Size() int { return int(f.w.batch) }

// HasRoom returns true if the batch takes a further task.
func (f Batch) Room() bool { return f.w.room() }

// EndOfSize returns when a batch of a size would end.
func (f Batch) End(size int) time.Duration { return f.Start + f.w.infer[size-1] }

// PopOldest removes the task with the lowest key from the queue and returns it.
func (f Batch) Next() Task {
	e := f.w.queue.popMin()
	return Task{Entry: e, Request: &f.b.book.Requests[e.Req], Module: f.w.module, Wanted: f.b.book.Wanted(&e)}
}

// AddTask adds a wanted task to the batch without a test.
func (f Batch) Take(t *Task) {
	f.b.admit(f.Now, f.Start, f.w, &t.Entry, &f.b.book.Tasks[t.Entry.Task])
}

// DropTask drops the request of a wanted task.
func (f Batch) Drop(t *Task) {
	f.b.drop(f.Now, t.Entry.Req, t.Entry.Task, policy.ReasonDeadline, f.out)
}
