package sim_test

import (
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy/policytest"
	"inferplan/sim"
)

// scenario makes a scenario of a plan with the invariants on.
func scenario(t testing.TB, plan *formats.Plan, load float64, d time.Duration) *sim.Scenario {
	t.Helper()
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Verify, sc.Seed = load, d, true, 1
	return sc
}

func run(t testing.TB, sc *sim.Scenario) *sim.Result {
	t.Helper()
	r, err := sim.Replicate(context.Background(), sc, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// With exact service times no dispatched batch is late, at any load.
func TestExactTimesNeverLate(t *testing.T) {
	for _, load := range []float64{0.3, 0.8, 0.95, 1.0, 1.3, 3} {
		r := run(t, scenario(t, policytest.Hundred().Plan(), load, 20*time.Second)).Report
		t.Logf("load %.2f: %d requests, attainment %.4f, late %d, dropped %v, batches %v, p99 %v", load, r.Requests, r.Attainment, r.Late, r.DroppedByReason, r.Models[0].BatchSizes, r.Latency.P99US.D())
		if r.Late != 0 {
			t.Errorf("load %.2f: %d of %d requests late", load, r.Late, r.Requests)
		}
		if r.Requests != r.Completed+r.Dropped {
			t.Errorf("load %.2f: %d requests, %d completed, %d dropped", load, r.Requests, r.Completed, r.Dropped)
		}
	}
}
