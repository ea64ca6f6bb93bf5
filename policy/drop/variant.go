package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// Variant says in what a baseline or an ablation differs from pard, or from feas. A nil function changes nothing.
type Variant struct {
	Name          string
	IsFeas        bool // it is a variant of feas
	ArrivalOrder  bool // tasks are served in the order of their reveal, with HighestFirst false
	ImmediateMode bool // the order changes without regard to the variation of the load
	NeverSetAside bool // feas serves the highest budget first, in place of setting tasks aside and of smaller batches
	// HighestFirst, if set, says that the highest remaining budget is always, or never, served first.
	HighestFirst *bool
	// ModuleEstimate returns the estimate for a module that is still to come, by its mean queueing time and its batch time.
	// The waits for its batches then count as 0.
	ModuleEstimate func(queued, run time.Duration) time.Duration
	// WaitSumQuantile returns a quantile of the sum of waits for batches along a path, by the latest waits of each module.
	WaitSumQuantile func(path [][]time.Duration, lambda float64) time.Duration
	// PassesTest is the test of a task that could enter a batch.
	PassesTest func(c EntryCandidate) bool
	// FormBatch fills a batch.
	FormBatch func(f FormingBatch)
	// BatchStarted is called with the time that a task will have been in a module when its batch ends, TaskEntered with the
	// time for which it queued.
	BatchStarted func(module int32, took time.Duration)
	TaskEntered  func(module int32, now, queued time.Duration)
	// EverySecond is called once per second, with the times of planned batches by module. AdmitRequest is called at each
	// arrival, and may refuse the request.
	EverySecond  func(now time.Duration, runs []time.Duration)
	AdmitRequest func() bool
}

// EntryCandidate is a task that could enter a batch.
type EntryCandidate struct {
	Request         *flow.Request
	Module          int32
	Now, Start, End time.Duration // now; planned start and end of the batch
	RevealedAt      time.Duration
}

// FormingBatch is a batch that Variant.FormBatch fills.
type FormingBatch struct {
	Now, Start time.Duration // now; start of the batch
	broker     *broker
	worker     *worker
	out        *policy.Actions
}

// WaitingTask is a task that waits for a batch.
type WaitingTask struct {
	Entry    flow.QueueEntry
	Request  *flow.Request
	Module   int32
	IsWanted bool // its request is open
}

// Len returns how many tasks wait to enter the batch.
func (f FormingBatch) Len() int { return f.worker.waitingTasks() }

// PlannedSize returns the batch size that the plan has for the worker.
func (f FormingBatch) PlannedSize() int { return int(f.worker.plannedBatch) }

// HasRoom reports whether the batch takes a further task.
func (f FormingBatch) HasRoom() bool { return f.worker.hasRoom() }

// EndOfSize returns when the batch would end if it had this many tasks.
func (f FormingBatch) EndOfSize(size int) time.Duration { return f.Start + f.worker.batchTimes[size-1] }

// PopOldest removes the task with the lowest key (usually the earliest deadline) from the worker's queue and returns it.
func (f FormingBatch) PopOldest() WaitingTask {
	entry := f.worker.queue.popMin()
	return WaitingTask{Entry: entry, Request: &f.broker.tasks.Requests[entry.Req], Module: f.worker.module, IsWanted: f.broker.tasks.IsWanted(&entry)}
}

// AddTask adds a task, whose request must be open, to the batch without a test of its deadline.
func (f FormingBatch) AddTask(task *WaitingTask) {
	f.broker.enterBatch(f.Now, f.Start, f.worker, &task.Entry, &f.broker.tasks.Tasks[task.Entry.Task])
}

// DropTask drops the request of a task because the task would be late. The request must be open.
func (f FormingBatch) DropTask(task *WaitingTask) {
	f.broker.dropRequest(f.Now, task.Entry.Req, task.Entry.Task, policy.ReasonDeadline, f.out)
}
