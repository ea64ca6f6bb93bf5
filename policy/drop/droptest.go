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

// canServeQueue reports whether a worker's queue can be served earliest deadline first from `start` on: its i-th task
// would be in the batch that starts i/batchSize intervals later. That holds if, for every j, at most (j+1) batches of
// tasks must be in the first j+1 batches. They can be counted without sorting. It removes tasks of closed requests in
// front, and keeps the result of a count in worker.proof, by which a later call need not count.
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

		// If n batch intervals pass after the end of the first batch, n+1 batches have ended. The queue cannot be served if a
		// task is late, or if there are more tasks than places in the batches before the last deadline. It can be served if
		// all tasks find places before the first deadline, or if the proof of an earlier count holds.
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

	// Check that the first j+1 batches hold all tasks that must be in them, and store how many places are left, in all of
	// them and in the later half, as a proof for later queues.
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
// first batch ends at firstEnd. A task with time for a batch after the last one of counts is not counted. If a task is
// late even in the first batch, it returns false. It multiplies by the inverse of the batch interval, which is faster
// than a division; the error is less than a nanosecond of slack.
func (g *dropTest) countByLatestBatch(worker *worker, firstEnd time.Duration, counts []int32) bool {
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
