package drop

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/policy/flow"
)

// As few as possible stand aside: no larger part of a queue can be served in time
// with half a batch in reserve, and those that stay are the youngest.
func TestFewestStandAside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const run = 10 * time.Millisecond
		w := &worker{plannedBatch: int32(rapid.IntRange(1, 3).Draw(t, "batch")), fullBatchTime: run, batchInterval: run}
		g := &dropTest{tasks: &flow.TaskTable{Requests: make([]flow.Request, 1)}, planner: &planner{stride: 1, downstream: []time.Duration{7 * time.Millisecond}}}
		from := run + run/2 + 7*time.Millisecond
		var keys []time.Duration
		for range rapid.IntRange(1, 9).Draw(t, "tasks") {
			keys = append(keys, time.Duration(rapid.IntRange(0, 90).Draw(t, "deadline"))*time.Millisecond)
		}
		slices.Sort(keys)
		for i, k := range keys {
			// Those that stood aside before come back where there is time.
			if i < len(keys)/3 {
				w.setAside.push(flow.QueueEntry{Key: k})
			} else {
				w.queue.push(flow.QueueEntry{Key: k})
			}
		}
		for range len(keys) { // no more than a batch comes back at once
			g.splitQueue(w, 0)
		}
		want := max(mostInTime(keys, from, run, int(w.plannedBatch)), min(len(keys), int(w.plannedBatch)))
		if w.queue.len() != want || w.setAside.len() != len(keys)-want {
			t.Fatalf("%d of %v stay in batches of %d, expected %d", w.queue.len(), keys, w.plannedBatch, want)
		}
		if w.setAside.len() > 0 && w.setAside.max().Key > w.queue.min().Key {
			t.Fatalf("%v stands aside, %v stays", w.setAside.max().Key, w.queue.min().Key)
		}
	})
}

// mostInTime is how many tasks can be served in time, by trying all parts of them.
func mostInTime(keys []time.Duration, from, run time.Duration, batch int) int {
	best := 0
	for part := range 1 << len(keys) {
		n, ok := 0, true
		for i, k := range keys {
			if part>>i&1 == 1 {
				ok = ok && from+time.Duration(n/batch)*run <= k
				n++
			}
		}
		if ok {
			best = max(best, n)
		}
	}
	return best
}
