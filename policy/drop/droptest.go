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
	appCount   int     // applications of the plan
	taskCounts []int32 // scratch: tasks by batch
}

// passes is the test of a task that could enter a batch which starts at `start`: past, present and estimated future must
// not exceed the SLO (PARD §4.1),
//
//	start + fullBatchTime + downstream <= deadline + clockSkew
func (g *dropTest) passes(now, start time.Duration, w *worker, e *flow.QueueEntry, t *flow.Task) bool {
	r := &g.tasks.Requests[e.Req]
	if g.variant.PassesTest != nil {
		return g.variant.PassesTest(EntryCandidate{Request: r, Module: w.module, Now: now, Start: start, End: start + w.fullBatchTime, RevealedAt: t.RevealedAt})
	}
	return start+w.fullBatchTime+g.planner.downstream[r.Model*g.planner.stride+w.module] <= r.Deadline+w.clockSkew
}

// hopeless returns true if a task would be late even alone in every batch that remains.
func (g *dropTest) hopeless(start time.Duration, w *worker, e *flow.QueueEntry) bool {
	r := &g.tasks.Requests[e.Req]
	return start+w.batchTimes[0]+g.planner.downstreamSolo[r.Model*g.planner.stride+w.module] > r.Deadline+w.clockSkew
}

// highestFirst returns true if a worker's queue is served from the highest remaining budget (time left to the
// deadline), because not all tasks can be in time. pard decides that by the module's load, feas by a count of the
// queue.
func (g *dropTest) highestFirst(w *worker, start time.Duration) bool {
	switch {
	case g.variant.HighestFirst != nil:
		return *g.variant.HighestFirst
	case g.variant.IsFeas:
		return !g.feasible(w, start)
	}
	return g.planner.moduleLoads[w.module].highestFirst
}

// feasible returns true if the queue can be served earliest deadline first: its i-th task would be in the batch that
// starts i/batch intervals after `start`. That holds if, for every j, at most (j+1) batches of tasks must be in the
// first j+1 batches. They can be counted without sorting.
func (g *dropTest) feasible(w *worker, start time.Duration) bool {
	n, batch := w.queue.len(), int(w.plannedBatch)
	for ; n > 0 && !g.tasks.IsWanted(w.queue.min()); n-- {
		w.queue.popMin()
	}
	if n == 0 {
		return true
	}

	// With one application, keys are sorted as slacks are, and the extremes often decide.
	firstEnd, downstream := start+w.fullBatchTime, g.planner.downstream[w.module]
	if g.appCount == 1 { // then keys are sorted as slacks are
		minSlack, maxSlack := w.queue.min().Key-firstEnd-downstream, w.queue.max().Key-firstEnd-downstream
		switch {
		case minSlack < 0 || n > (int(maxSlack/w.batchInterval)+1)*batch:
			return false
		case n <= (int(minSlack/w.batchInterval)+1)*batch, w.proof.isValid(firstEnd + downstream):
			return true
		}
	}

	// Otherwise count how many tasks must be in each batch at the latest.
	batches := (n-1)/batch + 1
	counts := g.zeroCounts(batches)
	w.proof.invalidate()
	if !g.countByLatestBatch(w, firstEnd, counts) {
		return false
	}

	// Check the prefix sums, and keep what is spare as a proof for later queues.
	sum, proof := 0, feasibilityProof{validUntil: firstEnd + downstream, spareTasks: n, earlySpare: n}
	for j, c := range counts {
		if sum += int(c); sum > (j+1)*batch {
			return false
		}
		if proof.earlySpare = min(proof.earlySpare, (j+1)*batch-sum); j >= batches/2 {
			proof.spareTasks = min(proof.spareTasks, (j+1)*batch-sum)
		}
	}
	proof.lateDeadline = proof.validUntil + time.Duration(batches/2)*w.batchInterval
	w.proof = proof
	return true
}

// countByLatestBatch counts how many tasks must be in each batch at the latest. If a task is late in any batch, it
// returns false. It multiplies where it could divide; that is off by less than a nanosecond of slack.
func (g *dropTest) countByLatestBatch(w *worker, firstEnd time.Duration, counts []int32) bool {
	batchesPerNs, oneApp, downstream := 1/float64(w.batchInterval), g.appCount == 1, g.planner.downstream[w.module]
	for i := range w.queue.list {
		e := &w.queue.list[i]
		if !oneApp {
			downstream = g.planner.downstream[g.tasks.Requests[e.Req].Model*g.planner.stride+w.module]
		}
		slack := e.Key - firstEnd - downstream
		if slack < 0 {
			return false
		}
		if j := int(float64(slack) * batchesPerNs); j < len(counts) {
			counts[j]++
		}
	}
	return true
}

// zeroCounts returns a zeroed count for each of a number of batches.
func (g *dropTest) zeroCounts(batches int) []int32 {
	if batches > len(g.taskCounts) {
		g.taskCounts = make([]int32, 2*batches)
	}
	counts := g.taskCounts[:batches]
	clear(counts)
	return counts
}
