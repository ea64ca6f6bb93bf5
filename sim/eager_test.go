package sim_test

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/testkit/policytest"
)

// On a device that models share, serving what waits as soon as the device is
// free beats waiting for fuller batches: the wait cannot count on the device.
func TestEagerPaysOnSharedDevices(t *testing.T) {
	attained := func(eager, load float64) (attainment float64, p50 time.Duration) {
		plan := policytest.Single(2, true,
			policytest.Model{Batch: 4, First: 6 * ms, More: 5 * ms, SLO: 60 * ms, RPS: 120},
			policytest.Model{Batch: 4, First: 9 * ms, More: 8 * ms, SLO: 100 * ms, RPS: 60},
			policytest.Model{Batch: 2, First: 40 * ms, More: 38 * ms, SLO: 250 * ms, RPS: 12})
		plan.Policy = formats.PolicySpec{Name: "reserve", Params: map[string]float64{"eager": eager}}
		r := replicateOnce(t, scenario(t, plan, load, 30*time.Second)).Report
		t.Logf("load %.2f, eager %v: attainment %.4f, p50 %v", load, eager, r.Attainment, r.Latency.P50US.D())
		return r.Attainment, r.Latency.P50US.D()
	}
	for _, load := range []float64{0.3, 0.6, 0.8, 0.9} {
		with, fast := attained(1, load)
		without, slow := attained(0, load)
		if with < without-0.005 || fast > slow {
			t.Errorf("load %.2f: eager attains %.4f with p50 %v, waiting %.4f with %v", load, with, fast, without, slow)
		}
	}
}
