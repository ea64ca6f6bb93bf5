package sim_test

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/testkit/policytest"
)

// Shedding at the first look keeps batches full under overload: 8 devices,
// planned batches of 3 at a latency that grows slowly with the batch.
func TestSheddingPays(t *testing.T) {
	const devices, batch = 8, 3
	first, more := 12*time.Millisecond, 4*time.Millisecond
	rps := devices * batch / (first + 2*more).Seconds()
	attained := func(shed, load float64) float64 {
		plan := policytest.Single(devices, false, policytest.Model{Batch: batch, First: first, More: more, SLO: 100 * time.Millisecond, RPS: rps})
		plan.Policy = formats.PolicySpec{Name: "reserve", Params: map[string]float64{"shed": shed}}
		r := replicateOnce(t, scenario(t, plan, load, 20*time.Second)).Report
		t.Logf("load %.2f, shed %v: attainment %.4f, p50 %v, batches %v", load, shed, r.Attainment, r.Latency.P50US.D(), r.Models[0].BatchSizes)
		return r.Attainment
	}
	for _, load := range []float64{0.5, 0.9, 0.95, 1, 1.1, 1.3} {
		with, without := attained(1, load), attained(0, load)
		if with < without-0.002 {
			t.Errorf("load %.2f: attainment %.4f with shedding, %.4f without", load, with, without)
		}
		if load == 1.3 && with < without+0.05 {
			t.Errorf("load 1.3: shedding attains %.4f against %.4f, expected clearly more", with, without)
		}
	}
}
