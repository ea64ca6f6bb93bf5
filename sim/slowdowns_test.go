package sim_test

import (
	"context"
	"testing"
	"time"

	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// Runs that take no longer change nothing; those that take longer make devices busier by as much.
func TestSlowerRunsMakeDevicesBusier(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 4, First: 10 * time.Millisecond, More: 5 * time.Millisecond, SLO: 200 * time.Millisecond, RPS: 80})
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Seed = 0.3, 20*time.Second, 3
	busy := map[float64]float64{}
	var same string
	for _, by := range []float64{-1, 0, 0.1} {
		one := sc
		if by >= 0 {
			one = sc.WithSlowdown(0.05).WithSlowdown(by) // the last share counts, from what was profiled
		}
		res, err := sim.Replicate(context.Background(), one, 1)
		if err != nil {
			t.Fatal(err)
		}
		busy[by] = float64(res.Report.Devices[0].RunningUS)
		if by == -1 {
			same = res.Report.Models[0].Latency.P99US.String()
		} else if by == 0 && res.Report.Models[0].Latency.P99US.String() != same {
			t.Errorf("p99 %s, of runs that take no longer %s", same, res.Report.Models[0].Latency.P99US)
		}
	}
	if part := busy[0.1] / busy[0]; part < 1.09 || part > 1.11 {
		t.Errorf("devices are busy %.3f times as long with runs that take 1.1 times as long", part)
	}
}
