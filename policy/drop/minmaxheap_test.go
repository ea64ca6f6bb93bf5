package drop

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/flow"
)

// The queue gives the least and the greatest of what is in it, as a sorted list
// does.
func TestDEPQ(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q doubleEndedQueue
		var sorted []time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 4).Draw(t, "op"); {
			case op < 3 || len(sorted) == 0:
				k := time.Duration(rapid.IntRange(0, 50).Draw(t, "key"))
				q.push(flow.QueueEntry{Key: k})
				i, _ := slices.BinarySearch(sorted, k)
				sorted = slices.Insert(sorted, i, k)
			case op == 3:
				if e := q.popMin(); e.Key != sorted[0] {
					t.Fatalf("least %v, want %v", e.Key, sorted[0])
				}
				sorted = sorted[1:]
			default:
				if e := q.popMax(); e.Key != sorted[len(sorted)-1] {
					t.Fatalf("greatest %v, want %v", e.Key, sorted[len(sorted)-1])
				}
				sorted = sorted[:len(sorted)-1]
			}
			if q.len() != len(sorted) || q.len() > 0 && (q.min().Key != sorted[0] || q.max().Key != sorted[len(sorted)-1]) {
				t.Fatalf("%d entries, want %d", q.len(), len(sorted))
			}
		}
	})
}

// The tree of starts names the lowest worker of the least start.
func TestStartTreeNamesEarliestWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := make([]time.Duration, rapid.IntRange(1, 20).Draw(t, "workers"))
		s := newStartTree(len(at))
		for i := range at {
			at[i] = farFuture
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, len(at)-1).Draw(t, "worker")
			at[i] = time.Duration(rapid.IntRange(0, 9).Draw(t, "start"))
			s.setStart(i, at[i])
			if got, want := int(s.earliestWorker()), slices.Index(at, slices.Min(at)); got != want {
				t.Fatalf("worker %d of %v, want %d", got, at, want)
			}
		}
	})
}

// A queue is feasible if its tasks, earliest deadline first, are in time in
// batches that follow each other.
func TestFeasibleEqualsSortedCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w := bareWorker(t, rapid.IntRange(1, 5).Draw(t, "batch"))
		var keys []time.Duration
		for range rapid.IntRange(0, 30).Draw(t, "tasks") {
			k := time.Duration(rapid.IntRange(5, 90).Draw(t, "deadline")) * time.Millisecond
			w.queue.push(flow.QueueEntry{Key: k})
			keys = append(keys, k)
		}
		slices.SortFunc(keys, cmp.Compare[time.Duration])
		const start = 3 * time.Millisecond
		want := true
		for i, k := range keys {
			end := start + time.Duration(i/int(w.plannedBatch)+1)*w.fullBatchTime
			want = want && end <= k
		}
		if got := g.canServeQueue(w, start); got != want {
			t.Fatalf("feasible %v, want %v: %v in batches of %d", got, want, keys, w.plannedBatch)
		}
	})
}

// A proof that is carried along never says that a queue can be served when it
// cannot.
func TestProofNeverClaimsInfeasibleQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w := bareWorker(t, rapid.IntRange(1, 4).Draw(t, "batch"))
		w.proof.invalidate()
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for range rapid.IntRange(0, 6).Draw(t, "tasks") {
				e := flow.QueueEntry{Key: now + time.Duration(rapid.IntRange(5, 200).Draw(t, "deadline"))*time.Millisecond}
				w.queue.push(e)
				w.proof.addTask(e.Key)
			}
			fresh := *w
			fresh.proof.invalidate()
			got, want := g.canServeQueue(w, now), g.canServeQueue(&fresh, now)
			if got != want {
				t.Fatalf("feasible %v, want %v", got, want)
			}
			if !got {
				w.queue.list = w.queue.list[:0]
				w.proof.invalidate()
				continue
			}
			n := 0
			for ; w.queue.len() > 0 && n < int(w.plannedBatch); n++ {
				w.queue.popMin()
			}
			if w.proof.validUntil += w.fullBatchTime; n < int(w.plannedBatch) {
				w.proof.invalidate()
			}
			now += time.Duration(rapid.IntRange(3, 10).Draw(t, "run")) * time.Millisecond
		}
	})
}

// bareWorker is a worker of a plan of one module and its judge, with one open
// request in slot 0 of no generation.
func bareWorker(t interface{ Fatal(...any) }, batch int) (*dropTest, *worker) {
	w := &worker{plannedBatch: int32(batch), fullBatchTime: 10 * time.Millisecond, batchInterval: 10 * time.Millisecond}
	plan := &planner{downstream: make([]time.Duration, 1), stride: 1}
	return &dropTest{tasks: &flow.TaskTable{Requests: make([]flow.Request, 1)}, planner: plan, apps: 1}, w
}

// Four equal modules with waits that are even over the run of a batch: the sum
// over 4, 3, 2 and 1 of them has the quantiles of Irwin and Hall, which PARD
// (§4.2) gives for lambda .1 as 1.24, .84, .45 and .10 runs.
func TestWaitQuantilesEqualIrwinHall(t *testing.T) {
	rng := seeded.New(1, "waits")
	const run = 60 * time.Millisecond
	w := newWaitSamples(run)
	for range sampleWaits {
		w.add(time.Duration(rng.Int64N(int64(run))))
	}
	dist := []float64{1}
	for n, want := range []float64{.10, .45, .84, 1.24} {
		dist = w.convolve(nil, dist)
		if x := quantile(dist, n+1, .1).Seconds() / run.Seconds(); x < want-.03 || x > want+.03 {
			t.Errorf("over %d modules: %.3f runs, want %.2f", n+1, x, want)
		}
	}
}

// Only the latest waits count.
func TestWaitsForget(t *testing.T) {
	w := newWaitSamples(50 * time.Millisecond)
	for i := range 2 * sampleWaits {
		d := 40 * time.Millisecond
		if i >= sampleWaits {
			d = 7 * time.Millisecond
		}
		w.add(d)
	}
	if got := quantile(w.convolve(nil, []float64{1}), 1, .99); got < 7*time.Millisecond || got > 8*time.Millisecond {
		t.Errorf("%v, expected what came last", got)
	}
}
