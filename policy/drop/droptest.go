package drop

import (
	"time"

	"inferplan/policy/flow"
)

// dropTest decides which tasks would be in time, and from which end a queue is served. It removes nothing from a queue
// but tasks of closed requests.
type dropTest struct {
	variant    *Variant
	tasks      *flow.TaskTable
	planner    *planner
	apps       int     // number of applications of the plan
	taskCounts []int32 // scratch: tasks by batch
}

// isInTime reports whether a task passes the drop test for a worker's batch that starts at `start`: past, present and
// estimated future must not exceed the SLO (PARD §4.1),
//
//	start + fullBatchTime + downstream <= deadline + clockSkew
//
// where downstream is the estimated time for the modules after this one.
func (g *dropTest) isInTime(now, start time.Duration, worker *worker, entry *flow.QueueEntry, task *flow.Task) bool {
	request := &g.tasks.Requests[entry.Req]
	if g.variant.PassesTest != nil {
		return g.variant.PassesTest(EntryCandidate{Request: request, Module: worker.module, Now: now, Start: start, End: start + worker.fullBatchTime, RevealedAt: task.RevealedAt})
	}
	return start+worker.fullBatchTime+g.planner.downstream[g.planner.cellOf(int(request.Model), worker.module)] <= request.Deadline+worker.clockSkew
}

// isHopeless reports whether a task would be late even alone in this worker's batch that starts at `start` and in
// every batch that remains.
func (g *dropTest) isHopeless(start time.Duration, worker *worker, entry *flow.QueueEntry) bool {
	request := &g.tasks.Requests[entry.Req]
	return start+worker.batchTimes[0]+g.planner.downstreamSolo[g.planner.cellOf(int(request.Model), worker.module)] > request.Deadline+worker.clockSkew
}

// highestFirst reports whether a worker's queue is served from the highest remaining budget (time left to the deadline)
// on, which is better if not all tasks can be in time: the urgent ones are then late, but the others are in time. The
// policy pard decides that by the module's load, and feas by a count of the queue, whose next batch starts at `start`. A
// baseline (Variant.HighestFirst) always has the same order.
func (g *dropTest) highestFirst(worker *worker, start time.Duration) bool {
	switch {
	case g.variant.HighestFirst != nil:
		return *g.variant.HighestFirst
	case g.variant.IsFeas:
		return !g.canServeQueue(worker, start)
	}
	return g.planner.moduleLoads[worker.module].highestFirst
}

// canServeQueue reports whether a worker's queue can be served in time in the order of the deadlines from `start` on,
// in batches of planned size that start one batch interval after another. That holds if, for every j, the first j+1
// batches have places for all tasks that must be in one of them to be in time. So it is enough to count tasks by the
// latest batch that each may be in, without sorting. It removes tasks of closed requests in front. If the queue can be
// served, it stores that in worker.proof, so that a later call need not count again while the proof holds.
func (g *dropTest) canServeQueue(worker *worker, start time.Duration) bool {
	tasks, batchSize := worker.queue.len(), int(worker.plannedBatch)
	for ; tasks > 0 && !g.tasks.IsWanted(worker.queue.min()); tasks-- {
		worker.queue.popMin()
	}
	if tasks == 0 {
		return true
	}

	// With one application all tasks have the same time downstream, so the order of the keys (deadlines) is that of the
	// slacks, and the extremes often decide. A slack is how much later than the first batch a task's batch may end.
	firstEnd, downstream := start+worker.fullBatchTime, g.planner.downstream[worker.module]
	if g.apps == 1 {
		minSlack, maxSlack := worker.queue.min().Key-firstEnd-downstream, worker.queue.max().Key-firstEnd-downstream

		// In a slack of n batch intervals n+1 batches end: the first, and n after it. The queue cannot be served if the most
		// urgent task is late even in the first batch, or if there are more tasks than places in the batches that end before
		// the last deadline. It can be served if the batches that end before the first deadline have places for all tasks, or
		// if the proof of an earlier count holds.
		switch {
		case minSlack < 0 || tasks > (int(maxSlack/worker.batchInterval)+1)*batchSize:
			return false
		case tasks <= (int(minSlack/worker.batchInterval)+1)*batchSize, worker.proof.isValid(firstEnd + downstream):
			return true
		}
	}

	// Otherwise count how many tasks must be in each batch at the latest.
	batches := (tasks-1)/batchSize + 1
	counts := g.zeroCounts(batches)
	worker.proof.invalidate()
	if !g.countByLatestBatch(worker, firstEnd, counts) {
		return false
	}

	// Check that the first j+1 batches have places for all tasks that must be in them. Store in the proof how many tasks
	// may be added later. A task takes a place in the batch that it must be in and in all sums behind it. So one whose
	// deadline concerns only the later half of the batches (lateDeadline) needs a spare place in each sum of that half
	// (spareTasks), and one with an earlier deadline also needs one in each of all sums (spareEarlyTasks).
	sum, proof := 0, feasibilityProof{validUntil: firstEnd + downstream, spareTasks: tasks, spareEarlyTasks: tasks}
	for batchIndex, count := range counts {
		sum += int(count)
		sparePlaces := (batchIndex+1)*batchSize - sum
		if sparePlaces < 0 {
			return false
		}
		proof.spareEarlyTasks = min(proof.spareEarlyTasks, sparePlaces)
		if batchIndex >= batches/2 {
			proof.spareTasks = min(proof.spareTasks, sparePlaces)
		}
	}
	proof.lateDeadline = proof.validUntil + time.Duration(batches/2)*worker.batchInterval
	worker.proof = proof
	return true
}

// countByLatestBatch adds to counts[j] how many tasks of a worker's queue must be in batch j at the latest, if the
// first batch ends at firstEnd and the others end one batch interval after another. A task must leave the module by its
// deadline (entry.Key) less the estimated time for the modules after this one (downstream). A task with time for a
// batch after the last one of counts is not counted. If a task is late even in the first batch, it returns false.
func (g *dropTest) countByLatestBatch(worker *worker, firstEnd time.Duration, counts []int32) bool {
	// It multiplies by the inverse of the batch interval, which is faster than a division; the error is less than a
	// nanosecond of slack. downstream[module] is the time of application 0; if there are several applications, each task
	// has that of its own.
	batchesPerNs, oneApp, downstream := 1/float64(worker.batchInterval), g.apps == 1, g.planner.downstream[worker.module]
	for i := range worker.queue.list {
		entry := &worker.queue.list[i]
		if !oneApp {
			downstream = g.planner.downstream[g.planner.cellOf(int(g.tasks.Requests[entry.Req].Model), worker.module)]
		}
		slack := entry.Key - firstEnd - downstream
		if slack < 0 {
			return false
		}
		if batchIndex := int(float64(slack) * batchesPerNs); batchIndex < len(counts) {
			counts[batchIndex]++
		}
	}
	return true
}

// zeroCounts returns a zeroed count for each of a number of batches. It is valid until the next call.
func (g *dropTest) zeroCounts(batches int) []int32 {
	if batches > len(g.taskCounts) {
		g.taskCounts = make([]int32, 2*batches)
	}
	counts := g.taskCounts[:batches]
	clear(counts)
	return counts
}
