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

// canServeAll reports whether all tasks that wait for a worker, also those that were set aside earlier because there
// was no time for all, can be served in time in the order of their deadlines, if the next batch starts at `start`. To
// count them together, it puts those set aside back into the queue, where they stay. If not all can be served,
// splitQueue sets some aside anew.
func (g *dropTest) canServeAll(worker *worker, start time.Duration) bool {
	// Remove tasks of closed requests in front.
	for worker.setAside.len() > 0 && !g.tasks.IsWanted(worker.setAside.min()) {
		worker.setAside.popMin()
	}

	// Not all can be served if the most urgent of those set aside would be late even in the next batch, which ends at
	// start + fullBatchTime. Otherwise put all back into the queue. The proof, the result of an earlier count of the
	// queue, did not count them, so it no longer holds.
	if worker.setAside.len() > 0 {
		if g.slackOf(worker, start+worker.fullBatchTime, worker.setAside.min()) < 0 {
			return false
		}
		for worker.setAside.len() > 0 {
			worker.queue.push(worker.setAside.popMax())
		}
		worker.proof.invalidate()
	}
	return g.canServeQueue(worker, start)
}

// slackOf returns how much later than `end` a worker's batch with a task may end: the task's deadline less the
// estimated time for the modules downstream, less `end`. It is negative if the task would be late.
func (g *dropTest) slackOf(worker *worker, end time.Duration, entry *flow.QueueEntry) time.Duration {
	return entry.Key - end - g.planner.downstream[g.planner.cellOf(int(g.tasks.Requests[entry.Req].Model), worker.module)]
}

// formPartialQueue fills a worker's forming batch, which starts at `start`, from a queue that cannot be served as a
// whole: some of the oldest tasks are set aside, so that the others are in time. Hopeless ones among these are dropped.
// formBatch calls it for feas.
func (b *broker) formPartialQueue(now, start time.Duration, worker *worker, out *policy.Actions) {
	b.dropTest.splitQueue(worker, start)
	worker.proof.invalidate()
	for worker.queue.len() > 0 && worker.hasRoom() {
		if entry := worker.queue.popMin(); b.tasks.IsWanted(&entry) {
			b.tryEnterBatch(now, start, worker, &entry, out)
		}
	}
	b.dropHopeless(now, start, worker, &worker.setAside, out)
}

// splitQueue sets aside tasks of a worker's queue because not all can be served in time if the next batch starts at
// `start`: the oldest, as many as are in excess. It leaves at least a batch in the queue, if there are as many. All
// batches count as ending half a batch time later, because a task that ends at the very end of its time has nothing
// left for the modules downstream.
func (g *dropTest) splitQueue(worker *worker, start time.Duration) {
	batchSize, firstEnd := int(worker.plannedBatch), start+worker.fullBatchTime+worker.fullBatchTime/2

	// Set the oldest tasks aside, as many as are in excess of what the batches hold in time. Their deadlines are the
	// earliest, so the others gain most. dueByBatch[j] becomes the number of the remaining tasks that must be in batch j
	// or an earlier one. It has a batch more than the whole queue takes, because up to a batch of tasks comes back below.
	fullQueueBatches := (worker.queue.len() + batchSize - 1) / batchSize
	dueByBatch := g.zeroCounts(fullQueueBatches + 1)
	excessTasks := g.countDue(worker, firstEnd, dueByBatch)
	for ; excessTasks > 0 && worker.queue.len() > batchSize; excessTasks-- {
		worker.setAside.push(worker.queue.popMin())
	}

	// Bring back up to a batch of the tasks set aside, the latest deadline first: as long as the queue does not fill the
	// first batch, any task, and then those that would be in time, if the batches that they may be in still have a place
	// (addDue counts them).
	for returns := 0; returns < batchSize && worker.setAside.len() > 0; returns++ {
		slack := g.slackOf(worker, firstEnd, worker.setAside.max())
		latestBatch := int(slack / worker.batchInterval) // without a meaning if the slack is negative
		fillsFirstBatch := worker.queue.len() >= batchSize
		if fillsFirstBatch && (slack < 0 || !addDue(dueByBatch, latestBatch, batchSize)) {
			return
		}
		worker.queue.push(worker.setAside.popMax())
	}
}

// countDue counts into dueByBatch, for each batch to come, how many tasks of a worker's queue must be in it or in an
// earlier one to be in time, if the first batch ends at firstEnd. Tasks in excess of what the batches hold are left
// out, and their number is returned.
func (g *dropTest) countDue(worker *worker, firstEnd time.Duration, dueByBatch []int32) (excessTasks int) {
	batchSize, batchesPerNs := int32(worker.plannedBatch), 1/float64(worker.batchInterval)

	// Count for each batch the tasks for which it is the latest. A task that may be in a batch behind all of these fits
	// in any case.
	for i := range worker.queue.list {
		entry := &worker.queue.list[i]
		if !g.tasks.IsWanted(entry) {
			continue
		}
		if slack := g.slackOf(worker, firstEnd, entry); slack < 0 {
			excessTasks++
		} else if latestBatch := int(float64(slack) * batchesPerNs); latestBatch < len(dueByBatch) {
			dueByBatch[latestBatch]++
		}
	}

	// Add the counts up, and cut off what the batches up to each cannot hold.
	sum := int32(0)
	for latestBatch := range dueByBatch {
		sum += dueByBatch[latestBatch]
		if maxTasks := int32(latestBatch+1) * batchSize; sum > maxTasks {
			excessTasks += int(sum - maxTasks)
			sum = maxTasks
		}
		dueByBatch[latestBatch] = sum
	}
	return excessTasks
}

// addDue counts a task that must be in batch number latestBatch at the latest, and returns true, if that batch and all
// later ones still have a place. Otherwise it changes nothing and returns false. dueByBatch[k] is how many tasks must be
// in batch k or earlier, and (k+1) batches hold (k+1)*batchSize.
func addDue(dueByBatch []int32, latestBatch, batchSize int) bool {
	for later := latestBatch; later < len(dueByBatch); later++ {
		if int(dueByBatch[later]) >= (later+1)*batchSize {
			return false
		}
	}
	for later := latestBatch; later < len(dueByBatch); later++ {
		dueByBatch[later]++
	}
	return true
}

// tryShrinkBatch is called for a task that would be late in a worker's planned batch, because a full batch takes long.
// If the task would be in time in a smaller batch that starts at `start`, and this has places for all tasks that wait,
// it limits the forming batch to that size (worker.formingLimit), and returns true. It does so only for the policy
// feas, and not for the variant of it that never sets tasks aside (NeverSetAside), which has no smaller batches,
// either.
func (g *dropTest) tryShrinkBatch(start time.Duration, worker *worker, entry *flow.QueueEntry) bool {
	// remaining is the longest that the batch may take. The drop test adds the skew of the worker's clock to the deadline;
	// slackOf does not, so that the start is earlier by it here.
	remaining := g.slackOf(worker, start-worker.clockSkew, entry)
	if !g.variant.IsFeas || g.variant.NeverSetAside || remaining < worker.batchTimes[0] {
		return false
	}

	// Find the largest size that ends in time. The task and all that wait must find a place in it.
	size := worker.formingLimit
	for worker.batchTimes[size-1] > remaining {
		size--
	}
	if len(worker.formingBatch)+1+worker.waitingTasks() > int(size) {
		return false
	}
	worker.formingLimit = size
	return true
}
