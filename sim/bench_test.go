package sim_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/sim"
	"inferplan/sim/kernel"
	"inferplan/testkit/policytest"
)

// bareLoop is a heap loop with no work: pops and pushes, with as many pending
// events as the 100-device run has. It returns CPU time per event.
func bareLoop(tb testing.TB, events int) float64 {
	var q kernel.Queue[[48]byte]
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		q.Push(time.Duration(rng.IntN(1<<25)), 0, int64(i), [48]byte{})
	}
	start := cputime.Used()
	for i := range events {
		at, kind, p := q.Pop()
		q.Push(at+time.Duration(rng.Uint64()&(1<<25-1)), kind, int64(i), p)
	}
	return float64((cputime.Used() - start).Nanoseconds()) / float64(events)
}

// BenchmarkHundred runs the 100-device reservation workload and compares it
// with a bare heap loop of as many events.
func BenchmarkHundred(b *testing.B) {
	sc, err := sim.NewScenario(policytest.Hundred().Plan())
	if err != nil {
		b.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Seed = 0.95, 10*time.Second, 1
	b.ReportAllocs()
	var events, batches int64
	var spent time.Duration
	for b.Loop() {
		start := cputime.Used()
		r, err := sim.Replicate(context.Background(), sc, 1)
		if err != nil {
			b.Fatal(err)
		}
		spent += cputime.Used() - start
		events += r.Events
		batches += r.DispatchedBatches
	}
	b.StopTimer()
	perEvent := float64(spent.Nanoseconds()) / float64(events)
	bare := bareLoop(b, int(min(events, 5_000_000)))
	b.ReportMetric(1e9/perEvent, "events/cpu-s")
	b.ReportMetric(perEvent/bare, "x-bare-loop")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(batches), "cpu-ns/batch")
}

// A run's allocations are its buffers: ten times the events, no more of them
// than the growth of those.
func TestNoAllocationPerEvent(t *testing.T) {
	allocs := func(d time.Duration) (float64, int64) {
		sc := scenario(t, policytest.Hundred().Plan(), 0.9, d)
		var events int64
		n := testing.AllocsPerRun(2, func() {
			r, err := sim.Replicate(context.Background(), sc, 1)
			if err != nil {
				t.Fatal(err)
			}
			events = r.Events
		})
		return n, events
	}
	short, few := allocs(200 * ms)
	long, many := allocs(2 * time.Second)
	if more := long - short; more > 100 {
		t.Errorf("%v allocations for %d events, %v for %d: %v more", short, few, long, many, more)
	}
	t.Logf("%v allocations for %d events, %v for %d", short, few, long, many)
}
