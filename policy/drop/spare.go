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

// allFeasible returns true if all tasks that wait for a worker can be served earliest deadline first. Then no task is
// set aside any more.
func (g *judge) whole(w *worker, start time.Duration) bool {
	for w.aside.len() > 0 && !g.book.Wanted(w.aside.min()) {
		w.aside.popMin()
	}
	if w.aside.len() > 0 {
		if g.slack(w, start+w.full, w.aside.min()) < 0 {
			return false
		}
		for w.aside.len() > 0 {
			w.queue.push(w.aside.popMax())
		}
		w.proof.void()
	}
	return g.feasible(w, start)
}

// slackAfter returns how long after `end` a task's batch may still end.
func (g *judge) slack(w *worker, from time.Duration, e *flow.Entry) time.Duration {
	return e.Key - from - g.plan.behind[g.book.Requests[e.Req].Model*g.plan.stride+w.module]
}

// formPartialQueue fills the forming batch from a queue that cannot be served as a whole.
func (b *broker) spare(now, start time.Duration, w *worker, out *policy.Actions) {
	b.judge.part(w, start)
	w.proof.void()
	for w.queue.len() > 0 && w.room() {
		if e := w.queue.popMin(); b.book.Wanted(&e) {
			b.enter(now, start, w, &e, out)
		}
	}
	b.purge(now, start, w, &w.aside, out)
}

// splitQueue decides which tasks are set aside. It leaves at least a batch in the queue, if there are as many.
func (g *judge) part(w *worker, start time.Duration) {
	batch, from := int(w.batch), start+w.full+w.full/2

	// Set the oldest tasks aside, as many as are in excess.
	due := g.zeros((w.queue.len()+batch-1)/batch + 1) // by batch: how many of the tasks to be served must be in it or earlier
	late := g.tally(w, from, due)
	for ; late > 0 && w.queue.len() > batch; late-- {
		w.aside.push(w.queue.popMin())
	}

	// Bring back tasks for which there is time, or which fill the first batch.
	for n := 0; n < batch && w.aside.len() > 0; n++ {
		j := int(g.slack(w, from, w.aside.max()) / w.every)
		if w.queue.len() >= batch && (g.slack(w, from, w.aside.max()) < 0 || !admits(due, j, batch)) {
			return
		}
		w.queue.push(w.aside.popMax())
	}
}

// countDue counts, for each batch, how many tasks of the queue must be in it or in an earlier one. Tasks in excess of
// what the batches hold are left out, and returned as a number.
func (g *judge) tally(w *worker, from time.Duration, due []int32) (late int) {
	batch, per := int32(w.batch), 1/float64(w.every)
	for i := range w.queue.list {
		e := &w.queue.list[i]
		if !g.book.Wanted(e) {
			continue
		}
		if slack := g.slack(w, from, e); slack < 0 {
			late++
		} else if j := int(float64(slack) * per); j < len(due) {
			due[j]++
		}
	}
	sum := int32(0)
	for j := range due {
		sum += due[j]
		if most := int32(j+1) * batch; sum > most {
			late += int(sum - most)
			sum = most
		}
		due[j] = sum
	}
	return late
}

// addDue counts a task that must be in the j-th batch, and returns true, if there is time for it.
func admits(due []int32, j, batch int) bool {
	for k := j; k < len(due); k++ {
		if int(due[k]) >= (k+1)*batch {
			return false
		}
	}
	for k := j; k < len(due); k++ {
		due[k]++
	}
	return true
}

// fitsSmallerBatch returns true if a task that would be late in a planned batch is in time in a smaller one that takes
// all waiting tasks. The forming batch is then limited to that size.
func (g *judge) squeeze(start time.Duration, w *worker, e *flow.Entry) bool {
	left := g.slack(w, start-w.off, e)
	if !g.Feas || g.NoAside || left < w.infer[0] {
		return false
	}
	size := w.limit
	for w.infer[size-1] > left {
		size--
	}
	if len(w.forming)+1+w.waiting() > int(size) {
		return false
	}
	w.limit = size
	return true
}
