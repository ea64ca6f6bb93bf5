package drop

import (
	"time"

	"inferplan/policy/flow"
)

// dropTest decides which tasks would be in time, and from which end a queue is served. It removes nothing from a queue
// but tasks of closed requests.
type judge struct {
	*Variant
	book   *flow.Book
	plan   *planner
	apps   int     // applications of the plan
	counts []int32 // scratch: tasks by batch
}

// passes is the test of a task that could enter a batch which starts at `start`: past, present and estimated future must
// not exceed the SLO (PARD §4.1),
//
//	start + fullBatchTime + downstream <= deadline + clockSkew
func (g *judge) keep(now, start time.Duration, w *worker, e *flow.Entry, t *flow.Task) bool {
	r := &g.book.Requests[e.Req]
	if g.Keep != nil {
		return g.Keep(Candidate{Request: r, Module: w.module, Now: now, Start: start, End: start + w.full, Revealed: t.Revealed})
	}
	return start+w.full+g.plan.behind[r.Model*g.plan.stride+w.module] <= r.Deadline+w.off
}

// hopeless returns true if a task would be late even alone in every batch that remains.
func (g *judge) hopeless(start time.Duration, w *worker, e *flow.Entry) bool {
	r := &g.book.Requests[e.Req]
	return start+w.infer[0]+g.plan.alone[r.Model*g.plan.stride+w.module] > r.Deadline+w.off
}

// highestFirst returns true if a queue is served from the highest remaining budget (HBF).
func (g *judge) high(w *worker, start time.Duration) bool {
	switch {
	case g.High != nil:
		return *g.High
	case g.Feas:
		return !g.feasible(w, start)
	}
	return g.plan.load[w.module].hbf
}

// feasible returns true if the queue can be served earliest deadline first: its i-th task would be in the batch that
// starts i/batch intervals after `start`. That holds if, for every j, at most (j+1) batches of tasks must be in the
// first j+1 batches. They can be counted without sorting.
func (g *judge) feasible(w *worker, start time.Duration) bool {
	n, batch := w.queue.len(), int(w.batch)
	for ; n > 0 && !g.book.Wanted(w.queue.min()); n-- {
		w.queue.popMin()
	}
	if n == 0 {
		return true
	}

	// With one application, keys are sorted as slacks are, and the extremes often decide.
	from, first := start+w.full, g.plan.behind[w.module]
	if g.apps == 1 { // then keys are sorted as slacks are
		least, most := w.queue.min().Key-from-first, w.queue.max().Key-from-first
		switch {
		case least < 0 || n > (int(most/w.every)+1)*batch:
			return false
		case n <= (int(least/w.every)+1)*batch, w.proof.holds(from + first):
			return true
		}
	}

	// Otherwise count how many tasks must be in each batch at the latest.
	batches := (n-1)/batch + 1
	counts := g.zeros(batches)
	w.proof.void()
	if !g.count(w, from, counts) {
		return false
	}

	// Check the prefix sums, and keep what is spare as a proof for later queues.
	sum, f := 0, proof{from: from + first, spare: n, early: n}
	for j, c := range counts {
		if sum += int(c); sum > (j+1)*batch {
			return false
		}
		if f.early = min(f.early, (j+1)*batch-sum); j >= batches/2 {
			f.spare = min(f.spare, (j+1)*batch-sum)
		}
	}
	f.late = f.from + time.Duration(batches/2)*w.every
	w.proof = f
	return true
}

// countByLatestBatch counts how many tasks must be in each batch at the latest. If a task is late in any batch, it
// returns false. It multiplies where it could divide; that is off by less than a nanosecond of slack.
func (g *judge) count(w *worker, from time.Duration, counts []int32) bool {
	per, one, behind := 1/float64(w.every), g.apps == 1, g.plan.behind[w.module]
	for i := range w.queue.list {
		e := &w.queue.list[i]
		if !one {
			behind = g.plan.behind[g.book.Requests[e.Req].Model*g.plan.stride+w.module]
		}
		slack := e.Key - from - behind
		if slack < 0 {
			return false
		}
		if j := int(float64(slack) * per); j < len(counts) {
			counts[j]++
		}
	}
	return true
}

// zeroCounts returns a zeroed count for each of a number of batches.
func (g *judge) zeros(batches int) []int32 {
	if batches > len(g.counts) {
		g.counts = make([]int32, 2*batches)
	}
	counts := g.counts[:batches]
	clear(counts)
	return counts
}
