package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// If a queue cannot be served in time as a whole, feas serves as many of its tasks as possible: it sets the fewest of
// the oldest tasks aside so that the others can be served earliest deadline first. Fewer are not enough (Moore and
// Hodgson's rule, for tasks that take equally long). Tasks that are set aside come back when there is time for them.
//
// The others keep half a batch in reserve, because a task that is served at the very end of its time has nothing left
// for the modules downstream.

// allFeasible returns true if all tasks that wait for a worker, also those that were set aside for lack of time,
// can be served in time in the order of their deadlines. Then none is set aside any more.
func (g *dropTest) allFeasible(w *worker, start time.Duration) bool {
	for w.setAside.len() > 0 && !g.tasks.IsWanted(w.setAside.min()) {
		w.setAside.popMin()
	}
	if w.setAside.len() > 0 {
		if g.slackAfter(w, start+w.fullBatchTime, w.setAside.min()) < 0 {
			return false
		}
		for w.setAside.len() > 0 {
			w.queue.push(w.setAside.popMax())
		}
		w.proof.invalidate()
	}
	return g.feasible(w, start)
}

// slackAfter returns how long after `end` a task's batch may still end.
func (g *dropTest) slackAfter(w *worker, end time.Duration, e *flow.QueueEntry) time.Duration {
	return e.Key - end - g.planner.downstream[g.tasks.Requests[e.Req].Model*g.planner.stride+w.module]
}

// formPartialQueue fills the forming batch from a queue that cannot be served as a whole: some of the oldest tasks
// are set aside, so that the others are in time. Hopeless ones among these are dropped.
func (b *broker) formPartialQueue(now, start time.Duration, w *worker, out *policy.Actions) {
	b.dropTest.splitQueue(w, start)
	w.proof.invalidate()
	for w.queue.len() > 0 && w.hasRoom() {
		if e := w.queue.popMin(); b.tasks.IsWanted(&e) {
			b.tryEnterBatch(now, start, w, &e, out)
		}
	}
	b.dropHopeless(now, start, w, &w.setAside, out)
}

// splitQueue decides which tasks of a queue are set aside because not all can be served in time: the oldest, as
// many as are in excess. It leaves at least a batch in the queue, if there are as many. Half a batch time is added
// to the start as a margin.
func (g *dropTest) splitQueue(w *worker, start time.Duration) {
	batch, firstEnd := int(w.plannedBatch), start+w.fullBatchTime+w.fullBatchTime/2

	// Set the oldest tasks aside, as many as are in excess.
	dueByBatch := g.zeroCounts((w.queue.len()+batch-1)/batch + 1) // by batch: how many of the tasks to be served must be in it or earlier
	excessTasks := g.countDue(w, firstEnd, dueByBatch)
	for ; excessTasks > 0 && w.queue.len() > batch; excessTasks-- {
		w.setAside.push(w.queue.popMin())
	}

	// Bring back tasks for which there is time, or which fill the first batch.
	for n := 0; n < batch && w.setAside.len() > 0; n++ {
		j := int(g.slackAfter(w, firstEnd, w.setAside.max()) / w.batchInterval)
		if w.queue.len() >= batch && (g.slackAfter(w, firstEnd, w.setAside.max()) < 0 || !addDue(dueByBatch, j, batch)) {
			return
		}
		w.queue.push(w.setAside.popMax())
	}
}

// countDue counts into dueByBatch, for each batch to come, how many tasks of the queue must be in it or in an
// earlier one to be in time. Tasks in excess of what the batches hold are left out, and their number is returned.
func (g *dropTest) countDue(w *worker, firstEnd time.Duration, dueByBatch []int32) (excessTasks int) {
	batch, batchesPerNs := int32(w.plannedBatch), 1/float64(w.batchInterval)
	for i := range w.queue.list {
		e := &w.queue.list[i]
		if !g.tasks.IsWanted(e) {
			continue
		}
		if slack := g.slackAfter(w, firstEnd, e); slack < 0 {
			excessTasks++
		} else if j := int(float64(slack) * batchesPerNs); j < len(dueByBatch) {
			dueByBatch[j]++
		}
	}
	sum := int32(0)
	for j := range dueByBatch {
		sum += dueByBatch[j]
		if maxTasks := int32(j+1) * batch; sum > maxTasks {
			excessTasks += int(sum - maxTasks)
			sum = maxTasks
		}
		dueByBatch[j] = sum
	}
	return excessTasks
}

// addDue counts a task that must be in the j-th batch at the latest, and returns true, if that batch and all later
// ones still have a place. dueByBatch[k] is how many tasks must be in batch k or earlier.
func addDue(dueByBatch []int32, j, batch int) bool {
	for k := j; k < len(dueByBatch); k++ {
		if int(dueByBatch[k]) >= (k+1)*batch {
			return false
		}
	}
	for k := j; k < len(dueByBatch); k++ {
		dueByBatch[k]++
	}
	return true
}

// fitsSmallerBatch returns true if a task that would be late in a planned batch is in time in a smaller one that takes
// all waiting tasks. The forming batch is then limited to that size.
func (g *dropTest) fitsSmallerBatch(start time.Duration, w *worker, e *flow.QueueEntry) bool {
	remaining := g.slackAfter(w, start-w.clockSkew, e)
	if !g.variant.IsFeas || g.variant.NeverSetAside || remaining < w.batchTimes[0] {
		return false
	}
	size := w.formingLimit
	for w.batchTimes[size-1] > remaining {
		size--
	}
	if len(w.formingBatch)+1+w.waitingTasks() > int(size) {
		return false
	}
	w.formingLimit = size
	return true
}
