package sim_test

import (
	"context"
	"testing"
	"time"

	"inferplan/policy/policytest"
	"inferplan/sim"
)

// BenchmarkHundred runs the 100-device reservation workload.
func BenchmarkHundred(b *testing.B) {
	sc, err := sim.NewScenario(policytest.Hundred().Plan())
	if err != nil {
		b.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Seed = 0.95, 10*time.Second, 1
	b.ReportAllocs()
	var events, batches int64
	for b.Loop() {
		r, err := sim.Replicate(context.Background(), sc, 1)
		if err != nil {
			b.Fatal(err)
		}
		events += r.Events
		batches += r.Dispatched
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(batches), "ns/batch")
}
